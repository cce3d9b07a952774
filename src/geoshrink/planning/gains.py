"""The gain a(σ): by how much an error of the state at σ has grown or shrunk at the end of the run.

It is measured by runs from a perturbed state. The perturbation at a stage is the error that holding
an output over a typical cell leaves there; the model then runs exactly to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import whole
from ..grid import Grid
from ..outputs import flatten
from ..sampling import sample

LOUD = 16  # times the state's rounding: the least perturbation
STAGES = 3  # perturbed by default, for less than two full runs of model calls


def check_stages(count: int) -> None:
    if not 1 <= whole(count, "perturbed") <= 50:
        raise ValueError(f"perturbed is a number of stages from 1 to 50, got {count}")


def gain_stages(grid: Grid, count: int = STAGES) -> tuple[int, ...]:
    """The stages to perturb: denser early, each with two stages of its regime before it.

    >>> gain_stages(Grid.of([1 - i / 50 for i in range(51)]))
    (2, 10, 49)
    """
    last = grid.steps - 1
    if last < 2:
        return ()
    wanted = np.rint(np.geomspace(2, last, count)).astype(int)
    allowed = [n for first, end in grid.spans() for n in range(first + 2, end)]
    if not allowed:
        return ()
    return tuple(sorted({min(allowed, key=lambda n: abs(n - w)) for w in wanted.tolist()}))


def hold_cell(grid: Grid, n: int) -> range:
    """The stages of a typical cell that ends at n: a third of those since its regime began."""
    first = next(a for a, b in grid.spans() if a <= n < b)
    length = max(2, round((n - first) / 3))
    return range(n - length, n)


def perturbation(grid: Grid, n: int, outputs: Callable[[int], list[Tensor]]) -> list[Tensor]:
    """Σ g_m·(v_k − v_m) over the cell: what holding its first output does to x at stage n."""
    k, *skipped = hold_cell(grid, n)
    held = [v.to(torch.promote_types(v.dtype, torch.float32)) for v in outputs(k)]
    moved = [torch.zeros_like(v) for v in held]
    for m in skipped:
        for i, (v, exact) in enumerate(zip(held, outputs(m))):
            p, g = grid.track(i).euler(m)
            moved[i] = p * moved[i] + g * (v - exact)
    return moved


def measure_gain(
    velocity: Callable[[Any, Any], Any],
    grid: Grid,
    n: int,
    x: Any,
    error: Sequence[Tensor],
    end: Any,
    solver: str = "euler",
) -> list[Tensor]:
    """‖δx_end‖/‖δx_n‖ of every sample, one tensor per slot; NaN where nothing was perturbed."""
    leaves, unflatten = flatten(x)
    started = unflatten([leaf + heard(e, leaf).to(leaf) for leaf, e in zip(leaves, error)])
    moved = flatten(sample(velocity, started, remainder(grid, n), solver=solver))[0]
    offs = [y.double() - x.to(y.device).double() for y, x in zip(moved, flatten(end)[0])]
    put = [s.double() - leaf.double() for s, leaf in zip(flatten(started)[0], leaves)]
    norms = [e.flatten(1).norm(dim=1).cpu() for e in put]  # as rounded to the state's precision
    return [
        (off.flatten(1).norm(dim=1).cpu() / norm).where(norm > 0, float("nan"))
        for off, norm in zip(offs, norms)
    ]


def heard(error: Tensor, x: Tensor) -> Tensor:
    """The error, made larger if the rounding of x along the run would hide it."""
    least = LOUD * torch.finfo(x.dtype).eps * x.double().flatten(1).norm(dim=1)
    size = error.double().flatten(1).norm(dim=1)
    factor = torch.where(size > 0, (least / size).clamp(min=1), 1.0)
    return error * factor.reshape(-1, *[1] * (error.ndim - 1)).to(error.dtype)


def fitted_gains(
    grid: Grid, stages: Sequence[int], gains: np.ndarray, slot: int, early: bool = False
) -> np.ndarray:
    """a at the grid points 0 … T from gains (stages, samples): a falling curve.

    The means over samples are geometric (`early`: root mean squares). They are interpolated over
    the logarithm of the progress |τ − τ_0|. Without any measurement a is 1.
    """
    good = np.isfinite(gains) & (gains > 0)
    kept = [i for i in range(len(stages)) if good[i].any()]
    if not kept:
        return np.ones(grid.steps + 1)
    measured = [gains[i][good[i]] for i in kept]
    if early:
        measured = [np.sqrt(np.square(row).mean()) for row in measured]
    logs = falling([float(np.log(row).mean()) for row in measured])
    tau = np.asarray(grid.track(slot).tau)
    progress = np.log(np.maximum(np.abs(tau - tau[0]), 1e-12))
    return np.exp(np.interp(progress, progress[[stages[i] for i in kept]], logs))


def falling(values: Sequence[float]) -> list[float]:
    """The least-squares fit that never rises: neighbours that rise are averaged.

    >>> falling([3.0, 1.0, 2.0, 0.0])
    [3.0, 1.5, 1.5, 0.0]
    """
    pools: list[list[float]] = []
    for value in values:
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-1]) > np.mean(pools[-2]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return [float(np.mean(pool)) for pool in pools for _ in pool]


def remainder(grid: Grid, n: int) -> Grid:
    """The grid from stage n on."""
    steps = grid.steps - n
    tracks = tuple(track.at(range(n, grid.steps + 1)) for track in grid.tracks)
    regimes = tuple(start - n for start in grid.regimes if start > n)
    return Grid(tracks, tuple(range(steps)), steps, regimes, grid.lead, grid.keys)
