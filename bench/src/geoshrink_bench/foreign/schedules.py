"""Noise levels of foreign models: σ of a share u of the run, and the model's own time of σ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Protocol


class Schedule(Protocol):
    def sigma(self, u: float) -> float:
        """σ where a share u of the run is left: sigma(0) = 0."""
        ...

    def time(self, sigma: float) -> float:
        """What the network is told at σ."""
        ...


class Linear:
    """x = (1 − σ)·x₀ + σ·ε; the network's time runs from 0 (noise) to 1 (data)."""

    def sigma(self, u: float) -> float:
        return u

    def time(self, sigma: float) -> float:
        return 1 - sigma


class Continuous:
    """The variance-preserving diffusion of Song et al. with β from β₀ to β₁ over t in [0, 1].

    log α = −t²·(β₁ − β₀)/4 − t·β₀/2
    """

    def __init__(self, low: float = 0.1, high: float = 20.0):
        self.low, self.high = low, high

    def sigma(self, u: float) -> float:
        log_alpha = -(u**2) * (self.high - self.low) / 4 - u * self.low / 2
        return math.sqrt(-math.expm1(2 * log_alpha))

    def time(self, sigma: float) -> float:
        """The root t ≥ 0 of t²·(β₁ − β₀)/4 + t·β₀/2 + log α = 0."""
        log_alpha = math.log1p(-(sigma**2)) / 2
        square, line = (self.high - self.low) / 4, self.low / 2
        return (-line + math.sqrt(line**2 - 4 * square * log_alpha)) / (2 * square)


class Discrete:
    """A DDPM's steps t = 1 … N with σ_t² = 1 − ᾱ_t; its network is told t − 1 + first.

    kept    ᾱ_1 … ᾱ_N
    top     the step at which sampling begins, below N where noise alone says nothing
    """

    def __init__(self, kept: Sequence[float], first: int = 1, top: int | None = None):
        self.sigmas = [0.0, *(math.sqrt(1 - share) for share in kept)]
        self.first, self.top = first, len(kept) if top is None else top

    def sigma(self, u: float) -> float:
        return self.sigmas[round(u * self.top)]

    def time(self, sigma: float) -> float:
        steps = range(1, len(self.sigmas))
        return min(steps, key=lambda t: abs(self.sigmas[t] - sigma)) - 1 + self.first


def kept_of(betas: Sequence[float]) -> list[float]:
    """ᾱ_t = (1 − β_1)·…·(1 − β_t)."""
    return list(accumulate((1 - beta for beta in betas), mul))


def linear_betas(low: float, high: float, count: int) -> list[float]:
    """β_1 … β_N evenly spaced from low to high."""
    return [low + (high - low) * i / (count - 1) for i in range(count)]


def cosine_betas(count: int, offset: float = 0.008, most: float = 0.999) -> list[float]:
    """Those of ᾱ(u) = cos²((u + s)/(1 + s)·π/2), by Nichol and Dhariwal."""

    def kept(u: float) -> float:
        return math.cos((u + offset) / (1 + offset) * math.pi / 2) ** 2

    return [min(1 - kept((i + 1) / count) / kept(i / count), most) for i in range(count)]
