"""A small curved flow in double precision to profile and plan, and a shifted grid for it."""

from __future__ import annotations

import math

import torch

SIZE = 6


def shifted(steps: int, shift: float = 3.0) -> list[float]:
    return [shift * u / (1 + (shift - 1) * u) for u in (1 - i / steps for i in range(steps + 1))]


class Toy:
    """A velocity that counts its calls."""

    def __init__(self, seed: int = 0, rate: float = 2.0):
        generator = torch.Generator().manual_seed(seed)
        self.matrix = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float64)
        self.rate, self.calls = rate, 0

    def __call__(self, x: torch.Tensor, sigma: float) -> torch.Tensor:
        self.calls += 1
        return self.rate * torch.tanh(x @ self.matrix) + math.sin(5 * sigma) * x


def noise(samples: int = 4, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, SIZE, generator=generator, dtype=torch.float64)
