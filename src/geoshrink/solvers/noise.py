"""Noise predictions and σ/α, in which solvers act off flow grids."""

from __future__ import annotations

import math

from torch import Tensor

from ..track import Track


def noise_of(track: Track, n: int, x: Tensor, output: Tensor) -> Tensor:
    """ε̂ = (x − α·x̂₀)/σ."""
    if track.prediction == "epsilon":
        return output
    a, b = track.data_map(n)
    alpha, sigma = track.alphas[n], track.sigmas[n]  # type: ignore[index]
    return (x - alpha * (a * x + b * output)) / sigma


def ratios(track: Track) -> list[float]:
    """s = σ/α at every grid point; infinite where α = 0."""
    return [s / a if a else math.inf for a, s in zip(track.alphas, track.sigmas)]  # type: ignore[arg-type]
