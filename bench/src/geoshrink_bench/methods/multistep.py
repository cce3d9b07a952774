"""UniPC and DEIS, as sample()'s solvers are made: one object per output slot, any prediction.

Both see the data prediction x̂₀ and λ = log(α/σ); their coefficients agree with diffusers'
schedulers, where those can run on a given grid.
"""

from __future__ import annotations

import math

from torch import Tensor

from geoshrink.grid import Track

#: Pure noise has λ = −∞; diffusers starts at α = 1e-6 instead, and so do we.
FLOOR = 1e-6


class Multistep:
    def __init__(self, track: Track):
        if track.levels is None:
            raise ValueError("UniPC and DEIS need to know the signal and noise level of every σ")
        self.track, self.levels, self.steps = track, track.levels, track.steps
        self.log_snr = [math.log(max(a, FLOOR) / s) if s else math.inf for a, s in self.levels]

    def data(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        a, b = self.track.data_map(n)
        return a * x + b * output

    def ddim(self, n: int, x: Tensor, data: Tensor) -> Tensor:
        """σ'/σ·x + (α' − α·σ'/σ)·x̂₀"""
        (alpha, sigma), (alpha1, sigma1) = self.levels[n], self.levels[n + 1]
        ratio = sigma1 / sigma
        return ratio * x + (alpha1 - alpha * ratio) * data


class UniPC(Multistep):
    """UniPC-2 with B(h) = e^h − 1 in data prediction (Zhao et al., 2023), diffusers' defaults.

    Order 1 in the first and the last step. Every evaluation first corrects the step that led to
    it, so the corrector costs none; the last step has no corrector.
    """

    def __init__(self, track: Track):
        super().__init__(track)
        self.past: list[tuple[int, Tensor]] = []  # (stage, x̂₀), the latest two, latest first
        self.before: Tensor | None = None  # x at the latest of them
        self.order = 1

    def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        if not self.track.moves(n):
            return x
        data = self.data(n, x, output)
        if self.before is not None:
            x = self.correct(n, data)
        self.past, self.before = [(n, data), *self.past[:1]], x
        self.order = min(len(self.past), 2 if n < self.steps - 1 else 1)
        following = self.ddim(n, x, data)
        if self.order == 2:
            decay = self.shape(n + 1)[1]
            following = following - self.levels[n + 1][0] * decay / 2 * self.slope(n + 1)
        return following.to(x.dtype)

    def correct(self, n: int, data: Tensor) -> Tensor:
        """x_n anew, now that x̂₀ is known there."""
        assert self.before is not None
        k, first = self.past[0]
        (h, decay, r), change = self.shape(n), data - first
        if self.order == 1:
            mixed = change / 2
        else:
            one = (decay / -h - 1) / decay
            two = 2 * ((decay / -h - 1) / -h - 1 / 2) / decay
            rho = (one - two) / (1 - r)
            mixed = rho * self.slope(n) + (one - rho) * change
        return self.ddim(k, self.before, first) - self.levels[n][0] * decay * mixed

    def shape(self, n: int) -> tuple[float, float, float]:
        """(h, e^−h − 1, r) of the step to point n: r is where the x̂₀ before lies, in steps h."""
        k = self.past[0][0]
        h = self.log_snr[n] - self.log_snr[k]
        before = self.log_snr[self.past[1][0]] if len(self.past) > 1 else self.log_snr[k]
        return h, math.expm1(-h), (before - self.log_snr[k]) / h

    def slope(self, n: int) -> Tensor:
        """How x̂₀ changed last, per step h to point n."""
        (_, last), (_, before) = self.past
        return (before - last) / self.shape(n)[2]


class DEIS(Multistep):
    """DEIS of order 2 with log ρ, ρ = σ/α (Zhang & Chen, 2023), as in diffusers.

    The line through two noise predictions over log ρ is integrated over ρ. The first step is of
    order 1, and the last where it ends at the data or the grid has less than 15 steps. (On flow
    grids diffusers' own last step has length zero; ours goes to the end.)
    """

    def __init__(self, track: Track):
        super().__init__(track)
        self.last: tuple[Tensor, float] | None = None  # ε̂ and log ρ

    def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        if not self.track.moves(n):
            return x
        data, (alpha, sigma) = self.data(n, x, output), self.levels[n]
        noise, here = (x - alpha * data) / sigma, -self.log_snr[n]
        last, self.last = self.last, (noise, here)
        alpha1, sigma1 = self.levels[n + 1]
        short = n == self.steps - 1 and self.steps < 15
        following = self.ddim(n, x, data)
        if last is not None and sigma1 > 0 and not short:
            # ∫ (log ρ − here) dρ from ρ to ρ', for the slope of the line
            there = -self.log_snr[n + 1]
            rho, rho1 = math.exp(here), math.exp(there)
            moment = rho1 * (there - here - 1) + rho
            slope = (noise - last[0]) / (here - last[1])
            following = following + alpha1 * moment * slope
        return following.to(x.dtype)
