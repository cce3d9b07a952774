"""dpm++2m: two data predictions, exponential in the signal-to-noise ratio."""

from __future__ import annotations

import math

from torch import Tensor

from ..track import Track
from .registry import Solver


class DPMpp2M(Solver):
    """DPM-Solver++(2M) (Lu et al., 2022): two data predictions, exponential in λ = log(α/σ).

    The first step and a last step onto the data are of order 1, as in the authors' code.
    """

    name, order = "dpm++2m", 2

    def __init__(self, track: Track):
        if track.levels is None:
            raise ValueError(
                "solver='dpm++2m' needs to know signal and noise level of every stage: pass "
                "data=0.0 or data=1.0 for "
                "a flow grid within [0, 1], or alphas for other outputs"
            )
        super().__init__(track)
        self.levels = track.levels
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


def log_ratio(alpha: float, sigma: float) -> float:
    if sigma == 0:
        return math.inf
    return math.log(alpha / sigma) if alpha > 0 else -math.inf
