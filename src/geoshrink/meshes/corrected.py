"""corrected, the default: anchors for cells that are put right at their end (correction.py).

A corrected cell is interpolated: between anchors k and l it leaves Σ Δy_n·(y_n − y_k)·(y_l − y_n).
The exact output at l is evaluated where the prediction ended, so a share of the prediction's own
error stays. The last cell has no anchor behind it and is predicted.

Two beliefs about where outputs are curved are weighed, each in units of what its own best anchors
cost: evenly in auto.py's y, which holds on our models, and evenly over the stages, which holds on
many models of others, and for which whoever chose the grid chose it. The second has little weight,
but keeps the anchors from crowding where only the first believes that they are needed.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from ..grid import Grid
from .auto import believed, over_regimes, placed_by
from .belief import Belief, Costs, cheapest, with_starts
from .path import cheapest_pairs

SHARE = 0.2
EVEN = 0.1  # the weight of the second belief
FIRST = 0.2  # of the stages: its held first output counts as predicted from so far before


def corrected_anchors(
    grid: Grid, budget: int, share: float = SHARE, even: float = EVEN
) -> tuple[int, ...] | None:
    """B anchors of a grid; None if its noise levels are unknown or do not fall from noise to data.

    >>> corrected_anchors(Grid.of([1 - i / 50 for i in range(51)]), 10)
    (0, 1, 2, 4, 7, 12, 20, 29, 38, 46)
    """
    return over_regimes(grid, budget, lambda tau, b, starts: mesh(tau, b, share, even, starts))


@lru_cache(maxsize=512)
def mesh(
    tau: tuple[float, ...], budget: int, share: float, even: float, starts: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """B anchors for τ_0 … τ_T, the first stages of later regimes (`starts`) among them."""
    allowed = with_starts(believed(tau).stages(budget), starts)
    if len(allowed) == budget:
        return allowed
    by_noise, by_stage = beliefs(tau, allowed, share, starts)
    if not even:
        return cheapest(by_noise, allowed, budget)
    best = [own[budget - 1] for own in least_costs(tau, allowed, share, starts)]
    weight = even * best[0] / best[1]
    return cheapest(lambda k: by_noise(k) + weight * by_stage(k), allowed, budget)


@lru_cache(maxsize=4)
def beliefs(
    tau: tuple[float, ...], allowed: tuple[int, ...], share: float, starts: tuple[int, ...]
) -> tuple[Costs, Costs]:
    """What cells cost if outputs are curved evenly in y, and evenly over the stages."""
    stages = Belief(np.linspace(0, 1, len(tau)), np.ones(len(tau)), FIRST)
    both = (believed(tau), stages)
    by_noise, by_stage = (cache(belief.costs(allowed, starts, share)) for belief in both)
    return by_noise, by_stage


@lru_cache(maxsize=16)
def least_costs(
    tau: tuple[float, ...], allowed: tuple[int, ...], share: float, starts: tuple[int, ...]
) -> list[list[float]]:
    """For both beliefs what their own best anchors cost, for 1, 2, … anchors."""
    both, count = beliefs(tau, allowed, share, starts), len(allowed)
    return [[cost for cost, _ in cheapest_pairs(costs, count, count)] for costs in both]


MESH = placed_by("corrected", corrected_anchors)
