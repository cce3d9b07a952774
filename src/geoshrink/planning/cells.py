"""What a cell costs: ‖e‖² of the state at its end, for every choice of anchors.

A cell is the stages skipped after anchor k, up to l. With j and i the anchors before,

    e = Σ_{k<n<l} c_n·(z_k + ω_n·Δ − z_n) = A + w·Δ,   Δ = z_k − z_j,   w = Σ c_n·ω_n

A does not depend on the rule, and ω_n depends on (i, j, k) only, so every product of A and Δ is a
sum over the Gram matrix. A regime's first anchor counts as held (i = j = k), and its second as one
with Δ⁻ = 0 (i = j), though a run keeps a part of the line before (history/cell.py). If the target
is the exact flow, n runs over the middles of the stages k … l − 1 instead.

A corrected cell (correction.py) is interpolated between its anchors instead, and leaves

    ẽ = Σ_{k<n<l} c_n·(z_k + s_n·(z_l − z_k) − z_n) = A + a·(z_l − z_k),   a = Σ c_n·s_n

The output at l was evaluated where the prediction ended, so a share r of e stays: ‖ẽ‖² + r²·‖e‖².
The last cell of a regime has no anchor behind it and costs ‖e‖².
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..rules import Rule
from ..rules.retention import Statistics, retention
from .space import View

CALIBRATED = "calibrated"  # the paper's conditional optimum: one ω per stage, from the profile
HOLD, LINEAR = PAIR_RULES = "hold", "linear"
NUMBERS = 10_000_000  # in one array


class Cells:
    """The cells of one regime that begin at one anchor, in one space.

    views        one per slot
    importance   per slot, for every stage l: the price of ‖e‖² at l, a(σ_l)² over the slot's energy
    allowed      the stages that may be anchors, 0 first; k is the position of the anchor in it
    near         how many of them before and after the anchor are searched; default: all
    share        r of corrected cells; None: cells are not corrected
    """

    def __init__(
        self,
        views: Sequence[View],
        importance: Sequence[Tensor],
        allowed: Sequence[int],
        k: int,
        near: int | None = None,
        share: float | None = None,
    ) -> None:
        self.share = share
        self.slots = [Products(view, allowed, k, near) for view in views]
        self.prices = [a[slot.ends] for a, slot in zip(importance, self.slots)]
        self.energies = [a[-1] for a in importance]

    def costs(self, rule: str) -> Tensor:
        """(i, j, l): the mean cost of the cell that ends at the next anchor l, or at the end."""
        fixed = self.calibrated()[:, None, None] if rule == CALIBRATED else None
        terms = []
        for slot, price in zip(self.slots, self.prices):
            for some in slot.chunks():
                stats = Statistics(*(t[some] for t in slot.statistics))
                kept = retention(Rule.of(rule), stats, *slot.reach) if fixed is None else fixed
                w = torch.tensordot(slot.weights, kept, 1)  # (l, sample, i, j)
                error = w * (2 * slot.AD[:, some] + w * slot.S[some])
                error = error + slot.AA[:, some, None, None]
                if self.share is not None:
                    inner = slot.between[:, some, None, None]
                    closed = slice(len(inner))
                    error[closed] = inner + self.share**2 * error[closed]
                terms.append(torch.einsum("lsij,l->ijl", error, price) / len(slot.S))
        total = torch.stack(terms).sum(0)
        return total.expand(total.shape[1], -1, -1)

    def calibrated(self) -> Tensor:
        """ω_n = E⟨Δ, z_n − z_k⟩/E‖Δ‖², clipped to [0, max(1, λ)]: (n, j)."""
        weighted = list(zip(self.slots, self.energies))
        ahead = torch.stack([a * slot.ahead.mean(0) for slot, a in weighted]).sum(0)
        S = torch.stack([a * slot.S[:, 0].mean(0) for slot, a in weighted]).sum(0)
        most = self.slots[0].reach[1][:, 0, 0].clamp(min=1)
        return torch.where(S > 0, ahead / S, 0.0).clamp(min=0).minimum(most)


class Products:
    """The products of one slot's A, Δ and Δ⁻ at an anchor.

    AA   (l, sample) ‖A‖²               AD      (l, sample, 1, j) ⟨A, Δ⟩
    S    (sample, 1, j) ‖Δ‖²            ahead   (sample, n, j) ⟨Δ, z_n − z_k⟩
    statistics   of Δ and Δ⁻, (sample, i, j)
    between      (l, sample) ‖A + a·(z_l − z_k)‖², of the ends l that are anchors
    reach        ρ and λ of every node n after the anchor, (n, 1, 1, j)
    """

    def __init__(self, view: View, allowed: Sequence[int], place: int, near: int | None = None):
        k, G = allowed[place], view.products
        past = [*allowed[: max(place, 1)]][-(near or 0) :]
        ends = self.ends = [*allowed[place + 1 :], view.stages][:near]
        nodes = view.rows(k, ends[-1])
        self.weights = view.weights[ends, view.nodes(k, ends[-1])]
        total = self.weights.sum(1)
        A = total[:, None] * G[:, k, None] - self.weights @ G[:, nodes]  # ⟨A_l, z_m⟩
        own = (A[:, :, nodes] * self.weights).sum(2)
        self.AA = (total * A[:, :, k] - own).clamp(min=0).T
        self.AD = (A[:, :, k, None] - A[:, :, past]).transpose(0, 1)[:, :, None]
        square = G.diagonal(dim1=1, dim2=2)
        closed = [end for end in ends if end < view.stages]
        count = range(len(closed))
        a = (self.weights[: len(closed)] * view.shares(k, closed, ends[-1])).sum(1)
        chord = (square[:, closed] + square[:, k, None] - 2 * G[:, k, closed]).clamp(min=0)
        along = A[:, count, closed] - A[:, : len(closed), k]  # ⟨A, z_l − z_k⟩
        between = self.AA[: len(closed)].T + a * (2 * along + a * chord)
        self.between = between.clamp(min=0).T
        inner, to_k, own = G[:, past][:, :, past], G[:, k, past], square[:, past]
        self.S = (square[:, k, None] + own - 2 * to_k).clamp(min=0)[:, None]
        P = (own[:, :, None] + own[:, None] - 2 * inner).clamp(min=0)
        D = to_k[:, None] - to_k[:, :, None] - own[:, None] + inner
        self.statistics = Statistics(self.S.expand_as(D), P, D)
        from_k = G[:, nodes] - G[:, k, None]
        self.ahead = from_k[:, :, k, None] - from_k[:, :, past]
        rho, lam = view.horizons(k, past, ends[-1])
        self.reach = rho[:, None, None], lam[:, None, None]

    def chunks(self) -> list[slice]:
        """The samples in groups, so that (stages, samples, i, j) numbers fit into memory."""
        samples, *pairs = self.statistics.D.shape
        count = max(1, NUMBERS // max(1, len(self.reach[0]) * pairs[0] * pairs[1]))
        return [slice(start, start + count) for start in range(0, samples, count)]


class Pairs:
    """The same costs from the two latest anchors j, k only, for rules that need no more, and those
    of interpolated cells.

    ω does not depend on the sample under hold (0) and linear (λ), so the mean Gram matrix is
    enough. With W the weights of errors at all stages and Q_l the factor by which Euler carries x
    from stage s to l, the stages s … l − 1 alone have the weights W_l − Q_l·W_s: every product
    follows from W·G and W·G·Wᵀ, which are made once. That makes long grids affordable.
    """

    def __init__(self, view: View, price: Tensor):
        self.view, self.price = view, price
        self.G = view.products.mean(0)
        nodes = self.G[view.stages :] if view.parts else self.G
        self.W = view.weights
        self.WG = self.W @ nodes  # (l, row)
        inner = nodes[:, view.stages :] if view.parts else nodes
        self.WGW = self.W @ inner @ self.W.T
        self.WT = self.W @ view.times[1]
        self.sums = self.W.sum(1)
        self.factors = step_factors(view)

    def costs(self, k: int, rule: str) -> Tensor:
        """(j, l) for l = k + 1 … L."""
        total, own, AA, ahead = self.of_cells(k)
        G, past = self.G, max(k, 1)
        if rule == HOLD or k == 0:
            return (AA * self.price[k + 1 :]).expand(past, -1)
        A = total[:, None] * G[k, :past] - own[:, :past]  # ⟨A_l, z_j⟩
        AD = (total * G[k, k] - own[:, k])[:, None] - A
        S = (G[k, k] + G.diagonal()[:past] - 2 * G[k, :past]).clamp(min=0)
        span = self.view.points[k] - self.view.points[:past]
        w = ahead[:, None] / torch.where(span == 0, torch.inf, span)
        return ((AA[:, None] + w * (2 * AD + w * S)) * self.price[k + 1 :, None]).T

    def between(self, k: int) -> Tensor:
        """(l,): what interpolation between anchors k and l leaves, l = k + 1 … L; that to the end,
        where no anchor is, counts as held.
        """
        total, own, AA, ahead = self.of_cells(k)
        G, ends = self.G, range(k + 1, self.view.stages)
        count = len(ends)
        span = self.view.points[k + 1 : k + 1 + count] - self.view.points[k]
        a = ahead[:count] / torch.where(span == 0, torch.inf, span)
        chord = (G.diagonal()[ends] + G[k, k] - 2 * G[k, ends]).clamp(min=0)
        along = total[:count] * G[k, ends] - own[range(count), ends]  # ⟨A_l, z_l⟩
        along = along - (total * G[k, k] - own[:, k])[:count]
        left = (AA[:count] + a * (2 * along + a * chord)).clamp(min=0)
        return torch.cat([left, AA[count:]]) * self.price[k + 1 :]

    def of_cells(self, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """For every end l: Σ W, ⟨Σ W·z_n, ·⟩, ‖A‖² and Σ W·(t_n − t_k) of the nodes from k to l."""
        s = k if self.view.parts else k + 1
        ends = slice(k + 1, None)
        Q = torch.cat([self.sums.new_ones(1), self.factors[s:].cumprod(0)])  # from s to s, s + 1 …
        Q = Q[k + 1 - s :]
        own = self.WG[ends] - Q[:, None] * self.WG[s]
        total = self.sums[ends] - Q * self.sums[s]
        square = self.WGW.diagonal()[ends] - 2 * Q * self.WGW[ends, s] + Q * Q * self.WGW[s, s]
        AA = (total**2 * self.G[k, k] - 2 * total * own[:, k] + square).clamp(min=0)
        ahead = self.WT[ends] - Q * self.WT[s] - self.view.points[k] * total
        return total, own, AA, ahead


def step_factors(view: View) -> Tensor:
    """The factor by which each step of the solver carries an error of x: x_{l+1} = p_l·x_l + …

    p_l is how the weight of an earlier node changes from l to l + 1.
    """
    weights, parts, factors = view.weights, max(1, view.parts), [1.0]
    for stage in range(1, view.stages):
        before = weights[stage, : stage * parts]
        place = int(before.abs().argmax())
        factors.append(float(weights[stage + 1, place] / before[place]) if before[place] else 1.0)
    return torch.tensor(factors, dtype=torch.float64)
