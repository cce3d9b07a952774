"""VDE (Tan et al., 2026): the output along x and across it, v = a·x + b·‖x‖·u with u ⟂ x, ‖u‖ = 1.

At a skipped stage a and b are extrapolated linearly in time from the last two full stages, u is
that of the last, and x is the current one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geoshrink.grid import Grid

from .base import Case, Method, Outcome, every, rows
from .output import OutputSession, Parts
from .switching import switching


@dataclass(eq=False)
class VDE(Method):
    """Before guidance, branch by branch and sample by sample, as in the authors' code.

    Full at the first `warm_up` stages, every interval-th after, and the last. The authors take 3, 4
    and 5 for the interval; None takes the shortest that the budget allows. Time is the σ of the
    stage (1/1000 of their timestep), τ off flow grids. Each part of a structured x has its own a, b
    and u; the authors have one part.
    """

    name = "VDE"
    interval: int | None = None
    warm_up: int = 7

    def run(self, case: Case, budget: int) -> Outcome:
        grid = switching(case)
        choices = [self.interval] if self.interval else range(1, grid.steps + 1)
        found = [full_stages(n, self.warm_up, grid) for n in choices]
        fitting = [s for s in found if self.interval or len(s) <= budget]
        if not fitting:
            raise ValueError(
                f"a budget of {budget} is less than the {len(found[-1])} full stages that VDE "
                f"with a warm-up of {self.warm_up} needs here"
            )
        return Decomposed(case, fitting[0]).run()


def full_stages(interval: int, warm_up: int, grid: Grid) -> list[int]:
    """The authors' stages, and those where guidance switches."""
    return sorted({*every(interval, grid.steps, warm_up), grid.steps - 1, *grid.regimes})


class Decomposed(OutputSession):
    guided = False

    def forget(self) -> None:
        # (stage, (a, b) of each part) of the last two full stages, and u of each part at the last
        self.anchors: list[tuple[int, list[tuple[Tensor, Tensor]]]] = []
        self.across: Parts = []

    def observe(self, x: Parts, output: Parts) -> None:
        split = [decompose(part, v) for part, v in zip(x, output)]
        self.anchors = [*self.anchors[-1:], (self.stage, [(a, b) for a, b, _ in split])]
        self.across = [u for _, _, u in split]
        self.keeps(self.across, *(pairs for _, pairs in self.anchors))

    def predict(self, x: Parts) -> Parts:
        return [self.part(i, part) for i, part in enumerate(x)]

    def part(self, i: int, x: Tensor) -> Tensor:
        (j, before), (k, last) = self.anchors[0], self.anchors[-1]
        times, (a, b) = self.track(i).tau, last[i]
        if times[j] != times[k]:
            ahead = (times[self.stage] - times[k]) / (times[k] - times[j])
            a, b = a + ahead * (a - before[i][0]), b + ahead * (b - before[i][1])
        flat = rows(x)
        norm = flat.norm(dim=1, keepdim=True)
        return (a * flat + b * norm * rows(self.across[i])).view_as(x)


def decompose(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(a, b, u) of every sample."""
    flat, out = rows(x), rows(v)
    square = (flat * flat).sum(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    a = (flat * out).sum(1, keepdim=True) / square
    rest = out - a * flat
    size = rest.norm(dim=1, keepdim=True)
    u = rest / size.clamp_min(torch.finfo(x.dtype).tiny)
    return a, size / square.sqrt(), u.view_as(v)
