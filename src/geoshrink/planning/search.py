"""The cheapest anchors of a regime: a shortest path over the latest anchors, in one space."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..meshes.path import cheapest_pairs
from .cells import PAIR_RULES, Cells, Pairs
from .space import View

EXACT = 100  # stages of a regime up to which every set of anchors is searched
COARSE = 48  # stages of a longer regime that are searched first: the most anchors it can have
NEAR = 12  # allowed stages that a cell may span in the finer searches


class Found(NamedTuple):
    """The cheapest anchors of a recipe, a rule for each, and Σ a²·E‖e‖² over the energy."""

    cost: float
    anchors: tuple[int, ...]
    rules: tuple[str, ...]


class Regime:
    """The stages of one regime, in one space: what the cells cost, and the cheapest anchors.

    Up to EXACT stages every set of anchors is searched. Above that this is done only for rules that
    need just the two latest anchors. For other rules a coarse choice of stages is searched first,
    then the neighbourhood of the anchors found, in ever smaller steps.

    paired   whether costs from two anchors are known for the solver
    share    of corrected cells (cells.py); None: cells are not corrected
    """

    def __init__(
        self,
        views: Sequence[View],
        importance: Sequence[Tensor],
        paired: bool = True,
        share: float | None = None,
    ):
        self.views, self.importance, self.share = views, importance, share
        self.paired = paired and share is None
        self.stages = views[0].stages
        self.exact = short(self.stages)
        self.tables: dict[str, list[Tensor]] = {}
        self.allowed = range(self.stages) if self.exact else coarse(self.stages)

    def cells(self, allowed: Sequence[int], place: int, near: int | None = None) -> Cells:
        return Cells(self.views, self.importance, allowed, place, near, self.share)

    def costs(
        self, rules: Sequence[str], allowed: Sequence[int], near: int | None = None
    ) -> dict[str, list[Tensor]]:
        """For every rule and anchor, (i, j, l); cells wider than `near` are out of reach."""
        tables: dict[str, list[Tensor]] = {rule: [] for rule in rules}
        for k in range(len(allowed)):
            cells = self.cells(allowed, k, near)
            for rule in rules:
                some = cells.costs(rule).float()
                (past, _, ends), most = some.shape, max(k, 1)
                every = some.new_full((most, most, len(allowed) - k), torch.inf)
                every[most - past :, most - past :, :ends] = some
                tables[rule].append(every)
        return tables

    def exact_for(self, rules: Sequence[str]) -> bool:
        return self.exact or (self.paired and all(rule in PAIR_RULES for rule in rules))

    def search(self, rules: Sequence[str], budget: int | None = None) -> list[Found]:
        """The cheapest 1, 2, … anchors; on long grids no more than the budget."""
        if not self.exact and self.exact_for(rules) and len(rules) == 1:
            slots = [Pairs(view, price) for view, price in zip(self.views, self.importance)]
            found = cheapest_pairs(
                lambda k: torch.stack([s.costs(k, *rules) for s in slots]).sum(0).float().numpy(),
                self.stages,
                min(budget or COARSE, self.stages),
            )
            return [Found(cost, anchors, (*rules,) * len(anchors)) for cost, anchors in found]
        missing = [rule for rule in rules if rule not in self.tables]
        if missing:
            self.tables |= self.costs(missing, self.allowed)
        return found_among(self.allowed, {rule: self.tables[rule] for rule in rules})

    def refined(self, rules: Sequence[str], found: Found) -> Found:
        step = 0 if self.exact_for(rules) else self.stages // COARSE
        count = len(found.anchors)
        while step:
            near = {a + d for a in found.anchors[1:] for d in (-step, 0, step)}
            allowed = [0, *sorted(a for a in near if 0 < a < self.stages)]
            tables = self.costs(rules, allowed, NEAR)
            found = min(found, found_among(allowed, tables, count)[count - 1])
            step //= 2
        return found


def short(stages: int) -> bool:
    """Whether every set of anchors is searched in a regime of this length."""
    return stages <= EXACT


def most_anchors(stages: int) -> int:
    """The most anchors a regime of this length can have."""
    return stages if short(stages) else len(coarse(stages))


def coarse(stages: int) -> list[int]:
    """The stages of a coarse search: half of them evenly spaced, half denser early."""
    even = np.linspace(0, stages - 1, COARSE // 2)
    early = np.geomspace(1, stages - 1, COARSE // 2)
    return sorted({0, *np.rint([*even, *early]).astype(int).tolist()})


def found_among(
    allowed: Sequence[int], tables: dict[str, list[Tensor]], most: int | None = None
) -> list[Found]:
    """The cheapest anchors among the allowed stages, each cell with the cheapest of the rules."""
    rules = list(tables)
    least = [torch.stack(list(costs)).amin(0) for costs in zip(*tables.values())]
    found = []
    for cost, places in cheapest(least, most or len(allowed)):
        ends, chosen = (*places, len(allowed)), []
        for n, k in enumerate(places):
            cell = places[max(n - 2, 0)], places[max(n - 1, 0)], ends[n + 1] - k - 1
            chosen.append(min(rules, key=lambda rule: float(tables[rule][k][cell])))
        found.append(Found(cost, tuple(allowed[k] for k in places), tuple(chosen)))
    return found


def cheapest(costs: Sequence[Tensor], most: int) -> list[tuple[float, tuple[int, ...]]]:
    """[(cost, anchors)] for 1 … most anchors among stages 0 … L − 1, the first of them 0.

    costs[k] is (i, j, l): the cell from anchor k to the next, l = k + 1 … L, where L is the end and
    i ≤ j < k are the anchors before. Exact: every set of anchors is covered.
    """
    L = len(costs)
    reached = torch.full((L, L, L), torch.inf, dtype=torch.float64)  # (k, i, j)
    reached[0, 0, 0] = 0.0
    found, back = [], []
    for b in range(1, most + 1):
        ended = torch.full((L, L, L), torch.inf, dtype=torch.float64)
        following = torch.full((L, L, L), torch.inf, dtype=torch.float64)
        before = torch.zeros((L, L, L), dtype=torch.int16)
        for k in range(L):
            past = max(k, 1)
            total = reached[k, :past, :past, None] + costs[k]
            ended[k, :past, :past] = total[:, :, -1]
            value, i = total.min(0)
            following[k + 1 :, :past, k] = value[:, :-1].T
            before[k + 1 :, :past, k] = i[:, :-1].T.to(torch.int16)
        found.append(trace(ended, back, b))
        back.append(before)
        reached = following
    return found


def trace(ended: Tensor, back: list[Tensor], b: int) -> tuple[float, tuple[int, ...]]:
    L = len(ended)
    place = int(ended.argmin())
    k, i, j = place // (L * L), place // L % L, place % L
    anchors = [k]
    for layer in reversed(back):
        anchors.append(j)
        k, i, j = j, int(layer[k, i, j]), i
    return float(ended.min()), tuple(reversed(anchors))


def shared(parts: Sequence[Sequence[float]], budget: int) -> tuple[int, ...]:
    """The cheapest shares of a budget, given what each number of anchors costs each regime."""
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for part in parts:
        following: dict[int, tuple[float, tuple[int, ...]]] = {}
        for used, (total, shares) in best.items():
            for b, cost in zip(count(1), part):
                new = total + cost, (*shares, b)
                if used + b <= budget and new < following.get(used + b, (float("inf"), ())):
                    following[used + b] = new
        best = following
    if budget not in best:
        raise ValueError(
            f"budget {budget} is out of reach: a plan of this grid has {min(best)} to {max(best)} "
            "anchors"
        )
    return best[budget][1]
