"""The options of accelerate(): checked before anything is touched, and made a plan of in a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..blocks import Blocks
from ..correction import Correction
from ..grid import Grid
from ..learning import Learning
from ..methods import is_default
from ..plan import Plan, check_plan, given_plan
from ..purpose import Purpose
from ..targets import aimed
from ..teaching import check_learning, is_off
from .facts import check_purpose
from .scheduling import FEW_STEPS, is_euler, knows_data, prediction_of

logger = logging.getLogger("geoshrink")
DEFAULT_SPEEDUP = 3.0
OPTIONS = (
    "budget", "speedup", "target_db", "most", "judge", "plan", "anchors", "rule", "space", "blocks",
    "coefficients", "target", "refine", "correct", "clock", "learn",
)  # fmt: skip
COUNTED = ("budget", "speedup", "target_db")  # what says how many calls


def check_options(
    budget: int | None,
    options: dict[str, Any],
    schedulers: Sequence[Any] = (),
    known: Sequence[Purpose] = (),
) -> dict[str, Any]:
    """The options of every run to come, tried on a grid of 50 steps so that errors come at once.

    One of the host's schedulers must be able to do what is asked; where another steps, the run is
    exact and says why.

    known   what is known of these runs, for each scheduler: a plan for none of them is refused
    """
    options = options if budget is None else {**options, "budget": budget}
    learn = options.get("learn")
    if is_off(learn):
        options = without_learning(options)
    if "plan" in options:
        options = {"plan": given_plan(options["plan"], {**options, "plan": None})}
        check_purpose(options["plan"], known)
        check_schedulers(options, schedulers)
        return options
    own = isinstance(options.get("anchors"), (tuple, list))
    if not own and all(options.get(name) is None for name in COUNTED):
        options = {**options, "speedup": DEFAULT_SPEEDUP}
    if "reserve" in options:
        raise TypeError(
            f"reserve={options['reserve']!r} is an option of sample() and Run only: give "
            "accelerate() the whole budget"
        )
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise TypeError(
            f"unknown option {min(unknown)!r}; the options are {', '.join(OPTIONS)} (the grid is "
            "the pipeline's own)"
        )
    check_learning(learn, options)
    options = aimed(options)
    Plan.of(trial_grid(options), **without_learning(options))
    check_schedulers(options, schedulers)
    return options if "learn" not in options else {**options, "learn": Learning.of(learn)}


def without_learning(options: dict[str, Any]) -> dict[str, Any]:
    """Those of Plan.of."""
    return {name: value for name, value in options.items() if name != "learn"}


def trial_grid(options: dict[str, Any]) -> list[float]:
    """A grid that is long enough for the options, to try them on."""
    anchors, coefficients = options.get("anchors"), options.get("coefficients")
    steps = 50
    if coefficients is not None:
        steps = len(coefficients)
    elif isinstance(anchors, (tuple, list)) and anchors and isinstance(anchors[-1], int):
        steps = max(steps, anchors[-1] + 1)
    return [1 - i / steps for i in range(steps + 1)]


def check_schedulers(options: dict[str, Any], schedulers: Sequence[Any]) -> None:
    faults = [fault(options, scheduler) for scheduler in schedulers]
    if faults and all(faults):
        raise ValueError(faults[0])


def fault(options: dict[str, Any], scheduler: Any) -> str | None:
    """Why a scheduler cannot do what the options ask for, or None."""
    asked = options.get("plan")
    space = options.get("space", "output") if asked is None else asked.space
    refine = (options.get("refine") or 1) if asked is None else asked.refine
    name = type(scheduler).__name__
    if space == "data" and not knows_data(scheduler):
        return (
            f"space='data' needs to know what the outputs of {name} say about the data, and "
            "geoshrink does not: plan in output space"
        )
    if refine > 1 and not is_euler(scheduler):
        return (
            f"refine={refine} is for Euler, not {name}: plan with target='run', or leave out refine"
        )
    if refine > 1 and space == "output" and prediction_of(scheduler) == "v":
        return f"refine={refine} with the v outputs of {name} needs the state: give space='data'"
    return None


def plan_of(
    grid: Grid,
    options: dict[str, Any],
    reason: str | None = None,
    scheduler: Any = None,
    blocks: Blocks | None = None,
    facts: Purpose | None = None,
) -> tuple[Plan, str | None]:
    """(plan of a run over this grid, why it queries every stage or None).

    The run has begun: options that do not fit it are reported, not raised. Where a scheduler steps,
    switches of guidance are noticed when they happen; elsewhere a plan must know them.
    """
    if reason is None and scheduler is None and grid.steps <= FEW_STEPS:
        reason = f"{grid.steps} stages leave nothing to skip"
    if reason is None:
        try:
            if scheduler is None:
                return plan_for(grid, options), None
            check_purpose(options.get("plan"), [] if facts is None else [facts])
            check_schedulers(options, [scheduler])
            own = "plan" in options or isinstance(options.get("anchors"), (tuple, list))
            seen = replace(grid, regimes=()) if own else grid
            return plan_for(seen, {"blocks": blocks, **options}), None
        except ValueError as error:
            reason = warn(error)
    return Plan.of(grid), f"{reason}: every stage is queried"


def uncorrected(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a host whose cells cannot be corrected, unless somebody asks for it."""
    given = "plan" in options or options.get("correct") is not None
    return options if given else {**options, "correct": False}


def plan_without(
    plan: Plan, options: dict[str, Any], scheduler: Any, blocks: Blocks | None, why: str
) -> Plan | None:
    """The plan that does not correct its cells; None where somebody asked for it."""
    given = uncorrected(options)
    if given is options:
        return None
    plain, _ = plan_of(plan.grid, given, None, scheduler, blocks)
    return replace(plain, mesh=f"{plain.mesh} ({why})")


def wants_correction(options: dict[str, Any]) -> bool:
    """Whether cells are to be corrected, where that can be done."""
    if "plan" in options:
        return options["plan"].correct is not None
    asked = options.get("correct")
    return is_default(options) if asked is None else Correction.of(asked) is not None


def warn(error: Exception) -> str:
    """The words of what was asked for and cannot be done in a run that has begun."""
    logger.warning("geoshrink: %s: this run is not accelerated", error)
    return str(error)


def plan_for(grid: Grid, options: dict[str, Any]) -> Plan:
    """The plan of these options for a grid; a ValueError if it was made for another one."""
    if "plan" not in options:
        return Plan.of(grid, **without_learning(options))
    plan = check_plan(options["plan"], grid)
    missing = [start for start in grid.regimes if start not in plan.grid.regimes]
    if missing:
        raise ValueError(
            f"guidance switches at stage {missing[0]} of this run, but the plan has the regimes "
            f"{plan.grid.regimes}: make it for a grid with regimes={grid.regimes}"
        )
    return plan
