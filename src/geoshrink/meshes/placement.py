"""From a budget to anchors: names, speed-ups, explicit stages, and the shares of the regimes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

from ..checks import whole
from ..grid import Grid
from .registry import MESHES, Placed


def choose_anchors(
    grid: Grid, budget: int | None, speedup: float | None, anchors: Any, hold: bool
) -> Placed:
    """(anchors, how they were found)."""
    if not isinstance(anchors, str):
        return explicit(grid, budget, speedup, anchors)
    if anchors not in MESHES:
        raise ValueError(
            f"unknown anchors {anchors!r}; choose one of {', '.join(MESHES)}, or give the stages"
        )
    mesh = MESHES[anchors]
    if budget is None and speedup is None:
        return tuple(range(grid.steps)), "every stage"
    if budget is None:
        budget = budget_for(speedup, grid.steps)
    elif speedup is not None:
        raise ValueError(f"give a budget ({budget!r}) or a speedup ({speedup!r}), not both")
    _, budget = check_budget(grid.steps, budget, minimum=2 if hold else mesh.least)
    if budget >= grid.steps:
        more = f": budget {budget} exceeds the {grid.steps} stages" if budget > grid.steps else ""
        return tuple(range(grid.steps)), "every stage" + more
    found, words = mesh.place(grid, budget)
    if len(found) != budget:
        raise ValueError(
            f"mesh {mesh.name!r} placed {len(found)} anchors for a budget of {budget}: {found}"
        )
    return found, words


def explicit(grid: Grid, budget: int | None, speedup: float | None, anchors: Any) -> Placed:
    if budget is not None or speedup is not None:
        raise ValueError("explicit anchors are the budget: leave out budget and speedup")
    if not isinstance(anchors, Iterable):
        raise TypeError(f"anchors are a mesh's name or stage numbers, got {anchors!r}")
    anchors = tuple(anchors)
    if len(anchors) < min(2, grid.steps):
        raise ValueError(f"a plan needs at least 2 anchors, got {anchors}")
    return anchors, "explicit"


def by_regime(one: Callable[[Sequence[float], int], Placed]) -> Callable[[Grid, int], Placed]:
    """Lays out a mesh of one regime in every regime of a grid, each with its share of the budget.

    one(tau, budget) places anchors, counted from 0, on the progress coordinate τ_0 … τ_L of a
    regime of L stages. The mesh closes at the grid's last stage, or at the first stage of the next
    regime, which is queried anyway.
    """

    def part(grid: Grid, first: int, last: int, budget: int) -> Placed:
        closed = last < grid.steps and budget < last - first
        found, words = one(grid.tracks[grid.lead].tau[first : last + 1 + closed], budget + closed)
        return tuple(first + n for n in found[:budget]), words

    def place(grid: Grid, budget: int) -> Placed:
        spans, shares = grid.spans(), [budget]
        if len(spans) > 1:
            shares = share_budget(part(grid, 0, grid.steps, budget)[0], spans)
        found = [part(grid, *span, share) for span, share in zip(spans, shares)]
        words = dict.fromkeys(words for _, words in found)
        return tuple(n for own, _ in found for n in own), " + ".join(words)

    return place


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


def share_budget(anchors: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """How many anchors each regime gets: as many as a mesh of the whole grid has there, at least 1.

    A regime that would get none takes one from the regime that has most.

    >>> share_budget((0, 1, 2, 3, 5, 8, 11, 15, 20, 24), [(0, 4), (4, 19), (19, 25)])
    [4, 4, 2]
    """
    check_regimes(len(anchors), len(spans))
    shares = [sum(first <= a < last for a in anchors) for first, last in spans]
    while 0 in shares:
        shares[shares.index(max(shares))] -= 1
        shares[shares.index(0)] = 1
    return shares


def check_regimes(budget: int, regimes: int) -> None:
    """Every regime begins with an anchor."""
    if budget < regimes:
        raise ValueError(
            f"budget {budget} is smaller than the number of regimes, {regimes}: each is queried"
        )


def check_budget(steps: int, budget: int, minimum: int) -> tuple[int, int]:
    """(steps, budget) as plain integers; the error says what would work."""
    steps = whole(steps, "the number of stages")
    budget = whole(budget, "budget")
    if steps < 1:
        raise ValueError(f"a grid needs at least 1 stage, got {steps}")
    if budget < min(minimum, steps):
        enough = f"at least {minimum} of the {steps}" if minimum < steps else f"all {steps}"
        raise ValueError(
            f"budget {budget} is too small: this mesh needs {enough} stages; explicit anchors, "
            "anchors='uniform' and rule='hold' work from 2"
        )
    return steps, budget
