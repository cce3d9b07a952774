"""The solvers of sample(): what x_{n+1} becomes, given x_n and the output of stage n. One object
per output slot.

All of them see a Track, so each works for flow, noise, data and v outputs alike.
"""

from __future__ import annotations

import math

from torch import Tensor

from .grid import Track


class Euler:
    """x' = x + h·v on a flow grid; DDIM, which is Euler in σ/α, for noise, data and v outputs."""

    order = 1

    def __init__(self, track: Track):
        self.track = track

    def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        if not self.track.moves(n):
            return x
        p, g = self.track.euler(n)
        return ((x if p == 1 else p * x) + g * output).to(x.dtype)


class AB2:
    """Adams–Bashforth of order 2 with variable steps: the slope is v + h/(2h⁻)·(v − v⁻); first step
    Euler.

    Off flow grids it acts on y = x/α in s = σ/α, where dy/ds = ε.
    """

    order = 2

    def __init__(self, track: Track):
        self.track = track
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


class DPMpp2M:
    """DPM-Solver++(2M) (Lu et al., 2022): two data predictions, exponential in λ = log(α/σ).

    The first step and a last step onto the data are of order 1, as in the authors' code.
    """

    order = 2

    def __init__(self, track: Track):
        if track.levels is None:
            raise ValueError(
                "solver='dpm++2m' needs to know signal and noise level of every stage: pass "
                "data=0.0 or data=1.0 for "
                "a flow grid within [0, 1], or alphas for other outputs"
            )
        self.track, self.levels = track, track.levels
        self.last: tuple[Tensor, float] | None = None  # the data prediction before, and its λ
        self.log_snr = [log_ratio(a, s) for a, s in self.levels]

    def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        if not self.track.moves(n):
            return x
        a, b = self.track.data_map(n)
        data = a * x + b * output
        (alpha, sigma), (alpha1, sigma1) = self.levels[n], self.levels[n + 1]
        mixed = data
        if self.last is not None and sigma1 > 0:
            h, before = self.log_snr[n + 1] - self.log_snr[n], self.log_snr[n] - self.last[1]
            mixed = data + h / (2 * before) * (data - self.last[0])
        self.last = data, self.log_snr[n]
        ratio = sigma1 / sigma
        return (ratio * x + (alpha1 - alpha * ratio) * mixed).to(x.dtype)


class Heun:
    """The mean of the slopes at both ends (Karras et al., 2022): two evaluations a stage, one in
    the last.
    """

    order = 2

    def __init__(self, track: Track):
        self.track = track

    def first(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        return Euler(self.track).step(n, x, output)

    def second(self, n: int, x: Tensor, output: Tensor, ahead: Tensor, there: Tensor) -> Tensor:
        """x' from the output at (x, σ_n) and the output `there` at (ahead, σ_{n+1})."""
        if not self.track.moves(n):
            return x
        if self.track.prediction == "flow":
            h = self.track.sigmas[n + 1] - self.track.sigmas[n]
            return (x + h * (output + there) / 2).to(x.dtype)
        alpha, alpha1 = self.track.alphas[n], self.track.alphas[n + 1]  # type: ignore[index]
        if alpha == 0 or self.track.sigmas[n + 1] == 0:  # no slope at one of the ends
            return ahead
        slopes = noise_of(self.track, n, x, output), noise_of(self.track, n + 1, ahead, there)
        s = ratios(self.track)
        return ((alpha1 / alpha) * x + alpha1 * (s[n + 1] - s[n]) * (slopes[0] + slopes[1]) / 2).to(
            x.dtype
        )


SOLVERS = {"euler": Euler, "ab2": AB2, "heun": Heun, "dpm++2m": DPMpp2M}


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


def log_ratio(alpha: float, sigma: float) -> float:
    if sigma == 0:
        return math.inf
    return math.log(alpha / sigma) if alpha > 0 else -math.inf
