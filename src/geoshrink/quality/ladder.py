"""Ladder: the anchors of a mesh for every budget of a grid, and what each budget leaves.

With the slope v and the curvature c of the outputs as they are at an anchor, the cells that a
budget still has ahead leave E² = v²·P + c²·Q (estimate.py). P and Q depend on the grid alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ..correction import usual
from ..grid import Grid
from ..meshes.registry import MESHES, Mesh
from ..plan import Plan
from .cells import Array, Path
from .estimate import Constants, growth

FINER = 1.12  # from one budget to the next
LEAST = 4


@dataclass
class Ahead:
    """What cells leave on the path of a slot, remembered."""

    path: Path
    constants: Constants
    corrected: bool
    known: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def cell(self, k: int, end: int) -> tuple[float, float]:
        """(P, Q) of one cell that is followed by one of length 1."""
        if (k, end) not in self.known:
            reach, inside = self.path.reach(k, end), self.path.inside(k, end)
            if not self.corrected:  # ‖d‖, where the anchors before are as far apart
                inside = 2 * reach * self.path.length(k, end)
            g = growth(self.path.noise[end], self.constants.spread)
            self.known[k, end] = g * (self.constants.moved * reach) ** 2, g * inside**2
        return self.known[k, end]

    def last(self, k: int) -> float:
        """P of the cell that ends the run."""
        end = len(self.path.y) - 1
        g = growth(self.path.noise[end], self.constants.spread)
        return g * (self.constants.last * self.path.reach(k, end)) ** 2

    def length(self, k: int, end: int) -> float:
        """h^2q of the cell that follows."""
        return self.path.length(k, end) ** (2 * self.constants.power)


class Ladder:
    """A mesh at every budget that is tried, fewest calls first. Each is a rung."""

    def __init__(self, grid: Grid, anchors: Sequence[Sequence[int]]):
        self.steps, self.starts, self.anchors = grid.steps, grid.regimes, anchors
        self.budgets = [len(own) for own in anchors]
        self.tables: dict[tuple[Path, Constants, bool], Ahead] = {}
        self.routes: dict[tuple[int, int], tuple[int, ...]] = {}
        self.views: dict[tuple[int, int], tuple[Array, Array, Array]] = {}

    def ahead(self, path: Path, constants: Constants, corrected: bool) -> Ahead:
        key = path, constants, corrected
        if key not in self.tables:
            self.tables[key] = Ahead(path, constants, corrected)
        return self.tables[key]

    def nearest(self, budget: int) -> int:
        """The rung of a budget, or the next one above."""
        return next((i for i, b in enumerate(self.budgets) if b >= budget), len(self.budgets) - 1)

    def after(self, rung: int, stage: int) -> tuple[int, ...]:
        """The anchors of a rung after a stage, which need not be one of its own: as far apart as
        the rung has them there.
        """
        if (rung, stage) not in self.routes:
            own = self.anchors[rung]
            place = float(np.interp(stage, [*own, self.steps], range(len(own) + 1)))
            count = max(0, round(len(own) - 1 - place))
            places = np.linspace(place, max(place, len(own) - 1), count + 1)[1:]
            found = np.interp(places, range(len(own)), own).round().astype(int).tolist()
            found = {n for n in (*found, *self.starts) if n > stage}
            self.routes[rung, stage] = tuple(sorted(found))
        return self.routes[rung, stage]

    def view(self, ahead: Ahead, stage: int) -> tuple[Array, Array, Array]:
        """(h^2q of the next cell, P, Q) of every rung, from an anchor on."""
        key = id(ahead), stage
        if key not in self.views:
            rows = [self.remaining(ahead, rung, stage) for rung in range(len(self.budgets))]
            lengths, P, Q = (np.array(column)[:, None] for column in zip(*rows))
            self.views[key] = lengths, P, Q
        return self.views[key]

    def remaining(self, ahead: Ahead, rung: int, stage: int) -> tuple[float, float, float]:
        stops = (stage, *self.after(rung, stage), self.steps)
        P, Q = ahead.last(stops[-2]), 0.0
        for k, end, after in zip(stops, stops[1:], stops[2:]):
            own = ahead.cell(k, end)
            P, Q = P + own[0] * ahead.length(end, after), Q + own[1]
        return ahead.length(stage, stops[1]), P, Q

    def calls(self, stage: int) -> Array:
        """How many queries every rung has after a stage."""
        return np.array([len(self.after(rung, stage)) for rung in range(len(self.budgets))])

    def continued(self, plan: Plan, seen: tuple[int, ...], rung: int) -> Plan:
        """The plan that has these anchors behind it, and those of a rung ahead."""
        anchors = (*seen, *self.after(rung, seen[-1]))
        rules = (*plan.rules, *[plan.rules[-1]] * len(anchors))[: len(anchors)]
        own = plan.aim is not None and plan.aim.usual
        correct = usual(len(anchors)) if own else plan.correct
        return replace(plan, anchors=anchors, rules=rules, correct=correct)


def budgets_between(least: int, most: int) -> list[int]:
    """Every budget up to a dozen, then in steps of an eighth.

    >>> budgets_between(4, 20)
    [4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 17, 19, 20]
    """
    found, b = [], float(least)
    while b < most:
        found.append(int(b))
        b = max(b + 1, b * FINER)
    return [*found, most]


def ladder_of(plan: Plan) -> Ladder:
    """That of a plan with an aim."""
    assert plan.aim is not None
    if plan.aim.rungs:
        return planned_ladder(plan.grid, tuple(anchors for anchors, _ in plan.aim.rungs))
    most = min(plan.steps, plan.aim.most or plan.steps)
    return known_ladder(plan.grid, MESHES[plan.aim.mesh], most)


@lru_cache(maxsize=64)
def known_ladder(grid: Grid, mesh: Mesh, most: int) -> Ladder:
    least = max(mesh.least, 1 + len(grid.regimes), LEAST)
    budgets = budgets_between(min(least, most), most)
    every = range(grid.steps)
    return Ladder(grid, [every if b >= grid.steps else mesh.place(grid, b)[0] for b in budgets])


@lru_cache(maxsize=64)
def planned_ladder(grid: Grid, anchors: tuple[tuple[int, ...], ...]) -> Ladder:
    return Ladder(grid, anchors)
