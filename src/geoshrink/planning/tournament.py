"""The tournament: a few plans run for real on the calibration samples, which settles the order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..grid import Grid
from ..outputs import flatten
from ..plan import Plan
from ..refining import refined_grid
from ..sampling import sample
from .counting import Counter, batches_of
from .profiles import Profile, Trial
from .recipes import BASELINES
from .regimes import EXACT, most_anchors
from .targets import FLOW, FULL, REFINE, RUN, check_budget

if TYPE_CHECKING:
    from .planner import Planner

#: The recipes that enter. The surrogate finds anchors but ranks rules wrongly: real runs must.
SLATE = ("time", "time, early", "time, data space", "chordal", "any rule")
SLATES = {
    RUN: SLATE,
    FLOW: ("time", "time, data space", "linear", "linear, data space", "chordal", "any rule"),
}
CONVERGED = 4  # times the grid is refined for the exact flow, with AB2
PARTS = (7, 5, 2.5)  # of the stages, or of 100: the budgets tried unless others are asked for


def default_budgets(grid: Grid) -> tuple[int, ...]:
    """A seventh, a fifth and two fifths of the stages, of which no more than 100 count.

    >>> default_budgets(Grid.of([1 - i / 50 for i in range(51)]))
    (7, 10, 20)
    """
    least = max(4, len(grid.spans()) + 1)
    wanted = {max(least, round(min(grid.steps, EXACT) / part)) for part in PARTS}
    return tuple(sorted(b for b in wanted if b < grid.steps))


def affordable(
    profile: Profile, budgets: Sequence[int], calls: int | None, target: str = RUN
) -> dict[int, int]:
    """{budget: model calls of its tournament}, those already held and too dear left out."""
    tried, most = profile.tried(target), sum(most_anchors(b - a) for a, b in profile.grid.spans())
    chosen: dict[int, int] = {}
    for budget in dict.fromkeys(check_budget(b, profile.grid) for b in budgets):
        if budget > most:
            raise ValueError(
                f"budget {budget} cannot be tried: on a grid of {profile.grid.steps} stages plans "
                f"have {most} anchors at most"
            )
        cost = (len(BASELINES) + len(SLATES[target])) * budget
        if budget not in tried and (calls is None or sum(chosen.values()) + cost <= calls):
            chosen[budget] = cost
    return chosen


def measured(
    profile: Profile,
    velocity: Any,
    noise: Any,
    budgets: Sequence[int],
    target: str = RUN,
    quiet: bool = False,
) -> Profile:
    """The profile with a tournament at each budget; the full runs are made once more."""
    pairs = batches_of(velocity, noise)
    given = [len(flatten(x)[0][0]) for _, x in pairs]
    if given != [batch.samples for batch in profile.batches]:
        raise ValueError(
            f"the profile was made from batches of {[b.samples for b in profile.batches]} samples, "
            f"got {given}: give the velocity and noise that it was made from"
        )
    tried = affordable(profile, budgets, None, target)
    steps = profile.grid.steps
    calls = len(pairs) * (steps + sum(tried.values()) + reference_calls(steps, target))
    with Counter(calls, profile.grid, pairs, quiet) as counter:
        ends = [full_run(profile, counter.counted(v), x) for v, x in pairs]
        return hold_tournaments(profile, pairs, ends, [*tried], counter, target)


def reference_calls(steps: int, target: str) -> int:
    """What the exact flow costs beside the full run."""
    return CONVERGED * steps if target == FLOW else 0


def full_run(profile: Profile, velocity: Any, x: Any) -> Any:
    return sample(velocity, x, profile.grid, solver=profile.solver)


def converged(velocity: Any, x: Any, grid: Grid, times: int = CONVERGED) -> Any:
    """The exact flow, nearly: AB2 on a grid so many times finer."""
    return sample(velocity, x, refined_grid(grid, times), solver="ab2")


def hold_tournaments(
    profile: Profile,
    pairs: Sequence[tuple[Any, Any]],
    ends: Sequence[Any],
    budgets: Sequence[int],
    counter: Counter,
    target: str = RUN,
) -> Profile:
    """`ends` are the results of the full runs, one per pair of velocity and noise."""
    trials, scores = [], {}
    planner = profile.planner_for(1 if target == RUN else REFINE)
    goals = ends
    if target == FLOW and budgets:
        goals = [converged(counter.counted(v), x, profile.grid) for v, x in pairs]
        db = torch.cat([decibels(x, goal) for x, goal in zip(ends, goals)]).tolist()
        steps = profile.grid.steps
        trials.append(Trial(FULL, steps, tuple(range(steps)), 0.0, tuple(db), target))
    for budget in budgets:
        for name, plan in entrants(planner, budget, SLATES[target]).items():
            if plan not in scores:
                made = [
                    sample(counter.counted(v), x, plan=plan, solver=profile.solver)
                    for v, x in pairs
                ]
                db = torch.cat([decibels(x, goal) for x, goal in zip(made, goals)])
                scores[plan] = tuple(db.tolist())
            if all(map(math.isfinite, scores[plan])):  # what overflows cannot win
                surrogate = planner.surrogate(name, budget)
                trials.append(Trial(name, budget, plan.anchors, surrogate, scores[plan], target))
    return profile.with_trials(trials)


def entrants(planner: Planner, budget: int, slate: Sequence[str]) -> dict[str, Plan]:
    """The baselines and the slate by name, without words, so that equal plans are equal."""
    plans = {name: planner.named(name, budget) for name in (*BASELINES, *slate)}
    return {name: replace(plan, mesh="") for name, plan in plans.items() if plan is not None}


def decibels(x: Any, end: Any) -> Tensor:
    """10·log10(‖full‖²/‖x − full‖²) of every sample; the mean ratio over slots where several."""
    ratios = []
    for made, full in zip(flatten(x)[0], flatten(end)[0]):
        full = full.to(made.device).double()
        off = (made.double() - full).flatten(1).square().sum(1)
        energy = full.flatten(1).square().sum(1)
        ratios.append(torch.where(off > 0, off / energy, off).cpu())
    ratio = torch.stack(ratios).mean(0)
    return -10 * ratio.clamp(min=1e-30).log10()
