"""From a budget to anchors: names, speed-ups, explicit stages, and the shares of the regimes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

from .anchors import check_budget, geometric_anchors, share_budget, sigma_anchors, uniform_anchors
from .checks import whole
from .grid import Grid
from .universal import universal_anchors

MESHES = ("auto", "sigma", "geometric", "uniform")


def choose_anchors(
    grid: Grid, budget: int | None, speedup: float | None, anchors: Any, hold: bool
) -> tuple[tuple[int, ...], str]:
    """(anchors, how they were found)."""
    if anchors is not None and not isinstance(anchors, str):
        if budget is not None or speedup is not None:
            raise ValueError("explicit anchors are the budget: leave out budget and speedup")
        if not isinstance(anchors, Iterable):
            raise TypeError(f"anchors are a mesh's name or stage numbers, got {anchors!r}")
        anchors = tuple(anchors)
        if len(anchors) < min(2, grid.steps):
            raise ValueError(f"a plan needs at least 2 anchors, got {anchors}")
        return anchors, "explicit"
    mesh = anchors
    if mesh is None:  # the auto mesh is fitted to linear prediction, not to holding
        mesh = "sigma" if hold else "auto"
    if mesh not in MESHES:
        raise ValueError(
            f"unknown anchors {mesh!r}; choose one of {', '.join(MESHES)}, or give the stages"
        )
    if budget is None and speedup is None:
        return tuple(range(grid.steps)), "every stage"
    if budget is None:
        budget = budget_for(speedup, grid.steps)
    elif speedup is not None:
        raise ValueError(f"give a budget ({budget!r}) or a speedup ({speedup!r}), not both")
    hold = hold or mesh == "uniform"
    _, budget = check_budget(grid.steps, budget, minimum=2 if hold else 4)
    if budget >= grid.steps:
        more = f": budget {budget} exceeds the {grid.steps} stages" if budget > grid.steps else ""
        return tuple(range(grid.steps)), "every stage" + more
    if mesh == "auto":
        universal = universal_anchors(grid, budget)
        if universal is not None:
            return universal, "auto"
        other, mesh = choose_anchors(grid, budget, None, "sigma", hold)
        return other, f"{mesh} (no auto mesh: noise levels unknown or rising)"
    spans = grid.spans()
    shares = [budget]
    if len(spans) > 1:
        whole_grid, _ = regime_anchors(grid, 0, grid.steps, budget, mesh)
        shares = share_budget(whole_grid, spans)
    found = [
        regime_anchors(grid, first, last, share, mesh)
        for (first, last), share in zip(spans, shares)
    ]
    names = dict.fromkeys(name for _, name in found)
    return tuple(a for part, _ in found for a in part), " + ".join(names)


def regime_anchors(
    grid: Grid, first: int, last: int, budget: int, mesh: str
) -> tuple[tuple[int, ...], str]:
    """The mesh of one regime, first … last − 1.

    The mesh closes at the grid's last stage, or at the first stage of the next regime, which is
    queried anyway. Fewer than 4 anchors cannot form a geometric mesh and are spread evenly.
    """
    steps = last - first
    if last < grid.steps and budget < steps:
        closed, mesh = mesh_of(grid, first, last + 1, budget + 1, mesh)
        return closed[:-1], mesh
    return mesh_of(grid, first, last, budget, mesh)


def mesh_of(
    grid: Grid, first: int, last: int, budget: int, mesh: str
) -> tuple[tuple[int, ...], str]:
    steps = last - first
    if mesh == "uniform" or budget < 4:
        local, mesh = uniform_anchors(steps, budget), "uniform"
    elif mesh == "sigma":
        found = sigma_anchors(grid.tracks[grid.lead].tau[first : last + 1], budget)
        local = geometric_anchors(steps, budget) if found is None else found
        mesh = (
            "sigma"
            if found is not None
            else "geometric (no σ-mesh: closure root below 1 or τ not monotone)"
        )
    else:
        local = geometric_anchors(steps, budget)
    return tuple(first + a for a in local), mesh


def budget_for(speedup: Any, steps: int) -> int:
    """B = max(4, round(T/s)), never more than T."""
    if isinstance(speedup, bool) or not isinstance(speedup, Real) or not math.isfinite(speedup):
        raise TypeError(f"speedup must be a finite number, got {speedup!r}")
    if speedup < 1:
        raise ValueError(f"speedup must be at least 1, got {speedup!r}")
    return min(steps, max(4, round(steps / float(speedup))))


def check_anchors(anchors: Sequence[int], grid: Grid) -> tuple[int, ...]:
    try:
        stages = tuple(whole(a, "an anchor") for a in anchors)
    except TypeError:
        stages = ()
    if not stages:
        raise ValueError(f"anchors are stage numbers, got {anchors!r}")
    if any(b <= a for a, b in pairwise(stages)):
        raise ValueError(f"anchors must increase, got {stages}")
    if stages[0] != 0:
        raise ValueError(
            "the first anchor must be stage 0, since nothing can be predicted before it; got "
            f"{stages}"
        )
    if stages[-1] >= grid.steps:
        last = grid.steps - 1
        raise ValueError(f"anchor {stages[-1]} is not one of the {grid.steps} stages 0 … {last}")
    missing = [start for start in grid.regimes if start not in stages]
    if missing:
        raise ValueError(f"stage {missing[0]} begins a regime and must be an anchor; got {stages}")
    return stages
