"""auto: one coordinate of σ in which every model is equally hard to predict.

With τ = σ/(α + σ), 1 at noise and 0 at data,

    y(τ) = log(1 − τ + a) − c·log(τ + b)

is close to a logarithm of the signal-to-noise ratio. The mesh assumes that the outputs are equally
curved everywhere in y, and that an error at τ grows by (1 − τ + a)^−p. Linear prediction from
anchors j, k then leaves, at the next anchor l, e = Σ_{k<n<l} Δy_n·(y_n − y_k)·(y_n − y_j), up to a
constant. The anchors are those with the least Σ e²/(1 − τ_l + a)^2p. a, b, c, p are fitted to
profiles of the zoo (benchmarks/universal_fit.py) and judged on models left out
(benchmarks/universal.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..grid import Grid
from . import sigma
from .path import cheapest_pairs
from .placement import share_budget
from .registry import Mesh, Placed

MOST = 128  # stages among which every set of anchors is searched
#: A regime's first output is held. It counts as predicted from an anchor this far before it, in y.
FIRST = 1.0


class Shape(NamedTuple):
    """The constants of y and of the growth of errors."""

    a: float
    b: float
    c: float
    p: float


#: costs(k): of the cells from anchor k, (j, l), as cheapest_pairs takes them.
Costs = Callable[[int], np.ndarray]
UNIVERSAL = Shape(a=0.0272, b=0.0125, c=0.2725, p=0.8616)


def universal_anchors(grid: Grid, budget: int, shape: Shape = UNIVERSAL) -> tuple[int, ...] | None:
    """B anchors of a grid; None if its noise levels are unknown or do not fall from noise to data.

    >>> universal_anchors(Grid.of([1 - i / 50 for i in range(51)]), 10)
    (0, 1, 2, 3, 5, 8, 13, 21, 33, 45)
    """
    return over_regimes(grid, budget, lambda tau, b: mesh(tau, b, shape))


def over_regimes(
    grid: Grid, budget: int, one: Callable[[tuple[float, ...], int], tuple[int, ...]]
) -> tuple[int, ...] | None:
    """one(τ, budget) in every regime, each with as many anchors as the whole grid's mesh has there;
    None if the noise levels are unknown or do not fall.
    """
    tau = noise_levels(grid)
    if tau is None:
        return None
    whole, spans = one(tau, budget), grid.spans()
    if len(spans) == 1:
        return whole
    shares = share_budget(whole, spans)
    parts = [(first, one(tau[first : last + 1], b)) for (first, last), b in zip(spans, shares)]
    return tuple(first + n for first, part in parts for n in part)


def noise_levels(grid: Grid) -> tuple[float, ...] | None:
    """τ_0 … τ_T of the leading track; None where they are unknown or do not fall."""
    levels = grid.tracks[grid.lead].levels
    if levels is None:
        return None
    tau = tuple(sigma / (alpha + sigma) for alpha, sigma in levels)
    return None if any(later > earlier for earlier, later in pairwise(tau)) else tau


def progress(tau: Sequence[float], shape: Shape = UNIVERSAL) -> np.ndarray:
    """y of every τ."""
    done = 1 - np.asarray(tau, dtype=np.float64)
    return np.log(done + shape.a) - shape.c * np.log(1 - done + shape.b)


@lru_cache(maxsize=64)
def mesh(tau: tuple[float, ...], budget: int, shape: Shape) -> tuple[int, ...]:
    """B anchors for τ_0 … τ_T, without regimes."""
    belief = believed(tau, shape)
    allowed = belief.stages(budget)
    return allowed if len(allowed) == budget else cheapest(belief.ahead(allowed), allowed, budget)


class Belief(NamedTuple):
    """Where outputs are curved: equally everywhere in y, and an error grows by `growth`.

    y, growth   of every grid point, 0 … T
    first       a regime's first output is held; it counts as predicted from this far before it
    """

    y: np.ndarray
    growth: np.ndarray
    first: float = FIRST

    def stages(self, budget: int) -> tuple[int, ...]:
        """Those among which anchors are searched: all, if they are not too many."""
        density = np.diff(self.y) * self.growth[1:] ** (1 / 3)
        return tuple(even_stages(density, max(budget, MOST)).tolist())

    def ahead(self, allowed: Sequence[int]) -> Costs:
        """e² of the cells from anchor k, (j, l), with e = square + (y_k − y_j)·line."""
        line, square = self.sums(allowed)

        def costs(k: int) -> np.ndarray:
            return self.extrapolated(k, allowed, line, square) ** 2

        return costs

    def between(self, allowed: Sequence[int], share: float) -> Costs:
        """The same for cells that are interpolated, plus a share of the extrapolation; the last
        cell is extrapolated.
        """
        line, square = self.sums(allowed)
        here, there = self.y[[*allowed]], self.y[[*allowed, -1]]

        def costs(k: int) -> np.ndarray:
            ahead = self.extrapolated(k, allowed, line, square)
            inside = (there[k + 1 :] - here[k]) * line[k, k + 1 :] - square[k, k + 1 :]
            return np.concatenate([(inside + share * ahead)[:, :-1], ahead[:, -1:]], axis=1) ** 2

        return costs

    def extrapolated(
        self, k: int, allowed: Sequence[int], line: np.ndarray, square: np.ndarray
    ) -> np.ndarray:
        here = self.y[[*allowed[: k + 1]]]
        span = here[k] - here[:k, None] if k else self.first
        return np.atleast_2d(square[k, k + 1 :] + span * line[k, k + 1 :])

    def sums(self, allowed: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Σ Δy_n·(y_n − y_k) and Σ Δy_n·(y_n − y_k)² over k < n < l, times the growth at l:
        (k, l), k an allowed stage, l one or the end.
        """
        ahead = np.maximum(self.y[None, :-1] - self.y[:-1, None], 0)
        cells = [np.cumsum(np.diff(self.y) * ahead**power, axis=1) for power in (1, 2)]
        both = (np.pad(cell, ((0, 0), (1, 0))) * self.growth for cell in cells)
        line, square = (m[[*allowed]][:, [*allowed, len(self.y) - 1]] for m in both)
        return line, square


def believed(tau: Sequence[float], shape: Shape = UNIVERSAL) -> Belief:
    """What the zoo's models say: y(τ), and errors that grow by (1 − τ + a)^−p."""
    return Belief(progress(tau, shape), (1 - np.asarray(tau) + shape.a) ** -shape.p)


def cheapest(costs: Costs, allowed: Sequence[int], budget: int) -> tuple[int, ...]:
    _, places = cheapest_pairs(costs, len(allowed), budget)[-1]
    return tuple(allowed[n] for n in places)


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


def placed_by(name: str, find: Callable[[Grid, int], tuple[int, ...] | None]) -> Mesh:
    """The mesh of this name; the σ-mesh takes its place where find() knows no anchors."""

    def place(grid: Grid, budget: int) -> Placed:
        if (found := find(grid, budget)) is not None:
            return found, name
        anchors, words = sigma.MESH.place(grid, budget)
        return anchors, f"{words} (no {name} mesh: noise levels unknown or rising)"

    return Mesh(name, place, least=sigma.LEAST)


MESH = placed_by("auto", universal_anchors)
