"""Belief: where the outputs of a model are curved, and what a cell between two anchors then costs.

Outputs are believed to be equally curved everywhere in a coordinate y. Linear prediction from
anchors j, k leaves, at the next anchor l, e = Σ_{k<n<l} Δy_n·(y_n − y_k)·(y_n − y_j), and
interpolation between k and l leaves Σ Δy_n·(y_n − y_k)·(y_l − y_n), both up to a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .path import cheapest_pairs

MOST = 128  # stages among which every set of anchors is searched

#: costs(k): of the cells from anchor k, (j, l), as cheapest_pairs takes them.
Costs = Callable[[int], np.ndarray]


class Belief(NamedTuple):
    """Equal curvature in y, and by how much an error at each grid point grows, 0 … T.

    first   the first output is held; it counts as predicted from this far before it
    """

    y: np.ndarray
    growth: np.ndarray
    first: float

    def stages(self, budget: int) -> tuple[int, ...]:
        """Those among which anchors are searched: all, if they are not too many."""
        density = np.diff(self.y) * self.growth[1:] ** (1 / 3)
        return tuple(even_stages(density, max(budget, MOST)).tolist())

    def costs(
        self, allowed: Sequence[int], starts: Sequence[int] = (), share: float | None = None
    ) -> Costs:
        """e² of the cells between allowed stages.

        starts   the first stages of later regimes: no cell goes beyond one
        share    where cells are corrected: they are interpolated, and so much stays of the
                 prediction's own error; not before a start, and not in the last cell
        """
        ends = [*allowed, len(self.y) - 1]
        line, square = self.sums(allowed, ends)
        y, begins = self.y[ends], np.isin(ends, starts)

        def costs(k: int) -> np.ndarray:
            span = y[k] - y[:k, None] if k else self.first
            ahead = np.atleast_2d(square[k, k + 1 :] + span * line[k, k + 1 :])
            if share is not None:
                inside = (y[k + 1 :] - y[k]) * line[k, k + 1 :] - square[k, k + 1 :]
                corrected = ~begins[k + 1 :]
                corrected[-1] = False
                ahead = np.where(corrected, inside + share * ahead, ahead)
            beyond = np.cumsum(begins[k + 1 :]) - begins[k + 1 :] > 0
            return np.where(beyond, np.inf, ahead**2)

        return costs

    def sums(self, allowed: Sequence[int], ends: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Σ Δy_n·(y_n − y_k) and Σ Δy_n·(y_n − y_k)² over k < n < l, times the growth at l."""
        ahead = np.maximum(self.y[None, :-1] - self.y[:-1, None], 0)
        cells = [np.cumsum(np.diff(self.y) * ahead**power, axis=1) for power in (1, 2)]
        both = (np.pad(cell, ((0, 0), (1, 0))) * self.growth for cell in cells)
        line, square = (m[[*allowed]][:, ends] for m in both)
        return line, square


def cheapest(costs: Costs, allowed: Sequence[int], budget: int) -> tuple[int, ...]:
    _, places = cheapest_pairs(costs, len(allowed), budget)[-1]
    return tuple(allowed[n] for n in places)


def with_starts(stages: Sequence[int], starts: Sequence[int]) -> tuple[int, ...]:
    """The stages, each start in the place of the nearest that is neither stage 0 nor a start."""
    found = set(stages)
    for start in starts:
        if start not in found:
            found.remove(min(found - {0, *starts}, key=lambda n: abs(n - start)))
            found.add(start)
    return tuple(sorted(found))


def even_stages(density: np.ndarray, count: int) -> np.ndarray:
    """`count` stages at equal increments of a density; where it is above one per stage, all."""
    if count >= len(density):
        return np.arange(len(density))
    density, full = np.maximum(density, 1e-12), np.zeros(len(density), dtype=bool)
    while True:
        share = density * (count - full.sum()) / density[~full].sum()
        more = full | (share >= 1)
        if (more == full).all():
            break
        full = more
    ends = np.cumsum(np.where(full, 1.0, share))
    return np.searchsorted(ends, np.arange(count) + 1e-6, side="right")
