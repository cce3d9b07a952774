"""profile(): full runs on calibration samples, the gains, and a first tournament of plans.

Outputs go to host memory as they come, so the device holds no more than in a plain run. The host
holds the noise and the T outputs of one batch (T + 1 times the size of x); their products are
taken in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checks import whole
from ..grid import Grid
from ..outputs import flatten
from ..sampling import check_state, sample
from .counting import Counter, Velocity, batches_of
from .fitting import alike, check_guidance
from .gains import STAGES, gain_stages, measure_gain, perturbation
from .profiles import FEWEST, Batch, Profile
from .space import gram
from .tournament import affordable, default_budgets, hold_tournaments

RUNS = 10  # full runs that a profile costs at most, unless budgets are given


def profile(
    velocity: Velocity | Sequence[Velocity],
    noise: Any,
    sigmas: Any,
    *,
    budgets: Sequence[int] | None = None,
    model: str = "",
    guidance: float | tuple[float, float] | None = None,
    file: str | Path | None = None,
    perturbed: int = STAGES,
    quiet: bool = False,
    **options: Any,
) -> Profile:
    """Profiles a model on a few samples; the result plans any budget.

        profile = geoshrink.profile(model.velocity(labels), model.noise(16), model.grid(50))

    velocity, noise   what sample() takes; or a list of each, to run batch after batch
    budgets           at which plans are tried in real runs; () leaves that out, None tries three
                      or fewer, within ten full runs for everything
    model, guidance   kept with the profile, to tell whether it fits a run; guidance may be a range
    file              written after every batch; where it is there already, profiling goes on
    perturbed         from how many stages the gains are measured
    options           of Grid.of: prediction, alphas, data, regimes
    """
    if isinstance(sigmas, Grid) and options:
        raise ValueError(f"a Grid knows its {', '.join(options)}: leave them out")
    grid = sigmas if isinstance(sigmas, Grid) else Grid.of(sigmas, **options)
    pairs = batches_of(velocity, noise)
    samples = sum(len(flatten(x)[0][0]) for _, x in pairs)
    if samples < FEWEST:
        raise ValueError(f"{samples} samples are too few to plan from: give at least {FEWEST}")
    if not 1 <= whole(perturbed, "perturbed") <= 50:
        raise ValueError(f"perturbed is a number of stages from 1 to 50, got {perturbed}")
    stages = gain_stages(grid, perturbed)
    kind = str(flatten(pairs[0][1])[0][0].dtype).removeprefix("torch.")
    start = Profile(grid, (), stages, model, check_guidance(guidance), kind, complete=False)
    found = start if file is None else resumed(start, file, pairs)
    if found.complete and (budgets is None or not {*budgets} - {t.budget for t in found.trials}):
        return found
    calls = grid.steps + sum(grid.steps - n for n in stages)
    wanted = default_budgets(grid) if budgets is None else tuple(budgets)
    left = None if budgets is not None else RUNS * grid.steps - calls
    tried = affordable(found, wanted, left)
    known = len(found.batches)
    total = calls * (len(pairs) - known) + grid.steps * known + len(pairs) * sum(tried.values())
    with Counter(total, grid, pairs, quiet) as counter:
        ends = [sample(counter.counted(v), x, grid) for v, x in pairs[:known]] if tried else []
        for v, x in pairs[known:]:
            batch, end = profile_batch(counter.counted(v), x, grid, stages)
            found, ends = replace(found, batches=(*found.batches, batch)), [*ends, end]
            if file is not None:
                found.save(file)
        found = replace(found, complete=True)
        found = hold_tournaments(found, pairs, ends, [*tried], counter)
    if file is not None:
        found.save(file)
    return found


def profile_batch(
    velocity: Velocity, noise: Any, grid: Grid, stages: Sequence[int]
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
        end = sample(spilling, noise, grid)
        leaves, unflatten = check_state(noise)
        first = [leaf.detach().cpu() for leaf in leaves]
        grams = tuple(gram([x, *slot]) for x, slot in zip(first, zip(*outputs)))
        gains: list[list[Tensor]] = []
        for n in stages:
            error = perturbation(grid, n, lambda m: outputs[m])
            x = unflatten([s.to(leaf) for s, leaf in zip(states[n], leaves)])
            moved = [e.to(leaf.device) for e, leaf in zip(error, leaves)]
            gains.append(measure_gain(velocity, grid, n, x, moved, end))
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


def resumed(start: Profile, file: str | Path, pairs: Sequence[tuple[Velocity, Any]]) -> Profile:
    """What the file has of this very profile; `start` where there is no file."""
    from .files import read

    if not Path(file).exists():
        return start
    found = read(file, whole=False)
    same = ("model", "guidance", "dtype", "stages")
    other = [name for name in same if getattr(found, name) != getattr(start, name)]
    if not alike(found.grid, start.grid):
        other.append("σ-grid")
    for batch, (_, x) in zip(found.batches, pairs):
        norms = [t.detach().cpu().double().flatten(1).square().sum(1) for t in flatten(x)[0]]
        known = [products[:, 0, 0] for products in batch.grams]
        if [n.shape for n in norms] != [k.shape for k in known] or not all(
            torch.allclose(n, k, rtol=1e-9) for n, k in zip(norms, known)
        ):
            other.append("noise")
            break
    if len(found.batches) > len(pairs):
        other.append("number of batches")
    if other:
        raise ValueError(
            f"{file} is of another profile (its {', '.join(other)} differ): "
            "give another file, or remove it"
        )
    if len(found.batches) < len(pairs):  # what was tried, was tried on fewer samples
        return replace(found, complete=False, trials=())
    return found
