"""L2P-Cache (Shen et al., CVPR 2026): a skipped stage takes a learnt sum of earlier outputs.

    v̂_n = Σ_j W_nj·v_j  over the earlier stages j, the predicted among them

Written from the authors' code (Aredstone/L2P-Cache, for FLUX). W is learnt from full runs, each
row from true outputs: 201 steps of Adam at 0.01 on the squared error, from W_n,n−1 = 1 (reuse).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from geoshrink.grid import Grid
from geoshrink.outputs import flatten

from .base import Case, Method, Outcome, every, interval_for
from .output import OutputSession, Parts
from .spectrum import alpha_for, growing
from .tuning import WARM_UPS, distance

#: The authors' full stages of 50, tuned by hand, by their number.
THEIRS = {
    len(stages): stages
    for stages in (
        (0, 1, 2, 4, 16, 32),
        (0, 1, 2, 4, 12, 24, 38),
        (0, 1, 2, 4, 10, 20, 31, 41),
        (0, 1, 2, 4, 9, 17, 26, 35, 43),
        (0, 1, 2, 4, 7, 14, 23, 31, 38, 45),
        (0, 1, 2, 4, 6, 9, 14, 23, 30, 37, 44),
    )
}
EPOCHS, RATE = 201, 0.01
RIDGE = 1e-4  # of the mean square of the outputs
WAYS = ("learnt", "solved")


@dataclass(eq=False)
class L2P(Method):
    """After guidance: with weights that both branches share, a sum before it is the same.

    stages      the full ones
    weights     for each part of the output, W over all stages (T × T)
    """

    name = "L2P-Cache"
    calibrated = True
    stages: Sequence[int]
    weights: Sequence[Tensor]

    def run(self, case: Case, budget: int) -> Outcome:
        return Learnt(case, self.stages, self.weights).run()

    @classmethod
    def fit(
        cls,
        cases: Sequence[Case],
        budget: int,
        stages: Sequence[int] | None = None,
        way: str | None = None,
    ) -> L2P:
        """With the stages and weights whose samples are nearest to the full runs of these cases.

        stages   the full ones; None: the authors' where they have some for the budget, stretched to
                 the grid, or evenly spaced or growing gaps after a warm-up
        way      "learnt", as the authors, or "solved": each row by least squares from the full
                 stages alone, for the stages at hand; None: the better
        """
        if way is not None and way not in WAYS:
            raise ValueError(f"L2P's weights are {' or '.join(WAYS)}, got {way!r}")
        grid, grams = cases[0].grid(), gram_matrices(cases)
        plans = [tuple(stages)] if stages is not None else list(schedules(budget, grid))
        learnt = [learn(gram, grid) for gram in grams] if way != "solved" else []
        found: list[tuple[float, L2P]] = []
        for plan, how in product(plans, WAYS if way is None else (way,)):
            weights = learnt if how == "learnt" else [solve(gram, plan, grid) for gram in grams]
            method = cls(plan, weights)
            off = sum(distance(method.run(case, budget).x, case.full) for case in cases)
            found.append((off, method))
        return min(found, key=lambda pair: pair[0])[1]


class Learnt(OutputSession):
    def __init__(self, case: Case, stages: Sequence[int], weights: Sequence[Tensor]):
        super().__init__(case, stages)
        full = self.stages | self.regimes | {0}
        self.weights = [unrolled(each, full) for each in weights]

    def forget(self) -> None:
        self.past: dict[int, Parts] = {}  # of the full stages

    def observe(self, x: Parts, output: Parts) -> None:
        self.past[self.stage] = output
        self.keeps(*self.past.values())

    def predict(self, x: Parts) -> Parts:
        return [self.part(i, self.weights[i][self.stage]) for i in range(len(x))]

    def part(self, i: int, row: list[float]) -> Tensor:
        first, *rest = ((row[j], parts[i]) for j, parts in self.past.items())
        total = first[0] * first[1]
        for weight, part in rest:
            total = total + weight * part
        return total


def unrolled(weights: Tensor, full: frozenset[int]) -> list[list[float]]:
    """Row n in terms of the full stages alone: a predicted output is a sum of them itself."""
    rows = torch.eye(len(weights), dtype=torch.float64)
    for n in range(len(weights)):
        if n not in full:
            rows[n] = weights[n, :n].double() @ rows[:n]
    return rows.tolist()


def gram_matrices(cases: Sequence[Case]) -> list[Tensor]:
    """For each part the mean of v_i·v_j over the entries of full runs, (T × T)."""
    total: list[Tensor] = []
    for case in cases:
        parts = outputs_of(case)
        grams = [(v @ v.T).double().cpu() / v.shape[1] / len(cases) for v in parts]
        total = [a + b for a, b in zip(total, grams)] if total else grams
    return total


def outputs_of(case: Case) -> list[Tensor]:
    """The outputs of a full run: for each part, a row for every stage."""
    seen: list[Parts] = []
    inner = case.velocity()

    def velocity(x: Any, sigma: Any) -> Any:
        output = inner(x, sigma)
        seen.append([part.flatten().float() for part in flatten(output)[0]])
        return output

    case.solve(velocity)
    return [torch.stack(part) for part in zip(*seen, strict=True)]


def learn(gram: Tensor, grid: Grid) -> Tensor:
    """The authors' training, where the squared error is w·G·w − 2·w·g + const."""
    steps = len(gram)
    mask = torch.zeros(steps, steps, dtype=gram.dtype)
    for first, last in grid.spans():
        mask[first:last, first:last] = torch.ones(last - first, last - first).tril(-1)
    weights = (torch.eye(steps, dtype=gram.dtype).roll(-1, 1) * mask).requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=RATE)
    for _ in range(EPOCHS):
        weights.grad = 2 / steps * (weights.detach() * mask @ gram - gram) * mask
        optimizer.step()
    return weights.detach()


