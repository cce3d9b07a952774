"""TACache (Liu et al., 2026): how v changes along itself and across, from full runs beforehand.

The change from stage n to n + 1 is split along v_n and across it,

    v_{n+1} − v_n = α_n·v_n + r_n,   r_n ⟂ v_n,   β_n = ‖r_n‖/‖v_n‖

Beforehand the means of α_n and β_n over samples are measured. A stage is skipped while both
Σ|α| and Σβ since the last full stage are within a threshold. At a skipped stage

    v̂_{n+1} = (1 + α_n)·v̂_n + gain·β_n·‖v̂_n‖·u

where u, the sample's own direction, is what the last change between two full stages had across the
newer one, at length 1.

Written from the abstract: their code is not published, and no formula was reachable. What is ours
is said below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geoshrink.checks import whole
from geoshrink.grid import Grid

from .base import Case, Method, Outcome, rows
from .output import OutputSession, Parts

Statistics = Sequence[Sequence[tuple[float, float]]]  # (α_n, β_n) by part and stage


@dataclass(eq=False)
class TACache(Method):
    """After guidance, each part of a structured x for itself; any prediction.

    statistics  (α, β) of every part and stage, from `calibrate`
    threshold   of Σβ, as a share of the sum over the whole run; None: the least that keeps the
                budget
    balance     the threshold of Σ|α|, in units of the other; the authors have two thresholds and
                do not say here how they are chosen
    gain        how much of β goes along u: 1 takes the change across v to have kept its direction;
                a half came nearer to full runs of `fruit` and `motion`
    warm_up     full stages at the start: u needs two
    tail        full stages at the end
    """

    name = "TACache"
    calibrated = True
    statistics: Statistics
    threshold: float | None = None
    balance: float = 1.0
    gain: float = 0.5
    warm_up: int = 2
    tail: int = 1

    def run(self, case: Case, budget: int) -> Outcome:
        grid = case.grid()
        if any(len(part) != grid.steps for part in self.statistics):
            raise ValueError(
                f"TACache has statistics of {len(self.statistics[0])} stages for a run of "
                f"{grid.steps}: calibrate it on that grid"
            )
        return Compensated(case, self.stages(grid, budget), self.statistics, self.gain).run()

    def stages(self, grid: Grid, budget: int) -> list[int]:
        if self.threshold is not None:
            return self.within(grid, self.threshold)
        low, high = 0.0, 2.0 * max(1.0, 1 / self.balance)
        least = self.within(grid, high)
        if len(least) > whole(budget, "budget"):
            raise ValueError(
                f"a budget of {budget} is less than the {len(least)} stages that TACache runs in "
                f"full here whatever its threshold: {self.warm_up} at the start, {self.tail} at "
                "the end and those where guidance switches"
            )
        for _ in range(50):
            middle = (low + high) / 2
            kept = len(self.within(grid, middle)) <= budget
            low, high = (low, middle) if kept else (middle, high)
        return self.within(grid, high)

    def within(self, grid: Grid, threshold: float) -> list[int]:
        """The full stages with this threshold."""
        along, across = (shares(self.statistics, i) for i in (0, 1))
        forced = {*range(self.warm_up), *grid.regimes, *range(grid.steps - self.tail, grid.steps)}
        stages, magnitude, direction = [0], 0.0, 0.0
        for n in range(1, grid.steps):
            magnitude, direction = magnitude + along[n - 1], direction + across[n - 1]
            if n in forced or magnitude > self.balance * threshold or direction > threshold:
                stages.append(n)
                magnitude = direction = 0.0
        return stages


def shares(statistics: Statistics, which: int) -> list[float]:
    """|α| or β of every stage, the mean over parts, as a share of the run's sum."""
    columns = [[abs(pair[which]) for pair in part] for part in statistics]
    means = [sum(column) / len(columns) for column in zip(*columns)]
    return [mean / (sum(means) or 1.0) for mean in means]


class Compensated(OutputSession):
    """v̂ = a·v + b·‖v‖·u with v and u of the last full stage: only a and b change while skipping."""

    def __init__(self, case: Case, stages: Sequence[int], statistics: Statistics, gain: float):
        super().__init__(case, stages)
        self.statistics, self.gain = statistics, gain

    def forget(self) -> None:
        self.last: Parts = []
        self.across: Parts = []  # ‖v‖·u

    def observe(self, x: Parts, output: Parts) -> None:
        before = self.last or output
        self.across = [across(new, new - old) for new, old in zip(output, before)]
        self.last = output
        self.weights = [(1.0, 0.0)] * len(output)
        self.keeps(self.last, self.across)

    def predict(self, x: Parts) -> Parts:
        pairs = zip(self.weights, self.statistics)
        self.weights = [self.onward(a, b, *part[self.stage - 1]) for (a, b), part in pairs]
        parts = zip(self.weights, self.last, self.across)
        return [a * v + b * u for (a, b), v, u in parts]

    def onward(self, a: float, b: float, alpha: float, beta: float) -> tuple[float, float]:
        return (1 + alpha) * a, (1 + alpha) * b + self.gain * beta * math.hypot(a, b)


def split(v: Tensor, change: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(α, r, ‖v‖) of every sample: change = α·v + r."""
    flat, moved = rows(v), rows(change)
    square = (flat * flat).sum(1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
    alpha = (flat * moved).sum(1, keepdim=True) / square
    return alpha, moved - alpha * flat, square.sqrt()


def across(v: Tensor, change: Tensor) -> Tensor:
    """What of a change is across v, at the length of v; zero where nothing is."""
    _, rest, norm = split(v, change)
    size = rest.norm(dim=1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
    return (rest / size * norm).view_as(v)


def calibrate(cases: Sequence[Case]) -> Statistics:
    """(α, β) of every part and stage, the mean over full runs of the cases."""
    runs = []
    for case in cases:
        session = Variation(case)
        session.run()
        runs.append(session.found())
    means = torch.tensor(runs, dtype=torch.float64).mean(0)
    return [[(float(a), float(b)) for a, b in part] for part in means]


class Variation(OutputSession):
    """A full run that notes α and β; 0 where guidance switches, and after the last stage."""

    def __init__(self, case: Case):
        super().__init__(case, range(case.grid().steps))
        self.pairs: list[list[tuple[float, float]]] = []  # by stage and part

    def forget(self) -> None:
        self.last: Parts = []

    def observe(self, x: Parts, output: Parts) -> None:
        if self.stage:
            before = self.last or output
            self.pairs.append([mean_split(old, new) for old, new in zip(before, output)])
        self.last = output

    def found(self) -> list[list[tuple[float, float]]]:
        return [[*part, (0.0, 0.0)] for part in zip(*self.pairs)]


def mean_split(old: Tensor, new: Tensor) -> tuple[float, float]:
    alpha, rest, norm = split(old, new - old)
    return float(alpha.mean()), float((rest.norm(dim=1, keepdim=True) / norm).mean())
