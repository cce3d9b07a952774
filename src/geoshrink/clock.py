"""Clock: the coordinate in which distances between stages are measured, σ or the auto mesh's y."""

from __future__ import annotations

import math
from dataclasses import dataclass

CLOCKS = ("sigma", "mesh")


@dataclass(frozen=True)
class Clock:
    """The time of every grid point, 0 … T."""

    times: tuple[float, ...]

    def horizon(self, n: int, k: int, j: int, i: int | None = None) -> float:
        """ρ: from anchor k to the midpoint of update n, in units of the span of Δ (eq. gs-rho).

        Δ spans from anchor j to k; with an i, from i to j, which both lie before k.
        """
        return self.ratio((self.times[n] + self.times[n + 1]) / 2, k, j, i)

    def reach(self, n: int, k: int, j: int, i: int | None = None) -> float:
        """λ: from anchor k to stage n, in the same units (eq. gs-time-ratio)."""
        return self.ratio(self.times[n], k, j, i)

    def share(self, n: int, k: int, end: int) -> float:
        """s: how far stage n is on the way from anchor k to anchor `end`, 0 to 1."""
        span = self.times[end] - self.times[k]
        return (self.times[n] - self.times[k]) / span if span else 0.0

    def ratio(self, time: float, k: int, j: int, i: int | None = None) -> float:
        late, early = (k, j) if i is None else (j, i)
        span = self.times[late] - self.times[early]
        return (time - self.times[k]) / span if span else math.inf
