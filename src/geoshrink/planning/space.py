"""Full runs as numbers: the Gram matrix of a run, and the same run seen in output or data space.

A run under Euler (DDIM off flow grids), AB2 or DPM++(2M) is linear in its noise x_0 and its outputs
v_0 … v_{T−1}, and so are the errors of predictions. So the (T + 1)×(T + 1) Gram matrix of noise and
outputs, one per sample and slot, holds all that planning needs of the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..grid import Track
from ..history.refinement import refined_track
from ..solvers import SOLVERS

BLOCK = 1 << 16  # coordinates in double precision at a time


def gram(rows: list[Tensor]) -> Tensor:
    """⟨r_a, r_b⟩ of every sample, (samples, rows, rows) in float64, from rows (samples, …)."""
    flat = [row.flatten(1) for row in rows]
    samples, size = flat[0].shape
    total = torch.zeros(samples, len(rows), len(rows), dtype=torch.float64)
    for s in range(samples):
        for start in range(0, size, BLOCK):
            part = torch.stack([row[s, start : start + BLOCK] for row in flat]).double()
            total[s] += part @ part.T
    return (total + total.transpose(1, 2)) / 2


@dataclass(frozen=True)
class View:
    """One slot's stages first … last − 1 in one space, z_n = output or data prediction.

    products   Gram matrix of z at the L stages, then at the nodes where these are others
    weights    (L + 1, nodes): errors of z move x at stage l by Σ weights[l, n]·(error at node n)
    parts      0: the nodes are the stages, as the solver runs, and an anchor's own is exact. Else
               the nodes are the middles of so many parts of each stage, interpolated, as the exact
               flow runs
    """

    products: Tensor
    weights: Tensor
    track: Track
    parts: int = 0

    @classmethod
    def of(
        cls,
        track: Track,
        products: Tensor,
        space: str,
        first: int,
        last: int,
        parts: int = 0,
        solver: str = "euler",
    ) -> View:
        """From the Gram matrix of x_0, v_0 … v_{T−1}."""
        rows = rows_of(track, space, solver)[first:last]
        own = track.at(range(first, last + 1))
        weights = weights_of(own, space, solver)
        if parts:
            cut = refined_track(own, parts)
            weights = weights_of(cut, space)[::parts]
            rows = torch.cat([rows, between(own.sigmas[:-1], middles(cut.sigmas)) @ rows])
        return cls(rows @ products @ rows.T, weights, own, parts)

    @property
    def stages(self) -> int:
        return self.track.steps

    def nodes(self, k: int, end: int) -> slice:
        """The nodes that are predicted from anchor k up to stage `end`, among the weights."""
        parts = max(1, self.parts)
        return slice(k * parts if self.parts else k + 1, end * parts)

    def rows(self, k: int, end: int) -> slice:
        """The same nodes among the products."""
        nodes, before = self.nodes(k, end), self.stages if self.parts else 0
        return slice(before + nodes.start, before + nodes.stop)

    def horizons(self, k: int, past: list[int], end: int) -> tuple[Tensor, Tensor]:
        """ρ and λ of the nodes from k to `end`, from anchors j of `past` and k; (n, j)."""
        sigmas = torch.tensor(self.track.sigmas, dtype=torch.float64)
        span = sigmas[k] - sigmas[past]
        cut = refined_track(self.track, max(1, self.parts)).sigmas
        centres = torch.tensor(middles(cut), dtype=torch.float64)
        starts = centres if self.parts else sigmas[:-1]
        ahead = torch.stack([t[self.nodes(k, end)] for t in (centres, starts)]) - sigmas[k]
        rho, lam = ahead[:, :, None] / torch.where(span == 0, torch.inf, span)
        return rho, lam


def middles(sigmas: Sequence[float]) -> list[float]:
    return [(a + b) / 2 for a, b in pairwise(sigmas)]


def between(points: Sequence[float], times: Sequence[float]) -> Tensor:
    """(times, points): interpolation by the cubic through the four nearest points, and beyond the
    ends by the line through the two nearest.
    """
    rows = torch.zeros(len(times), len(points), dtype=torch.float64)
    low, high = min(points), max(points)
    for row, t in zip(rows, times):
        near: list[int] = []
        for i in sorted(range(len(points)), key=lambda i: abs(points[i] - t)):
            if len(near) < (4 if low <= t <= high else 2) and points[i] not in at(points, near):
                near.append(i)
        for i in near:
            others = at(points, [j for j in near if j != i])
            row[i] = math.prod((t - s) / (points[i] - s) for s in others)
    return rows


def at(points: Sequence[float], places: Sequence[int]) -> list[float]:
    return [points[i] for i in places]


def rows_of(track: Track, space: str, solver: str = "euler") -> Tensor:
    """(T, T + 1): every z_n in terms of x_0, v_0 … v_{T−1}."""
    basis = torch.eye(track.steps + 1, dtype=torch.float64)
    if space == "output":
        return basis[1:]
    stepping: Any = SOLVERS[solver](track)
    rows, x = [], basis[0]
    for n in range(track.steps):
        a, b = track.data_map(n)
        rows.append(a * x + b * basis[n + 1])
        x = stepping.step(n, x, basis[n + 1])
    return torch.stack(rows)


def weights_of(track: Track, space: str, solver: str = "euler") -> Tensor:
    """(L + 1, L): what errors of z_0 … z_{L−1} do to x at every grid point, by the solver itself.

    The history that a multistep solver carries past a grid point is left out.
    """
    stepping: Any = SOLVERS[solver](track)
    basis = torch.eye(track.steps, dtype=torch.float64)
    states = [torch.zeros(track.steps, dtype=torch.float64)]
    for n, (x, error) in enumerate(zip(states, basis)):
        if space == "data":
            a, b = track.data_map(n)
            error = (error - a * x) / b if b else torch.zeros_like(x)
        states.append(stepping.step(n, x, error))
    return torch.stack(states)
