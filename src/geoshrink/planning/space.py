"""Full runs as numbers: the Gram matrix of a run, and the same run seen in output or data space.

A run under Euler (DDIM off flow grids) is linear in its noise x_0 and its outputs v_0 … v_{T−1}. So
is everything that a prediction from two anchors does to it: their (T + 1)×(T + 1) Gram matrix, one
per sample and slot, holds all that planning needs of the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..grid import Track

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

    products   (samples, L, L), the Gram matrix of z
    weights    (L + 1, L): errors of z move x at stage l by Σ_{n<l} weights[l, n]·(error of z_n)
    """

    products: Tensor
    weights: Tensor
    track: Track

    @classmethod
    def of(cls, track: Track, products: Tensor, space: str, first: int, last: int) -> View:
        """From the Gram matrix of x_0, v_0 … v_{T−1}."""
        rows = rows_of(track, space)[first:last]
        weights = weights_of(track, space, first, last)
        return cls(rows @ products @ rows.T, weights, track.at(range(first, last + 1)))

    @property
    def stages(self) -> int:
        return self.products.shape[1]

    def horizons(self, k: int, past: list[int]) -> tuple[Tensor, Tensor]:
        """ρ and λ of the stages after k, from anchors j of `past` and k; (n, j)."""
        sigmas = torch.tensor(self.track.sigmas, dtype=torch.float64)
        span = sigmas[k] - sigmas[past]
        middles = (sigmas[k + 1 : -1] + sigmas[k + 2 :]) / 2
        ahead = torch.stack([middles, sigmas[k + 1 : -1]]) - sigmas[k]
        rho, lam = ahead[:, :, None] / torch.where(span == 0, torch.inf, span)
        return rho, lam


def rows_of(track: Track, space: str) -> Tensor:
    """(T, T + 1): every z_n in terms of x_0, v_0 … v_{T−1}."""
    steps = track.steps
    basis = torch.eye(steps + 1, dtype=torch.float64)
    if space == "output":
        return basis[1:]
    rows, x = [], basis[0]
    for n in range(steps):
        (a, b), (p, g) = track.data_map(n), track.euler(n)
        rows.append(a * x + b * basis[n + 1])
        x = p * x + g * basis[n + 1]
    return torch.stack(rows)


def weights_of(track: Track, space: str, first: int, last: int) -> Tensor:
    weights = torch.zeros(last - first + 1, last - first, dtype=torch.float64)
    for n in range(first, last):
        p, g = track.euler(n)
        if space == "data":
            a, b = track.data_map(n)
            p, g = (p - g * a / b, g / b) if b else (1.0, 0.0)
        weights[n - first + 1] = p * weights[n - first]
        weights[n - first + 1, n - first] = g
    return weights
