"""What a plan aims at: the full run of the solver's own steps, or the exact flow."""

from __future__ import annotations

from typing import Any

from ..checks import whole
from ..grid import Grid

RUN, FLOW = TARGETS = "run", "flow"
REFINE = 8  # times the grid is refined for the exact flow, unless said
FULL = "every stage"  # the recipe of a plain full run


def check_budget(budget: Any, grid: Grid) -> int:
    budget = whole(budget, "budget")
    least = max(2, len(grid.spans()))
    if budget < min(least, grid.steps):
        raise ValueError(f"budget {budget} is too small: a plan needs at least {least} anchors")
    return min(budget, grid.steps)


def check_target(target: Any, refine: int | None, solver: str) -> int:
    """How many times the grid is refined."""
    if target not in TARGETS:
        raise ValueError(
            f'unknown target {target!r}; "run" is the result of the solver\'s own steps, "flow" '
            "the exact flow"
        )
    if target == RUN:
        if refine not in (None, 1):
            raise ValueError(
                f"refine={refine!r} is for target='flow': refined steps leave the solver's own run"
            )
        return 1
    if solver != "euler":
        raise ValueError(f"target='flow' refines Euler; this profile is of solver={solver!r}")
    refine = REFINE if refine is None else whole(refine, "refine")
    if not 2 <= refine <= 64:
        raise ValueError(f"refine is a number from 2 to 64, got {refine}")
    return refine
