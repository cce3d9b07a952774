"""What cells would have cost on the exact runs, for any anchors: tables for the search.

As in planning/cells.py, as Euler weighs them, from the two latest anchors and with linear
prediction, so that the mean Gram matrix of all runs is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..grid import Grid
from ..meshes.auto import believed, noise_levels
from ..meshes.belief import even_stages
from ..meshes.corrected import SHARE
from ..meshes.path import cheapest_pairs
from ..planning.cells import LINEAR, Pairs
from ..planning.space import View

SEARCHED = 128  # stages among which every set of anchors is searched


class Tables:
    """Σ ‖e‖² of the cells between any anchors, in one space, before growth.

    grams       as Learned has them
    corrected   cells are put right at their ends: not before a start, and not the last one
    also        stages that are searched in any case, so that plans which have them can be priced
    """

    def __init__(
        self,
        grams: Sequence[Tensor],
        grid: Grid,
        space: str,
        clock: str,
        corrected: bool,
        also: Sequence[int] = (),
    ):
        self.grid, self.allowed = grid, allowed_stages(grid, also)
        self.ends = [*self.allowed, grid.steps]
        ones = torch.ones(grid.steps + 1, dtype=torch.float64)
        slots = []
        for i, gram in enumerate(grams):
            seen = gram[None] / len(grams)
            view = View.of(grid.track(i), seen, space, 0, grid.steps, clock=clock)
            slots.append(Pairs(view, ones))
        self.cells = [self.cell(slots, k, corrected) for k in self.allowed]

    def cell(self, slots: Sequence[Pairs], k: int, corrected: bool) -> np.ndarray:
        """(j, l) of the cells from anchor k."""
        past = [j for j in self.allowed if j < k] or [0]
        ends = [end for end in self.ends if end > k]
        columns = [end - k - 1 for end in ends]
        plain = sum(slot.costs(k, LINEAR) for slot in slots)[past][:, columns].numpy()  # type: ignore
        begins = np.isin(ends, self.grid.regimes)
        if corrected:
            inside = sum(slot.between(k) for slot in slots)[columns].numpy()  # type: ignore
            open_ended = begins | (np.asarray(ends) == self.grid.steps)
            plain = np.where(open_ended, plain, inside + SHARE**2 * plain)
        beyond = np.cumsum(begins) - begins > 0
        return np.where(beyond, np.inf, plain)

    def grown(self, growth: np.ndarray) -> list[np.ndarray]:
        """The tables where an error at grid point l counts growth[l] times."""
        return [
            cell * np.square(growth[[end for end in self.ends if end > k]])
            for cell, k in zip(self.cells, self.allowed)
        ]

    def cheapest(self, tables: Sequence[np.ndarray], most: int) -> list[tuple[float, tuple]]:
        """(cost, anchors) for 1, 2, … anchors."""
        found = cheapest_pairs(lambda k: tables[k], len(self.allowed), most)
        return [(cost, tuple(self.allowed[n] for n in places)) for cost, places in found]

    def price(self, anchors: Sequence[int], growth: np.ndarray) -> float:
        """What these anchors cost, which are all among the searched stages."""
        places = [self.allowed.index(anchor) for anchor in anchors]
        stops, tables, total = [*places, len(self.allowed)], self.grown(growth), 0.0
        for n, k in enumerate(places):
            total += float(tables[k][stops[n - 1] if n else 0, stops[n + 1] - k - 1])
        return total


def allowed_stages(grid: Grid, also: Sequence[int] = ()) -> tuple[int, ...]:
    """All stages; of very many, half evenly spaced in stages, half in the auto mesh's y, the first
    stages of regimes, and these.
    """
    if grid.steps <= SEARCHED:
        return tuple(range(grid.steps))
    tau, half = noise_levels(grid), SEARCHED // 2
    even = even_stages(np.ones(grid.steps), half).tolist()
    dense = believed(tau).stages(half)[:half] if tau else ()
    return tuple(sorted({0, *even, *dense, *grid.regimes, *also}))
