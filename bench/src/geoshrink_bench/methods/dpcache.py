"""DPCache (Cui et al., CVPR 2026): the full stages are a cheapest path through measured errors.

    h_n = the streams after the last block;  ĥ_n(i, j) = the Taylor sum of order 2 from full stages
    up to i and j, i before j;  C[i, j, k] = Σ mean|ĥ_n(i, j) − h_n|  over n = j + 1 … k

C is the mean over full runs. The path 0 … T of K full stages with the least Σ C[i, j, k] over three
neighbours is found by dynamic programming. Written from a fork of the authors' code
(EmanuelSilva69/DPCACHEamd; their own repository was empty) and from others' notes on the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
import torch
from torch import Tensor

from geoshrink.grid import Grid
from geoshrink.meshes.path import cheapest_pairs

from .base import Case, Method, Outcome
from .budcache import Extrapolated
from .once import once
from .stack import Streams

ENTRIES = 1 << 16  # of a feature that errors are measured on
SMOOTH = 0.8  # how much of the feature after the last is extrapolated; the rest is a mean


@dataclass(eq=False)
class DPCache(Method):
    """stages     the full ones, from `fit`
    order      of the Taylor sum, whose differences begin with the last stage but one of the warm-up
    warm_up    the first stages that are full
    """

    name = "DPCache"
    calibrated = True
    stages: Sequence[int]
    order: int = 2
    warm_up: int = 3

    def run(self, case: Case, budget: int) -> Outcome:
        return LastFeature(case, self.stages, self.order, self.warm_up - 1).run()

    @classmethod
    def fit(cls, cases: Sequence[Case], budget: int, order: int = 2, warm_up: int = 3) -> DPCache:
        """The cheapest stages for these cases.

        The authors' table keeps one stage before each, and no gap is over 0.3·T; here all pairs are
        searched, so that the cost is never higher. Errors are measured on at most ENTRIES entries
        of the tokens' features, spread over all of them; the authors find one sample to be enough.
        """
        grid = cases[0].grid()
        costs = sum(costs_of(case, order) for case in cases)
        assert isinstance(costs, np.ndarray)
        return cls(cheapest(costs, budget, warm_up, grid), order, warm_up)


class LastFeature(Extrapolated):
    feature = True


class Features(LastFeature):
    """A full run that notes some entries of the tokens' feature at every stage."""

    def __init__(self, case: Case):
        super().__init__(case, range(case.grid().steps), 0)
        self.seen: list[Tensor] = []

    def observe(self, residual: Streams) -> None:
        tokens = residual[0].flatten().float()
        stride = len(tokens) // ENTRIES | 1  # odd: widths are even, and all features are to be met
        self.seen.append(tokens[::stride].clone())


def features_of(case: Case) -> list[Tensor]:
    session = Features(case)
    session.run()
    return session.seen


def costs_of(case: Case, order: int) -> np.ndarray:
    """They depend on neither the budget nor the warm-up."""

    def find() -> np.ndarray:
        features = once(case, Features, lambda: features_of(case))
        return path_costs(features, order, case.grid())

    return once(case, (path_costs, order), find)


def path_costs(features: Sequence[Tensor], order: int, grid: Grid) -> np.ndarray:
    """C[i, j, k] for i < j < k ≤ T; at j = 0, i = 0. Infinite over a switch of guidance.

    Where a regime begins, i is any stage: there is nothing before. Between i and j the gap counts,
    before i the stages are taken as neighbours. After the last stage stands what the authors put
    there: the features extrapolated, mixed with their mean.
    """
    steps = len(features)
    costs = np.full((steps, steps, steps + 1), np.inf)
    for first, last in grid.spans():
        known = [*features[first:last]]
        if last == steps:
            known.append(beyond(known, order))
        values = torch.stack(known)
        for j in range(first, last):
            before = [*range(first, j)] if j > first else [None]
            pasts = [
                [] if i is None else [*range(max(first, i - order + 1), i + 1)] for i in before
            ]
            cells = [cell_errors(values, [n - first for n in (*past, j)], order) for past in pasts]
            for i, errors in zip(before, torch.stack(cells).double().cpu().numpy()):
                ends = slice(j + 1, j + 1 + len(errors))
                costs[slice(None) if i is None else i, j, ends] = errors.cumsum()
                if last < steps:  # the regime ends where the next begins
                    costs[slice(None) if i is None else i, j, last] = errors.sum()
    return costs


def cell_errors(features: Tensor, past: Sequence[int], order: int) -> Tensor:
    """mean|ĥ_n − h_n| at every n after the last of the past; a row of features each."""
    terms = differences([features[n] for n in past], past, order)
    after = torch.arange(1, len(features) - past[-1], device=features.device)
    ahead = taylor(terms, after[:, None].to(features.dtype))
    return (ahead - features[past[-1] + 1 :]).abs().mean(1)


def differences(values: Sequence[Tensor], stages: Sequence[int], order: int) -> list[Tensor]:
    """D_0 … D_order at the last stage; each divides by the last gap, as TaylorSeer's."""
    terms: list[Tensor] = []
    before = -1
    for n, value in zip(stages, values):
        fresh = [value]
        for term in terms[:order]:
            fresh.append((fresh[-1] - term) / (n - before))
        terms, before = fresh, n
    return terms


def taylor(terms: Sequence[Tensor], k: int | Tensor) -> Tensor:
    total = terms[0]
    for j, term in enumerate(terms[1:], 1):
        total = total + k**j / factorial(j) * term
    return total


def beyond(features: Sequence[Tensor], order: int) -> Tensor:
    """What stands for the feature after the last stage."""
    tail = features[-order - 1 :]
    ahead = taylor(differences(tail, range(len(tail)), order), 1)
    return SMOOTH * ahead + (1 - SMOOTH) * torch.stack([*tail]).mean(0)


def cheapest(costs: np.ndarray, budget: int, warm_up: int, grid: Grid) -> tuple[int, ...]:
    """The `budget` stages of the least cost, those of the warm-up and every regime's first in them.

    Exact over all of them.
    """
    steps = grid.steps
    forced = {*range(min(warm_up, steps)), *grid.regimes}
    allowed = costs.copy()
    for stage in forced:
        allowed[:, :stage, stage + 1 :] = np.inf
    count = min(budget, steps)
    rows = cheapest_pairs(lambda k: allowed[: max(k, 1), k, k + 1 :], steps, count)
    total, stages = rows[-1]
    if not np.isfinite(total):
        raise ValueError(
            f"no {budget} stages hold the {len(forced)} that DPCache always runs here: "
            f"{warm_up} of warm-up, and where guidance switches"
        )
    return stages
