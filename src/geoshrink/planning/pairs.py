"""The exact search on long grids, for rules that need the two latest anchors only: hold and linear.

ω does not depend on the sample there (0, or λ), so the mean Gram matrix is enough. With W the
weights of errors at all stages and Q_l the factor by which Euler carries x from stage s to l, the
stages s … l − 1 alone have the weights W_l − Q_l·W_s: every product follows from W·G and W·G·Wᵀ,
which are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .space import View

HOLD, LINEAR = "hold", "linear"
PAIR_RULES = (HOLD, LINEAR)


class Pairs:
    """What the cells of one slot cost that begin at an anchor k, by the anchor j before."""

    def __init__(self, view: View, price: Tensor):
        self.view, self.price = view, price
        self.G = view.products.mean(0)
        nodes = self.G[view.stages :] if view.parts else self.G
        self.W = view.weights
        self.WG = self.W @ nodes  # (l, row)
        inner = nodes[:, view.stages :] if view.parts else nodes
        self.WGW = self.W @ inner @ self.W.T
        self.times = torch.tensor(node_times(view), dtype=torch.float64)
        self.WT = self.W @ self.times
        self.sums = self.W.sum(1)
        self.sigmas = torch.tensor(view.track.sigmas, dtype=torch.float64)
        self.carried = carried(view)

    def costs(self, k: int, rule: str) -> Tensor:
        """(j, l) for l = k + 1 … L."""
        s = k if self.view.parts else k + 1
        ends = slice(k + 1, None)
        Q = self.carried(s)[k + 1 - s :]  # from s to each end
        past = max(k, 1)
        own = self.WG[ends] - Q[:, None] * self.WG[s]  # ⟨Σ W z_n, ·⟩
        total = self.sums[ends] - Q * self.sums[s]
        square = self.WGW.diagonal()[ends] - 2 * Q * self.WGW[ends, s] + Q * Q * self.WGW[s, s]
        G = self.G
        AA = (total**2 * G[k, k] - 2 * total * own[:, k] + square).clamp(min=0)
        if rule == HOLD or k == 0:
            return (AA * self.price[ends]).expand(past, -1)
        A = total[:, None] * G[k, :past] - own[:, :past]  # ⟨A_l, z_j⟩
        AD = (total * G[k, k] - own[:, k])[:, None] - A
        S = (G[k, k] + G.diagonal()[:past] - 2 * G[k, :past]).clamp(min=0)
        ahead = self.WT[ends] - Q * self.WT[s] - self.sigmas[k] * total  # Σ W·(t_n − σ_k)
        span = self.sigmas[k] - self.sigmas[:past]
        w = ahead[:, None] / torch.where(span == 0, torch.inf, span)
        return ((AA[:, None] + w * (2 * AD + w * S)) * self.price[ends, None]).T


def node_times(view: View) -> list[float]:
    """Where λ is taken: the stages, or the middles of their parts."""
    from ..refining import refined_track
    from .space import middles

    if not view.parts:
        return list(view.track.sigmas[:-1])
    return middles(refined_track(view.track, view.parts).sigmas)


def carried(view: View) -> Callable[[int], Tensor]:
    """s ↦ the factors by which an error of x at s arrives at s, s + 1 … L, in the view's space."""
    weights, parts = view.weights, max(1, view.parts)
    # x_{l+1} = p_l·x_l + …: p_l is how the weight of an earlier node changes from l to l + 1
    ratios = [1.0]
    for stage in range(1, view.stages):
        before = weights[stage, : stage * parts]
        place = int(before.abs().argmax())
        ratios.append(float(weights[stage + 1, place] / before[place]) if before[place] else 1.0)
    steps = torch.tensor(ratios, dtype=torch.float64)

    def factors(start: int) -> Tensor:
        return torch.cat([torch.ones(1, dtype=torch.float64), steps[start:].cumprod(0)])

    return factors


def cheapest_pairs(
    slots: Sequence[Pairs], stages: int, rules: Sequence[str], most: int
) -> list[tuple[float, tuple[int, ...]]]:
    """[(cost, anchors)] for 1 … most anchors, each cell with the cheaper of the rules. Exact."""
    reached = torch.full((most, stages, stages), torch.inf)  # (b − 1, k, j)
    back = torch.zeros((most, stages, stages), dtype=torch.int16)
    ended = torch.full((most,), torch.inf)
    last = torch.zeros((most, 2), dtype=torch.int64)
    reached[0, 0, 0] = 0.0
    for k in range(stages):
        past, deep = max(k, 1), min(most, k + 1)
        each = [torch.stack([s.costs(k, rule) for s in slots]).sum(0) for rule in rules]
        costs = torch.stack(each).amin(0).float()  # (j, l)
        total = reached[:deep, k, :past, None] + costs
        value, j = total.min(1)  # (b, l)
        better = value[:, -1] < ended[:deep]
        ended[:deep] = torch.where(better, value[:, -1], ended[:deep])
        ends = torch.stack([torch.full_like(j[:, -1], k), j[:, -1]], 1)
        last[:deep] = torch.where(better[:, None], ends, last[:deep])
        further = min(deep, most - 1)
        reached[1 : further + 1, k + 1 :, k] = value[:further, :-1]
        back[1 : further + 1, k + 1 :, k] = j[:further, :-1].to(torch.int16)
    found = []
    for b in range(most):
        k, j = last[b].tolist()
        anchors = [k]
        for layer in range(b, 0, -1):
            anchors.append(j)
            k, j = j, int(back[layer, k, j])
        found.append((float(ended[b]), tuple(reversed(anchors))))
    return found
