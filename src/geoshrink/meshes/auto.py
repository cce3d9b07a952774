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
from .belief import Belief, cheapest, with_starts
from .placement import check_regimes
from .registry import Mesh, Placed

#: The first output is held. It counts as predicted from an anchor this far before it, in y.
FIRST = 1.0


class Shape(NamedTuple):
    """The constants of y and of the growth of errors."""

    a: float
    b: float
    c: float
    p: float


UNIVERSAL = Shape(a=0.0272, b=0.0125, c=0.2725, p=0.8616)


def universal_anchors(grid: Grid, budget: int, shape: Shape = UNIVERSAL) -> tuple[int, ...] | None:
    """B anchors of a grid; None if its noise levels are unknown or do not fall from noise to data.

    >>> universal_anchors(Grid.of([1 - i / 50 for i in range(51)]), 10)
    (0, 1, 2, 3, 5, 8, 13, 21, 33, 45)
    """
    return over_regimes(grid, budget, lambda tau, b, starts: mesh(tau, b, shape, starts))


def over_regimes(
    grid: Grid,
    budget: int,
    one: Callable[[tuple[float, ...], int, tuple[int, ...]], tuple[int, ...]],
) -> tuple[int, ...] | None:
    """one(τ, budget, starts): one mesh over all regimes, the first stage of each among the anchors;
    None if the noise levels are unknown or do not fall.
    """
    tau = noise_levels(grid)
    if tau is None:
        return None
    check_regimes(budget, 1 + len(grid.regimes))
    return one(tau, budget, grid.regimes)


def noise_levels(grid: Grid) -> tuple[float, ...] | None:
    """τ_0 … τ_T of the leading track; None where they are unknown or do not fall."""
    tau = grid.tracks[grid.lead].noise
    falls = tau is not None and all(a >= b for a, b in pairwise(tau))
    return tau if falls else None


def knows_noise(grid: Grid) -> bool:
    return all(track.noise is not None for track in grid.tracks)


def check_levels(grid: Grid, what: str) -> None:
    if not knows_noise(grid):
        raise ValueError(
            f"{what} needs the noise levels of the grid: pass data=0.0 or data=1.0 for a flow grid "
            "within [0, 1], or alphas for other outputs"
        )


def progress(tau: Sequence[float], shape: Shape = UNIVERSAL) -> np.ndarray:
    """y of every τ."""
    done = 1 - np.asarray(tau, dtype=np.float64)
    return np.log(done + shape.a) - shape.c * np.log(1 - done + shape.b)


@lru_cache(maxsize=64)
def mesh(
    tau: tuple[float, ...], budget: int, shape: Shape, starts: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """B anchors for τ_0 … τ_T, the first stages of later regimes (`starts`) among them."""
    belief = believed(tau, shape)
    allowed = with_starts(belief.stages(budget), starts)
    if len(allowed) == budget:
        return allowed
    return cheapest(belief.costs(allowed, starts), allowed, budget)


def believed(tau: Sequence[float], shape: Shape = UNIVERSAL) -> Belief:
    """What the zoo's models say: y(τ), and errors that grow by (1 − τ + a)^−p."""
    return Belief(progress(tau, shape), (1 - np.asarray(tau) + shape.a) ** -shape.p, FIRST)


def placed_by(name: str, find: Callable[[Grid, int], tuple[int, ...] | None]) -> Mesh:
    """The mesh of this name; the σ-mesh takes its place where find() knows no anchors."""

    def place(grid: Grid, budget: int) -> Placed:
        if (found := find(grid, budget)) is not None:
            return found, name
        anchors, words = sigma.MESH.place(grid, budget)
        return anchors, f"{words} (no {name} mesh: noise levels unknown or rising)"

    return Mesh(name, place, least=sigma.LEAST)


MESH = placed_by("auto", universal_anchors)
