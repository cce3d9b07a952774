"""The options of accelerate(), checked before anything is touched."""

from __future__ import annotations

from typing import Any

from ..plan import Plan, given_plan

DEFAULT_SPEEDUP = 3.0
EULER = ("EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler")  # x' = x + h·output
OPTIONS = (
    "budget", "speedup", "plan", "anchors", "rule", "space", "blocks", "coefficients", "refine",
)  # fmt: skip


def check_options(budget: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options of every run to come, tried on a grid of 50 steps so that errors come at once."""
    options = options if budget is None else {**options, "budget": budget}
    if "plan" in options:
        return {"plan": given_plan(options["plan"], {**options, "plan": None})}
    if not {"budget", "speedup"} & set(options) and not isinstance(
        options.get("anchors"), (tuple, list)
    ):
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
    Plan.of(trial_grid(options), **options)
    return options


def trial_grid(options: dict[str, Any]) -> list[float]:
    """A grid that is long enough for the options, to try them on."""
    anchors, coefficients = options.get("anchors"), options.get("coefficients")
    steps = 50
    if coefficients is not None:
        steps = len(coefficients)
    elif isinstance(anchors, (tuple, list)) and anchors:
        steps = max(steps, int(anchors[-1]) + 1)
    return [1 - i / steps for i in range(steps + 1)]


def check_refined(plan: Plan, scheduler: Any) -> Plan:
    if plan.refine > 1 and not type(scheduler).__name__.startswith(EULER):
        raise ValueError(
            f"the plan is refined, which is for Euler, not {type(scheduler).__name__}: plan with "
            "target='run', or leave out refine"
        )
    return plan
