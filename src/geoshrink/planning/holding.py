"""held_plan(): a profile's plan for a quality that the run holds by what it sees.

The profile says with what anchors each budget is best, and what it is expected to have on this
model. The run begins with the least budget that is expected to do, and goes on with the anchors of
another where what it sees of itself asks for it (quality/goal.py).
"""

from __future__ import annotations

from dataclasses import replace

from ..aim import Aim
from ..plan import Plan
from ..quality.ladder import LEAST, budgets_between
from .choosing import NO_RUNS, budget_for_target, of_method, prediction
from .planner import DEFAULT, Planner, planner_of
from .runs import RUN, Runs


def held_plan(
    profile: Runs, db: float, most: int | None = None, judge: str = "mean", correct: bool = True
) -> Plan:
    """The plan that begins with the profile's guess.

    Plans with coefficients of their own belong to their anchors; in place of one of those the
    default's meshes are used, with what the profile expects of them.
    """
    aim, planner, steps = Aim(db, most, judge), planner_of(profile), profile.grid.steps
    last = min(steps - 1, aim.most or steps)
    if last < min(LEAST, steps - 1):
        raise ValueError(f"most={most} is too few: a run needs at least {LEAST} calls")
    try:
        first = min(budget_for_target(profile, db, RUN, correct), last)
    except ValueError:  # none is expected to do: the most there is
        first = last
    name = steady(planner, prediction(profile, first, RUN, correct).recipe, first)
    least = max(LEAST, 1 + len(profile.grid.regimes))
    rungs = []
    for budget in budgets_between(min(least, last), last):
        expected, plan = of_method(profile, name, budget, RUN), planner.named(name, budget)
        if expected is not None and plan is not None:
            rungs.append((plan.anchors, round(expected.db, 2)))
    plan = planner.named(name, first)
    if not rungs or plan is None:
        raise ValueError(NO_RUNS)
    aim = replace(aim, usual=name == DEFAULT, rungs=tuple(rungs))
    return replace(plan, mesh=f"{plan.mesh}, from a profile", aim=aim, slow=())


def steady(planner: Planner, name: str, budget: int) -> str:
    """The recipe, if its plans can be left for others on the way; else the default's."""
    plan = planner.named(name, budget)
    alike = plan is not None and plan.coefficients is None and len({*plan.rules}) == 1
    return name if alike and not planner.is_default(name, budget) else DEFAULT
