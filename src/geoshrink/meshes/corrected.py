"""corrected: the auto mesh for cells that are put right at their end (correction.py).

A corrected cell is interpolated: between anchors k and l it leaves Σ Δy_n·(y_n − y_k)·(y_l − y_n),
in the coordinate y of auto.py. The exact output at l is evaluated where the prediction ended, so a
share of the prediction's own error stays. The last cell has no anchor behind it and is predicted.
"""

from __future__ import annotations

from ..grid import Grid
from .auto import UNIVERSAL, mesh, over_regimes, placed_by

SHARE = 0.2


def corrected_anchors(grid: Grid, budget: int, share: float = SHARE) -> tuple[int, ...] | None:
    """B anchors of a grid; None if its noise levels are unknown or do not fall from noise to data.

    >>> corrected_anchors(Grid.of([1 - i / 50 for i in range(51)]), 10)
    (0, 1, 2, 3, 5, 8, 13, 22, 36, 47)
    """
    return over_regimes(grid, budget, lambda tau, b: mesh(tau, b, UNIVERSAL, share))


MESH = placed_by("corrected", corrected_anchors)