def solve(gram: Tensor, stages: Sequence[int], grid: Grid) -> Tensor:
    """Each row by ridge regression on the full stages before it, within its regime."""
    weights = torch.zeros_like(gram)
    for first, last in grid.spans():
        for n in range(first + 1, last):
            past = sorted({first, *(j for j in stages if first <= j < n)})
            inner = gram[past][:, past]
            ridge = RIDGE * inner.diagonal().mean() * torch.eye(len(past), dtype=gram.dtype)
            weights[n, past] = torch.linalg.solve(inner + ridge, gram[past, n])
    return weights


def schedules(budget: int, grid: Grid) -> Iterator[tuple[int, ...]]:
    """Those that are tried: at most `budget` stages, with the switches of guidance in them."""
    room = budget - len(grid.regimes)
    found: list[list[int]] = []
    for warm_up in WARM_UPS:
        if room >= min(grid.steps, warm_up + (grid.steps > warm_up)):
            found.append(every(interval_for(room, grid.steps, warm_up), grid.steps, warm_up))
    if room > 5:
        found.append(growing(alpha_for(room, grid.steps), grid.steps))
    if room in THEIRS:
        found.append(stretched(THEIRS[room], grid.steps))
    if not found:
        raise ValueError(
            f"a budget of {budget} leaves no stage beside the first and the "
            f"{len(grid.regimes)} where guidance switches"
        )
    for stages in found:
        yield tuple(sorted({*stages, *grid.regimes}))


def stretched(stages: Sequence[int], steps: int) -> list[int]:
    """Stages of 50 on a grid of `steps`, each after the one before.

    >>> stretched((0, 1, 2, 4, 16, 32), 25)
    [0, 1, 2, 3, 8, 16]
    """
    found: list[int] = []
    for n in stages:
        found.append(max(round(n * steps / 50), found[-1] + 1 if found else 0))
    return [n for n in found if n < steps]
