"""MeanCache (Gao et al., 2026): a skipped stage takes an estimate of the mean velocity over it.

    v̂_n = v_{n−1} − J·(σ_{n+1} − σ_n),  J = (v_m − (x_n − x_m)/(σ_n − σ_m))/(σ_n − σ_m),  m = n − K

J is what the displacement over the last K stages says about how v changes: for K = 1 it is zero
under Euler, and v is reused. v_{n−1} may be predicted itself, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch

from geoshrink.grid import Grid
from geoshrink.meshes import uniform_anchors
from geoshrink.meshes.path import cheapest_pairs
from geoshrink.outputs import flatten
from geoshrink.sampling import sample

from .base import Case, Method, Outcome
from .output import OutputSession, Parts


@dataclass(eq=False)
class MeanCache(Method):
    """After guidance, as its authors; the full stages end with the last.

    stages      the full ones; None: equally spaced, for the authors' schedule needs calibration
    orders      K of every cell between two full stages, or one for all

    The authors' kind of schedule, with K cell by cell, comes from MeanCache.fit.
    """

    name = "MeanCache"
    stages: Sequence[int] | None = None
    orders: int | Sequence[int] = 2

    def __post_init__(self) -> None:
        self.calibrated = self.stages is not None

    def run(self, case: Case, budget: int) -> Outcome:
        grid = flow(case.grid())
        stages = uniform_anchors(grid.steps, budget) if self.stages is None else tuple(self.stages)
        orders = [self.orders] * len(stages) if isinstance(self.orders, int) else [*self.orders]
        return Mean(case, dict(zip(stages, [*orders, 1]))).run()

    @classmethod
    def fit(cls, cases: Sequence[Case], budget: int, gamma: float = 4.0, most: int = 5):
        """The plan of least Σ cost^γ over the cells (large γ: no cell may be bad), from full runs.

        A cell's cost is how far x is off at its end when the cell is predicted from the exact past
        with the best K ≤ most, averaged over cases that are not compared. That is the error of the
        mean velocity times the cell's length; the authors' scripts bring ready plans and do not
        say how they weigh it. The weighing by length is our choice.
        """
        grid = flow(cases[0].grid())
        costs = torch.stack([cell_costs(case, most) for case in cases]).mean(0)
        best, orders = costs.min(0)
        stages = cheapest_path(best.pow(gamma).tolist(), budget, grid)
        return cls(stages, [int(orders[a, b]) + 1 for a, b in pairwise(stages)])


class Mean(OutputSession):
    """orders: full stage → K of the cell that it begins."""

    def __init__(self, case: Case, orders: dict[int, int]):
        super().__init__(case, orders)
        self.orders, self.order = orders, 1
        self.most = max(orders.values())

    def forget(self) -> None:
        self.past: list[tuple[int, Parts, Parts]] = []  # (stage, x, v), oldest first

    def decide(self, x: Parts) -> bool:
        self.order = self.orders.get(self.stage, self.order)
        return super().decide(x)

    def observe(self, x: Parts, output: Parts) -> None:
        self.past = [*self.past, (self.stage, x, output)][-self.most :]
        self.keeps(*((x, v) for _, x, v in self.past))

    def predict(self, x: Parts) -> Parts:
        m, then, first = self.past[-min(self.order, len(self.past))]
        sigmas = [self.track(i).sigmas for i in range(len(x))]
        output = [
            mean_velocity(s, m, self.stage, *parts)
            for s, *parts in zip(sigmas, then, first, x, self.past[-1][2])
        ]
        self.observe(x, output)
        return output


def mean_velocity(sigmas, m: int, n: int, x_m, v_m, x_n, v_last):
    span, ahead = sigmas[n] - sigmas[m], sigmas[n + 1] - sigmas[n]
    if not span:
        return v_last
    change = (v_m - (x_n - x_m) / span) / span
    return v_last - change * ahead


def flow(grid: Grid) -> Grid:
    if any(track.prediction != "flow" for track in grid.tracks):
        raise ValueError("MeanCache is for flow models: x moves along its output there only")
    return grid


def cell_costs(case: Case, most: int) -> torch.Tensor:
    """cost[K − 1, s, e]: mean |x̂_e − x_e| after stage s in full and those up to e skipped.

    Infinite where a cell would run over a switch of guidance.
    """
    grid, inner, seen = flow(case.grid()), case.velocity(), []

    def velocity(x: Any, sigma: Any) -> Any:
        v = inner(x, sigma)
        seen.append((len(seen), flatten(x)[0], flatten(v)[0]))
        return v

    sample(velocity, case.noise, grid)
    device = seen[0][1][0].device
    costs = torch.full((most, grid.steps, grid.steps), torch.inf, device=device)
    spans = [(s, first, last) for first, last in grid.spans() for s in range(first, last)]
    for k, (s, first, last) in product(range(1, most + 1), spans):
        cell = Mean(case, {s: k})
        cell.past, cell.order = seen[max(first, s + 1 - k) : s + 1], k
        _, x, v = seen[s]
        for e in range(s + 1, min(last + 1, grid.steps)):
            tracks = [cell.track(i) for i in range(len(x))]
            x = [part + t.euler(e - 1)[1] * d for t, part, d in zip(tracks, x, v)]
            off = [(a - b).abs().mean() for a, b in zip(x, seen[e][1])]
            costs[k - 1, s, e] = sum(off) if e > s + 1 else 0.0
            cell.stage = e
            v = cell.predict(x)
    return costs.cpu()


def cheapest_path(cost: list[list[float]], budget: int, grid: Grid) -> tuple[int, ...]:
    """Stages 0 … T − 1, `budget` of them, with the least sum of cost[s][e] over neighbours."""
    last = grid.steps - 1

    def costs(s: int) -> np.ndarray:
        """To every later stage, and to the end, which is free from the last alone."""
        return np.array([[*cost[s][s + 1 :], 0.0 if s == last else np.inf]])

    total, stages = cheapest_pairs(costs, grid.steps, min(budget, grid.steps))[-1]
    if not np.isfinite(total):
        raise ValueError(f"no schedule of {budget} stages reaches every switch of guidance")
    return stages
