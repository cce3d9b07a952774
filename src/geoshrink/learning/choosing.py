"""From what was learned to a plan: the anchors that are cheapest on the exact runs, if they gain.

Two beliefs about how errors grow (growth.py) are weighed, each in units of what its own best
anchors cost. One picture is one draw: the default is left only for anchors that promise more than
MARGIN/√pictures decibels, both as errors grow on our models and if they stay as they are. What is
left are its first anchors; where it stays, it may still go on with others (pace.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..correction import usual
from ..grid import Grid
from ..meshes.auto import noise_levels
from ..plan import Plan
from ..planning.planner import knows_data, one_thread
from ..quality.ladder import LEAST, budgets_between
from .costs import SEARCHED, Tables
from .growth import picture, zoo
from .learned import Learned

EULER = "euler"
#: dB that one picture must promise, where cells are corrected and where they are not: there the
#: rule bends predictions that the search takes for straight.
MARGIN, UNCORRECTED = 3.0, 6.0
TINY = 1e-12  # of the energy: what outputs of 32 bits can be told apart by


def plan_from(learned: Learned, default: Plan, spaces: Sequence[str], solver: str) -> Plan:
    """The plan, with the default's number of anchors, rule, clock and correction."""
    if default.aim is not None:
        return held_from(learned, default)
    tau = noise_levels(default.grid)
    assert tau is not None
    beliefs, judges = believed(learned, tau), (zoo(tau), np.ones(len(tau)))
    if default.steps > SEARCHED and default.budget > SEARCHED // 2:
        return replace(default, mesh=f"{default.mesh} (too many anchors to be searched)")
    own, found = tables_of(learned, default, default.space), []
    for space in dict.fromkeys((default.space, *spaces)):
        if possible(space, default, solver):
            tables = own if space == default.space else tables_of(learned, default, space)
            anchors = cheapest(tables, default.budget, beliefs)
            found.append((replace(default, anchors=anchors, slow=(), space=space), tables))
    plan, tables = min(found, key=lambda f: sum(decibels(f[0], f[1], g) for g in beliefs))
    gain = min(decibels(default, own, g) - decibels(plan, tables, g) for g in judges)
    words = in_words(learned)
    margin = UNCORRECTED if default.correct is None else MARGIN
    if gain <= margin / math.sqrt(learned.pictures):
        said = f"{words}: {max(gain, 0.0):.1f} dB more expected of others, too little"
        return replace(default, mesh=f"{default.mesh} ({said})")
    return replace(plan, mesh=f"learned ({words}, {gain:.1f} dB more expected)")


def held_from(learned: Learned, default: Plan) -> Plan:
    """The plan for a quality that the run holds: what was learned says with what anchors each
    budget is best, and what it is expected to have.
    """
    aim, tau = default.aim, noise_levels(default.grid)
    assert aim is not None and tau is not None
    beliefs, tables = believed(learned, tau), tables_of(learned, default, default.space)
    last = min(default.steps - 1, aim.most or default.steps)
    last = min(last, SEARCHED // 2) if default.steps > SEARCHED else last
    least = min(max(LEAST, 1 + len(default.grid.regimes)), last)
    rungs = []
    for budget in budgets_between(least, last):
        plan = with_anchors(default, cheapest(tables, budget, beliefs))
        db = -sum(decibels(plan, tables, growth) for growth in beliefs) / len(beliefs)
        rungs.append((plan.anchors, round(max(db, rungs[-1][1] if rungs else db), 2)))
    first = next((anchors for anchors, db in rungs if db >= aim.db), rungs[-1][0])
    held = replace(with_anchors(default, first), aim=replace(aim, rungs=tuple(rungs)))
    return replace(held, mesh=f"learned ({in_words(learned)})")


def with_anchors(plan: Plan, anchors: tuple[int, ...]) -> Plan:
    own = plan.aim is not None and plan.aim.usual
    correct = usual(len(anchors)) if own else plan.correct
    return replace(plan, anchors=anchors, rules=(plan.rules[0],) * len(anchors), correct=correct)


def believed(learned: Learned, tau: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    return zoo(tau), picture(tau, learned.spread)


def cheapest(tables: Tables, count: int, beliefs: Sequence[np.ndarray]) -> tuple[int, ...]:
    """So many anchors, each belief in units of what its own best cost."""
    grown = [tables.grown(growth) for growth in beliefs]
    best = [max(tables.cheapest(own, count)[-1][0], TINY) for own in grown]
    one, other = ([cell / b for cell in own] for own, b in zip(grown, best))
    both = [a + b for a, b in zip(one, other)]
    return tables.cheapest(both, count)[-1][1]


def tables_of(learned: Learned, plan: Plan, space: str) -> Tables:
    with one_thread():
        corrected = plan.correct is not None
        return Tables(learned.grams, plan.grid, space, plan.clock, corrected, plan.anchors)


def decibels(plan: Plan, tables: Tables, growth: np.ndarray) -> float:
    """10·log10 of what a plan costs."""
    return 10 * math.log10(max(tables.price(plan.anchors, growth), TINY))


def in_words(learned: Learned) -> str:
    return f"{learned.pictures} exact picture{'s' * (learned.pictures > 1)}"


def possible(space: str, plan: Plan, solver: str) -> bool:
    """Whether the plan can be made in this space: in the default's own it can; in the other one
    Euler's states are known, and how it moves them.
    """
    return space == plan.space or (solver == EULER and knows_data(plan.grid))


def why_not(plan: Plan, grid: Grid) -> str | None:
    """Why nothing can be learned for runs of this plan, or None."""
    if plan.exact:
        return "every stage is queried anyway"
    if noise_levels(grid) is None or any(track.noise is None for track in grid.tracks):
        return "the noise levels of the grid are not known, or do not fall"
    if plan.correct is None and grid.regimes:
        return "with regimes it is for corrected cells"
    return None
