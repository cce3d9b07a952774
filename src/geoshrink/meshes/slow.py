"""slow: what the default goes on with where the outputs of a model move slowly at first (pace.py).

The first two anchors are those of the corrected mesh, since only the second shows it. From there on
the belief that outputs are curved evenly over the stages counts most, where it has little weight in
corrected.py. The last cell, which nothing corrects, counts LAST times: the outputs of such models
are most curved near the data, where our y has them smooth. Both numbers were chosen with the models
of benchmarks/default.md in view.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..grid import Grid
from .auto import believed, noise_levels
from .belief import Costs, cheapest, with_starts
from .corrected import SHARE, beliefs
from .path import cheapest_pairs
from .placement import check_anchors

EVEN = 30.0  # the weight of the even belief
LAST = 16.0


def slow_anchors(grid: Grid, anchors: Sequence[int]) -> tuple[int, ...]:
    """As many anchors as these, the first two among them; () if there is nothing to choose, and
    with several σ-grids (pace.py).

    >>> slow_anchors(Grid.of([1 - i / 50 for i in range(51)]), (0, 1, 2, 4, 7, 12, 20, 29, 38, 46))
    (0, 1, 4, 10, 16, 22, 28, 35, 41, 48)
    """
    tau, budget = noise_levels(grid), len(anchors)
    if tau is None or len(grid.tracks) > 1:
        return ()
    if not 2 < budget < grid.steps or anchors[1] in grid.regimes:
        return ()
    found = mesh(tau, budget, anchors[1], grid.regimes)
    return () if found == tuple(anchors) else found


@lru_cache(maxsize=512)
def mesh(
    tau: tuple[float, ...], budget: int, second: int, starts: tuple[int, ...]
) -> tuple[int, ...]:
    """B anchors for τ_0 … τ_T that begin with 0 and `second`."""
    allowed = with_starts(believed(tau).stages(budget), (second, *starts))
    if len(allowed) == budget:
        return allowed
    place = allowed.index(second)
    both = [through(costs, place) for costs in beliefs(tau, allowed, SHARE, starts)]
    best = [cheapest_pairs(costs, len(allowed), budget)[-1][0] for costs in both]
    by_noise, by_stage = both
    weight = EVEN * best[0] / best[1]
    return cheapest(lambda k: by_noise(k) + weight * by_stage(k), allowed, budget)


def through(costs: Costs, second: int) -> Costs:
    """The costs of cells where the first ends at this place, and the last counts more."""

    def own(k: int) -> np.ndarray:
        found = costs(k).copy()
        found[..., -1] *= LAST
        if k == 0:
            found[..., np.arange(1, found.shape[-1] + 1) != second] = np.inf
        return found

    return own


def check_slow(slow: Any, anchors: Sequence[int], grid: Grid, aim: Any) -> tuple[int, ...]:
    """Those of a plan with these anchors."""
    if isinstance(slow, (tuple, list)) and not slow:
        return ()
    slow = check_anchors(slow, grid)
    alike = len(slow) == len(anchors) and slow[:2] == anchors[:2]
    if aim is not None or len(grid.tracks) > 1 or len(slow) < 3 or not alike:
        raise ValueError(
            f"slow={slow} must be as many anchors as {anchors}, more than two, and begin with the "
            "same two, in a plan of one σ-grid without an aim"
        )
    return slow
