"""The models that profile() runs: full runs on calibration samples, and the gains.

Every output is copied to host memory at once, so the device holds no more than in a plain run. The
host holds the noise and the T outputs of one batch, T + 1 times the size of x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..outputs import flatten
from ..plan import Plan
from ..sampling import check_state, sample
from .gains import measure_gain, perturbation, remainder
from .runs import RUN, Batch, Kind, Runs
from .space import gram
from .tournament import Source, converged

Velocity = Callable[[Any, Any], Any]


class Begun(Exception):
    """Ends a run after its first output."""


class Models(Source):
    """Velocities with their noise, a pair per batch, run by sample()."""

    def __init__(
        self, velocity: Any, noise: Any, grid: Grid, stages: Sequence[int], solver: str
    ) -> None:
        self.pairs = batches_of(velocity, noise)
        self.grid, self.stages, self.solver = grid, stages, solver
        self.states = [x for _, x in self.pairs]
        self.ends: dict[tuple[int, str], Any] = {}
        self.tick = lambda: None

    def velocity(self, i: int) -> Velocity:
        """That of batch i, counted."""

        def counting(x: Any, sigma: Any) -> Any:
            output = self.pairs[i][0](x, sigma)
            self.tick()
            return output

        return counting

    def cost(self, profile: Runs) -> tuple[int, int]:
        restarts, steps = 1 if self.solver == "euler" else 2, self.grid.steps
        return steps, steps + restarts * sum(steps - n for n in self.stages)

    def begin(self, i: int) -> Iterator[list[list[Tensor]]]:
        def stop(x: Any, sigma: Any) -> Any:
            raise Begun(self.pairs[i][0](x, sigma))

        noise = [leaf.detach().cpu() for leaf in flatten(self.states[i])[0]]
        yield [[leaf] for leaf in noise]
        try:
            sample(stop, self.states[i], self.grid)
        except Begun as begun:
            outputs = flatten(begun.args[0])[0]
            yield [[leaf, v.detach().cpu()] for leaf, v in zip(noise, outputs)]

    def with_batch(self, profile: Kind, i: int) -> Kind:
        run = self.velocity(i), self.states[i], self.grid, self.stages, self.solver
        batch, self.ends[i, RUN] = profile_batch(*run)
        return replace(profile, batches=(*profile.batches, batch))

    def end(self, i: int, target: str = RUN) -> Any:
        if (i, target) not in self.ends:
            run = self.velocity(i), self.states[i], self.grid
            full = sample(*run, solver=self.solver) if target == RUN else converged(*run)
            self.ends[i, target] = full
        return self.ends[i, target]

    def made(self, i: int, plan: Plan) -> Any:
        return sample(self.velocity(i), self.states[i], plan=plan, solver=self.solver)


def profile_batch(
    velocity: Velocity, noise: Any, grid: Grid, stages: Sequence[int], solver: str = "euler"
) -> tuple[Batch, Any]:
    """(the batch's numbers, x at the end of its full runs)."""
    outputs: list[list[Tensor]] = []
    states: dict[int, list[Tensor]] = {}

    def spilling(x: Any, sigma: Any) -> Any:
        n, v = len(outputs), velocity(x, sigma)
        leaves = flatten(v)[0]
        check_finite(leaves, f"stage {n}")
        outputs.append([leaf.detach().cpu() for leaf in leaves])
        if n in stages:
            states[n] = [leaf.detach().cpu() for leaf in flatten(x)[0]]
        return v

    with torch.no_grad():
        end = sample(spilling, noise, grid, solver=solver)
        leaves, unflatten = check_state(noise)
        first = [leaf.detach().cpu() for leaf in leaves]
        grams = tuple(gram([x, *slot]) for x, slot in zip(first, zip(*outputs)))
        gains: list[list[Tensor]] = []
        for n in stages:
            error = perturbation(grid, n, lambda m: outputs[m])
            x = unflatten([s.to(leaf) for s, leaf in zip(states[n], leaves)])
            moved = [e.to(leaf.device) for e, leaf in zip(error, leaves)]
            plain = end  # what the remainder alone gives; multistep solvers restart there
            if solver != "euler":
                plain = sample(velocity, x, remainder(grid, n), solver=solver)
            gains.append(measure_gain(velocity, grid, n, x, moved, plain, solver))
    ends = flatten(end)[0]
    check_finite(ends, "the end")
    energies = tuple(x.double().flatten(1).square().sum(1).cpu() for x in ends)
    empty = [torch.zeros(0, len(e), dtype=torch.float64) for e in energies]
    by_slot = tuple(torch.stack(slot) for slot in zip(*gains)) if gains else tuple(empty)
    return Batch(grams, energies, by_slot), unflatten([x.cpu() for x in ends])


def check_finite(leaves: Sequence[Tensor], where: str) -> None:
    for slot, leaf in enumerate(leaves):
        bad = ~leaf.detach().flatten(1).isfinite().all(1)
        if bad.any():
            sample_ = int(bad.nonzero()[0, 0])
            raise ValueError(
                f"the model's output is not finite at {where} (slot {slot}, sample {sample_}): "
                "nothing can be planned from it; try a wider dtype or other samples"
            )


def batches_of(velocity: Any, noise: Any) -> list[tuple[Velocity, Any]]:
    several = isinstance(velocity, (list, tuple))
    if several and (not isinstance(noise, (list, tuple)) or len(noise) != len(velocity)):
        given = f"{len(noise)}" if isinstance(noise, (list, tuple)) else "one"
        raise ValueError(f"{len(velocity)} velocities need as many noises, got {given}")
    pairs = list(zip(velocity, noise)) if several else [(velocity, noise)]
    if not pairs:
        raise ValueError("there is nothing to profile: velocity and noise are empty lists")
    for v, x in pairs:
        if not callable(v):
            raise TypeError(f"velocity must be callable as velocity(x, σ), got {v!r}")
        for leaf in check_state(x)[0]:
            if leaf.ndim < 2:
                raise ValueError(f"noise needs a sample axis first, got shape {tuple(leaf.shape)}")
    return pairs
