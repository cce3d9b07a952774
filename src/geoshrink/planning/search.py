"""The cheapest anchors: a shortest path over states (i, j, k), the three latest anchors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor


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
    """How many anchors each regime gets, given the cost of each number of them: the cheapest."""
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
