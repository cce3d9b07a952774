"""The tournament: a few plans run for real on the calibration samples, which settles the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..outputs import flatten
from ..plan import Plan
from ..sampling import sample
from .counting import Counter, batches_of
from .profiles import Profile, Trial, check_budget
from .recipes import BASELINES

#: The recipes that enter. The surrogate finds anchors but ranks rules wrongly: real runs must.
SLATE = ("time", "time, early", "time, data space", "chordal", "any rule", "hold")
PARTS = (7, 5, 2.5)  # of the stages: the budgets tried unless others are asked for


def default_budgets(grid: Grid) -> tuple[int, ...]:
    """A seventh, a fifth and two fifths of the stages.

    >>> default_budgets(Grid.of([1 - i / 50 for i in range(51)]))
    (7, 10, 20)
    """
    least = max(4, len(grid.spans()) + 1)
    wanted = {max(least, round(grid.steps / part)) for part in PARTS}
    return tuple(sorted(b for b in wanted if b < grid.steps))


def affordable(profile: Profile, budgets: Sequence[int], calls: int | None) -> dict[int, int]:
    """{budget: model calls of its tournament}, those already held and too dear left out."""
    tried = {trial.budget for trial in profile.trials}
    chosen: dict[int, int] = {}
    for budget in dict.fromkeys(check_budget(b, profile.grid) for b in budgets):
        cost = (len(BASELINES) + len(SLATE)) * budget
        if budget not in tried and (calls is None or sum(chosen.values()) + cost <= calls):
            chosen[budget] = cost
    return chosen


def measured(
    profile: Profile, velocity: Any, noise: Any, budgets: Sequence[int], quiet: bool = False
) -> Profile:
    """The profile with a tournament at each budget; the full runs are made once more."""
    pairs = batches_of(velocity, noise)
    given = [len(flatten(x)[0][0]) for _, x in pairs]
    if given != [batch.samples for batch in profile.batches]:
        raise ValueError(
            f"the profile was made from batches of {[b.samples for b in profile.batches]} samples, "
            f"got {given}: give the velocity and noise that it was made from"
        )
    tried = affordable(profile, budgets, None)
    calls = len(pairs) * (profile.grid.steps + sum(tried.values()))
    with Counter(calls, profile.grid, pairs, quiet) as counter:
        ends = [sample(counter.counted(v), x, profile.grid) for v, x in pairs]
        return hold_tournaments(profile, pairs, ends, [*tried], counter)


def hold_tournaments(
    profile: Profile,
    pairs: Sequence[tuple[Any, Any]],
    ends: Sequence[Any],
    budgets: Sequence[int],
    counter: Counter,
) -> Profile:
    """`ends` are the results of the full runs, one per pair of velocity and noise."""
    trials, scores = [], {}
    for budget in budgets:
        for name, plan in entrants(profile, budget).items():
            if plan not in scores:
                made = [sample(counter.counted(v), x, plan=plan) for v, x in pairs]
                db = torch.cat([decibels(x, end) for x, end in zip(made, ends)])
                scores[plan] = tuple(db.tolist())
            surrogate = profile.planner.surrogate(name, budget)
            trials.append(Trial(name, budget, plan.anchors, surrogate, scores[plan]))
    return profile.with_trials(trials)


def entrants(profile: Profile, budget: int) -> dict[str, Plan]:
    """The baselines and the slate by name, without words, so that equal plans are equal."""
    plans = {name: profile.planner.named(name, budget) for name in (*BASELINES, *SLATE)}
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
