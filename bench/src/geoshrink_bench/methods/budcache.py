"""BudCache (Lei et al., ICML 2026): the full stages are searched for a budget, beforehand.

Written from the authors' code (Westlake-AGI-Lab/BudCache, the search for FLUX). At a skipped stage
the blocks add what they added at the last full one; nothing is measured while sampling. The search
tries whole schedules on the model: simulated annealing, then hill climbing to the best neighbour.
Their second, optional step trains another σ-grid for the schedule; the grid is fixed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar

from geoshrink.grid import Grid
from geoshrink.outputs import flatten

from .base import Case, Method, Outcome
from .caching import StackSession
from .stack import Streams
from .taylorseer import Series, TaylorSeer

Stages = tuple[int, ...]
Made = TypeVar("Made", bound=Method)
HOT, COLD = 0.05, 1e-5  # the temperatures of the annealing, in squared errors relative to x²
NEAR = 3  # stages over which a full stage moves, when it moves a little


@dataclass(eq=False)
class BudCache(Method):
    """stages    the full ones, from `fit`
    order     0: the residual of the last full stage, as the authors; 1: the line through two
    """

    name = "BudCache"
    calibrated = True
    stages: Sequence[int]
    order: int = 0

    def run(self, case: Case, budget: int) -> Outcome:
        return Extrapolated(case, self.stages, self.order).run()

    @classmethod
    def fit(
        cls,
        cases: Sequence[Case],
        budget: int,
        order: int | None = None,
        prefix: int | None = None,
        heats: int = 200,
        climbs: int = 20,
        seed: int = 0,
    ) -> BudCache:
        """The schedule whose samples are nearest to the full runs of these cases.

        order       None: 0 and 1 are both searched, and the better is kept
        prefix      so many first stages are full; None: a quarter of the budget, as the authors
        heats       schedules that the annealing tries
        climbs      steps of the hill climbing, at most

        Their one prompt is all the cases here. Their temperatures are for FLUX's latents, whose
        mean square is about 1: the squared error is relative to that of x. The climb begins at the
        best schedule seen (their code for Wan), not at the last (that for FLUX).
        """
        orders = (0, 1) if order is None else (order,)
        makes = [partial(cls, order=each) for each in orders]
        return best_of(makes, cases, budget, prefix, heats, climbs, seed)


def best_of(
    makes: Iterable[Callable[[Stages], Made]],
    cases: Sequence[Case],
    budget: int,
    prefix: int | None,
    heats: int,
    climbs: int,
    seed: int,
    grid: Grid | None = None,
) -> Made:
    """Of the best schedules for each of these ways to make a method of one, the best."""
    grid = grid or cases[0].grid()
    first = max(1, budget // 4) if prefix is None else prefix
    fixed = frozenset({*range(min(first, grid.steps)), *grid.regimes})
    if budget < len(fixed):
        raise ValueError(
            f"a budget of {budget} is less than the {len(fixed)} stages that BudCache always "
            f"runs here: the first {first}, and where guidance switches"
        )
    found: list[tuple[float, Made]] = []
    for make in makes:

        def loss(stages: Stages, make: Callable[[Stages], Made] = make) -> float:
            return off(make(stages), cases, budget)

        stages, error = Search(grid.steps, budget, fixed, loss, Random(seed)).run(heats, climbs)
        found.append((error, make(stages)))
    return min(found, key=lambda pair: pair[0])[1]


def off(method: Method, cases: Sequence[Case], budget: int) -> float:
    """Σ (x − full)² / Σ full², the mean over parts and cases; infinite where x is no number."""
    fulls = [flatten(case.full)[0] for case in cases]
    runs = [flatten(method.run(case, budget).x)[0] for case in cases]
    pairs = [pair for x, full in zip(runs, fulls) for pair in zip(x, full)]
    error = sum(float((x - full).square().sum() / full.square().sum()) for x, full in pairs)
    return math.inf if math.isnan(error) else error / len(pairs)


@dataclass
class Search:
    """The sets of `budget` stages with the fixed ones among them, and how one is changed."""

    steps: int
    budget: int
    fixed: frozenset[int]
    loss: Callable[[Stages], float]
    random: Random
    known: dict[Stages, float] = field(default_factory=dict)

    def run(self, heats: int, climbs: int) -> tuple[Stages, float]:
        """The best schedule that was tried, and its loss."""
        now = self.any_stages()
        if self.movable(now) and self.free(now):
            self.anneal(now, heats)
            self.climb(climbs)
        else:
            self.cost(now)
        return min(self.known.items(), key=lambda pair: pair[1])

    def anneal(self, now: Stages, heats: int) -> None:
        """A worse neighbour is taken with probability e^(−worse/temperature)."""
        self.cost(now)
        for heat in range(heats):
            temperature = HOT * (COLD / HOT) ** (heat / heats)
            other = self.moved(now)
            worse = self.cost(other) - self.cost(now)
            if worse < 0 or self.random.random() < math.exp(-worse / temperature):
                now = other

    def climb(self, climbs: int) -> None:
        for _ in range(climbs):
            before = min(self.known.values())
            now = min(self.known, key=self.cost)
            for other in self.neighbours(now):
                self.cost(other)
            if not min(self.known.values()) < before:
                return

    def cost(self, stages: Stages) -> float:
        if stages not in self.known:
            self.known[stages] = self.loss(stages)
        return self.known[stages]

    def any_stages(self) -> Stages:
        others = [n for n in range(self.steps) if n not in self.fixed]
        count = min(self.budget - len(self.fixed), len(others))
        return tuple(sorted({*self.fixed, *self.random.sample(others, count)}))

    def movable(self, stages: Stages) -> list[int]:
        return [n for n in stages if n not in self.fixed]

    def free(self, stages: Stages) -> list[int]:
        return [n for n in range(self.steps) if n not in stages]

    def moved(self, stages: Stages) -> Stages:
        """One full stage elsewhere, mostly near; now and then two."""
        movable, free = self.movable(stages), self.free(stages)
        if self.random.random() >= 0.9 and min(len(movable), len(free)) > 1:
            return swapped(stages, self.random.sample(movable, 2), self.random.sample(free, 2))
        one = self.random.choice(movable)
        near = [n for n in free if abs(n - one) <= NEAR]
        return swapped(
            stages,
            [one],
            [self.random.choice(near if near and self.random.random() < 0.7 else free)],
        )

    def neighbours(self, stages: Stages) -> Iterator[Stages]:
        """Every full stage at all places near it, and at two anywhere."""
        free = self.free(stages)
        for one in self.movable(stages):
            near = [n for n in free if abs(n - one) <= NEAR]
            for place in (*near, self.random.choice(free), self.random.choice(free)):
                yield swapped(stages, [one], [place])


def swapped(stages: Stages, out: Iterable[int], into: Iterable[int]) -> Stages:
    return tuple(sorted({*stages} - {*out} | {*into}))


class Extrapolated(StackSession):
    """What the blocks add, or with `feature` what comes out of them, is a Taylor sum in stages.

    Order 0 is what it was at the last full stage. A regime begins anew.

    first    the stage from which on differences are taken
    """

    feature = False

    def __init__(self, case: Case, stages: Iterable[int], order: int, first: int = 0):
        super().__init__(case, stages)
        self.order, self.first = order, first
        self.regimes = frozenset(case.grid().regimes)
        self.series: list[Series] = []  # one for each stream

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        if self.feature:
            self.begin = tuple(s.new_zeros(()) for s in streams)  # out − 0
        return super().decide(streams, args, kwargs)

    def observe(self, residual: Streams) -> None:
        if not self.series or self.stage in self.regimes:
            weight = TaylorSeer().weight
            self.series = [Series(self.order, self.first, weight) for _ in residual]
        for series, part in zip(self.series, residual):
            series.add(self.stage, part)
        self.keeps(*(series.terms for series in self.series))

    def predict(self) -> Streams:
        return tuple(series.at(self.stage) for series in self.series)


def checked_order(order: Any, most: int, name: str) -> int:
    if order not in range(most + 1):
        raise ValueError(f"{name} has order 0 to {most}, got {order!r}")
    return int(order)
