"""Whether the cells of a plan can be corrected with a solver, and the default's plan for either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .history import Corrector, refined_plan
from .plan import Plan
from .solvers.response import Response, response_of
from .targets import FLOW
from .track import Track

OUT_OF_REACH = "the state of a solver other than Euler is out of reach"


def corrector_of(
    plan: Plan,
    solver: str | Sequence[Response] | None,
    levels: Sequence[Track] | None,
    why: str | None,
) -> Corrector:
    """The corrector of a plan; a ValueError says why there is none."""
    if solver is None:
        raise ValueError(why or "the solver is not known; pass solver='euler' if it is Euler's")
    fine = refined_plan(plan) if plan.refine > 1 else plan
    tracks = fine.grid.tracks if levels is None else levels
    if any(track.levels is None for track in tracks):
        raise ValueError(
            "it is not known where the data is; pass data=0.0 or data=1.0 with the grid"
        )
    if isinstance(solver, str):
        data = plan.space == "data"
        solver = [response_of(solver, track, data) for track in fine.grid.tracks]
    return Corrector(fine, solver, levels)


def plan_with(
    solver: str | None,
    sigmas: Any,
    budget: int | None,
    options: Mapping[str, Any],
    why: str | None = None,
) -> Plan:
    """The plan of these options (those of Plan.of) for a solver. Where nobody says whether cells
    are corrected, and they cannot be, it is the default without, and says so.

    why   a reason of the caller's not to correct them
    """
    plan = Plan.of(sigmas, budget, **options)
    asked = options.get("correct") is not None or options.get("target") == FLOW
    if asked or plan.correct is None:
        return plan
    try:
        if why is not None:
            raise ValueError(why)
        corrector_of(plan, solver, None, None)
    except ValueError as error:
        plain = Plan.of(sigmas, budget, **{**options, "correct": False})
        return replace(plain, mesh=f"{plain.mesh} (cells are not corrected: {error})")
    return plan
