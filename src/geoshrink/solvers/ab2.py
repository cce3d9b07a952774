"""ab2: Adams–Bashforth with two slopes."""

from __future__ import annotations

import math

from torch import Tensor

from ..track import Track
from .euler import Euler
from .noise import noise_of, ratios
from .registry import Solver


class AB2(Solver):
    """Adams–Bashforth of order 2 with variable steps: the slope is v + h/(2h⁻)·(v − v⁻); first step
    Euler.

    Off flow grids it acts on y = x/α in s = σ/α, where dy/ds = ε.
    """

    name, order = "ab2", 2

    def __init__(self, track: Track):
        super().__init__(track)
        self.last: tuple[Tensor, float] | None = None  # the slope before, and its time

    def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        if not self.track.moves(n):
            return x
        slope, times = output, self.track.sigmas
        if self.track.prediction != "flow":
            slope, times = noise_of(self.track, n, x, output), ratios(self.track)
        h, mixed = times[n + 1] - times[n], slope
        if self.last is not None and math.isfinite(self.last[1]):
            mixed = slope + h / (2 * (times[n] - self.last[1])) * (slope - self.last[0])
        self.last = slope, times[n]
        if self.track.prediction == "flow":
            return (x + h * mixed).to(x.dtype)
        alpha, alpha1 = self.track.alphas[n], self.track.alphas[n + 1]  # type: ignore[index]
        if alpha == 0:  # pure noise: s is infinite there, DDIM is its limit
            return Euler(self.track).step(n, x, output)
        return ((alpha1 / alpha) * x + alpha1 * h * mixed).to(x.dtype)
