"""corrected: the auto mesh for cells that are put right at their end (correction.py).

A corrected cell is interpolated: between anchors k and l it leaves Σ Δy_n·(y_n − y_k)·(y_l − y_n),
in the coordinate y of auto.py. The exact output at l is evaluated where the prediction ended, so a
share of the prediction's own error stays. The last cell has no anchor behind it and is predicted.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..grid import Grid
from . import sigma
from .auto import FIRST, MOST, UNIVERSAL, Shape, even_stages, moments, over_regimes, progress
from .path import cheapest_pairs
from .registry import Mesh, Placed

SHARE = 0.2


def corrected_anchors(
    grid: Grid, budget: int, shape: Shape = UNIVERSAL, share: float = SHARE
) -> tuple[int, ...] | None:
    """B anchors of a grid; None if its noise levels are unknown or do not fall from noise to data.

    >>> corrected_anchors(Grid.of([1 - i / 50 for i in range(51)]), 10)
    (0, 1, 2, 3, 5, 8, 13, 22, 36, 47)
    """
    return over_regimes(grid, budget, lambda tau, b: mesh(tau, b, shape, share))


@lru_cache(maxsize=64)
def mesh(tau: tuple[float, ...], budget: int, shape: Shape, share: float) -> tuple[int, ...]:
    """B anchors for τ_0 … τ_T, without regimes."""
    y = progress(tau, shape)
    growth = (1 - np.asarray(tau) + shape.a) ** -shape.p
    allowed = even_stages(np.diff(y) * growth[1:] ** (1 / 3), max(budget, MOST))
    if len(allowed) == budget:
        return tuple(allowed.tolist())
    ends = [*allowed, len(y) - 1]
    line, square = (m[allowed][:, ends] for m in moments(y, growth))
    here, there = y[allowed], y[ends]

    def costs(k: int) -> np.ndarray:
        """e² of the cells from k: (j, l)."""
        span = here[k] - here[:k, None] if k else FIRST
        ahead = np.atleast_2d(square[k, k + 1 :] + span * line[k, k + 1 :])
        between = (there[k + 1 :] - here[k]) * line[k, k + 1 :] - square[k, k + 1 :]
        error = between + share * ahead
        error[:, -1] = ahead[:, -1]
        return error**2

    _, places = cheapest_pairs(costs, len(allowed), budget)[-1]
    return tuple(allowed[[*places]].tolist())


def place(grid: Grid, budget: int) -> Placed:
    """The anchors of a grid; the σ-mesh where there are none."""
    found = corrected_anchors(grid, budget)
    if found is not None:
        return found, "corrected"
    anchors, words = sigma.MESH.place(grid, budget)
    return anchors, f"{words} (no corrected mesh: noise levels unknown or rising)"


MESH = Mesh("corrected", place, least=sigma.LEAST)
