"""Track: the σ-grid of one output slot, and what an output on it says about the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .checks import is_number
from .clock import Clock

PREDICTIONS = ("flow", "epsilon", "sample", "v")
SCHEDULES = {
    "flow": lambda sigma: 1 - sigma,
    "vp": lambda sigma: math.sqrt(1 - sigma**2),
    "ve": lambda sigma: 1.0,
}


@dataclass(frozen=True)
class Track:
    """σ_0 … σ_T of one output slot, and how that output relates to the data.

    prediction  "flow": the output is dx/dσ. "epsilon", "sample", "v": the output is the noise, the
                data or v of x = α·x₀ + σ·ε
    alphas      α_0 … α_T; None on a flow track
    data        the σ at which x is data: 0 on most grids, 1 on ascending flows, None if unknown
    """

    sigmas: tuple[float, ...]
    prediction: str = "flow"
    alphas: tuple[float, ...] | None = None
    data: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigmas", check_sigmas(self.sigmas))
        if self.prediction not in PREDICTIONS:
            raise ValueError(
                f"unknown prediction {self.prediction!r}; choose one of {', '.join(PREDICTIONS)}"
            )
        if self.alphas is not None:
            object.__setattr__(self, "alphas", check_alphas(self.alphas, self.sigmas))
        if (self.alphas is None) != (self.prediction == "flow"):
            raise ValueError(f"prediction={self.prediction!r} with alphas={self.alphas!r}")
        if self.data is not None:
            if isinstance(self.data, bool) or not is_number(self.data):
                raise ValueError(f"data is the σ at which x is data, a number; got {self.data!r}")
            object.__setattr__(self, "data", float(self.data))
            if not math.isfinite(self.data):
                raise ValueError(f"data is the σ at which x is data; it is {self.data!r}")

    @property
    def steps(self) -> int:
        return len(self.sigmas) - 1

    def moves(self, n: int) -> bool:
        """Whether stage n has a length."""
        rows = (self.sigmas,) if self.alphas is None else (self.sigmas, self.alphas)
        return any(row[n] != row[n + 1] for row in rows)

    def at(self, points: Sequence[int]) -> Track:
        """The track through some of its grid points."""
        alphas = None if self.alphas is None else tuple(self.alphas[i] for i in points)
        return replace(self, sigmas=tuple(self.sigmas[i] for i in points), alphas=alphas)

    def horizon(self, n: int, k: int, j: int) -> float:
        """ρ in σ (clock.py)."""
        return Clock(self.sigmas).horizon(n, k, j)

    def reach(self, n: int, k: int, j: int) -> float:
        """λ in σ (clock.py)."""
        return Clock(self.sigmas).reach(n, k, j)

    @cached_property
    def levels(self) -> tuple[tuple[float, float], ...] | None:
        """(α, σ) of x = α·x₀ + σ·ε at every grid point; None if the track does not know them."""
        if self.alphas is not None:
            return tuple(zip(self.alphas, self.sigmas))
        inside = min(self.sigmas) >= 0 and max(self.sigmas) <= 1
        if self.data is None or self.data not in (0.0, 1.0) or not inside:
            return None
        return tuple((1 - abs(s - self.data), abs(s - self.data)) for s in self.sigmas)

    @cached_property
    def tau(self) -> tuple[float, ...]:
        """The progress coordinate τ = σ/(α + σ); σ itself on a flow track."""
        if self.alphas is None:
            return self.sigmas
        return tuple(s / (a + s) for a, s in zip(self.alphas, self.sigmas))

    @cached_property
    def noise(self) -> tuple[float, ...] | None:
        """The share of noise σ/(α + σ) of x at every grid point, 1 at noise and 0 at data; None if
        the track does not know it.
        """
        return None if self.levels is None else tuple(s / (a + s) for a, s in self.levels)

    def data_map(self, n: int) -> tuple[float, float]:
        """(a, b) with x̂₀ = a·x + b·output at stage n."""
        if self.prediction == "flow":
            if self.data is None:
                raise ValueError(
                    f"the grid from {self.sigmas[0]:g} to {self.sigmas[-1]:g} does not say "
                    "where the data is; "
                    "pass data=0.0 (noise at 1) or data=1.0 (noise at 0)"
                )
            return 1.0, self.data - self.sigmas[n]
        assert self.alphas is not None
        alpha, sigma = self.alphas[n], self.sigmas[n]
        if self.prediction == "epsilon":
            return 1 / alpha, -sigma / alpha
        if self.prediction == "sample":
            return 0.0, 1.0
        radius = math.hypot(alpha, sigma)
        return alpha / radius**2, -sigma / radius

    def euler(self, n: int) -> tuple[float, float]:
        """(p, g) with x_{n+1} = p·x_n + g·output: Euler on a flow track, DDIM (Euler in σ/α)
        otherwise.
        """
        if self.prediction == "flow":
            return 1.0, self.sigmas[n + 1] - self.sigmas[n]
        assert self.alphas is not None
        (alpha, sigma), (alpha1, sigma1) = ((self.alphas[i], self.sigmas[i]) for i in (n, n + 1))
        if sigma == 0:
            return alpha1 / alpha, 0.0
        a, b = self.data_map(n)
        to_data = alpha1 - alpha * sigma1 / sigma
        return sigma1 / sigma + to_data * a, to_data * b

    def euler_weights(self, stages: range, data_space: bool) -> tuple[float, list[float]]:
        """(A, c) with x_end = A·x_begin + Σ c_n·z_n over the stages, from x' = p·x + g·output."""
        shrink, weights = 1.0, []
        for n in reversed(stages):
            p, g = self.euler(n)
            if data_space:
                a, b = self.data_map(n)
                p, g = (p - g * a / b, g / b) if b else (1.0, 0.0)
            weights.append(g * shrink)
            shrink *= p
        return shrink, weights[::-1]


def check_sigmas(column: Sequence[float]) -> tuple[float, ...]:
    try:
        sigmas = tuple(float(s) for s in column)
    except (TypeError, ValueError):
        raise ValueError(f"a σ-grid is a sequence of numbers, got {column!r}") from None
    if len(sigmas) < 2:
        raise ValueError(f"a σ-grid needs at least two values (one stage), got {sigmas}")
    if not all(math.isfinite(s) for s in sigmas):
        bad = next(i for i, s in enumerate(sigmas) if not math.isfinite(s))
        raise ValueError(f"σ-grid value {bad} is {sigmas[bad]}: every value must be finite")
    rises = np.sign(np.diff(sigmas))
    if (rises > 0).any() and (rises < 0).any():
        turn = int(np.flatnonzero(rises * rises[rises != 0][0] < 0)[0])
        raise ValueError(
            f"the σ-grid must run in one direction, but turns at stage {turn}: "
            f"{', '.join(f'{s:g}' for s in sigmas[max(0, turn - 1) : turn + 2])}"
        )
    return sigmas


def make_track(
    sigmas: tuple[float, ...],
    prediction: str,
    alphas: str | Sequence[float] | None,
    data: float | None,
) -> Track:
    if prediction not in PREDICTIONS:
        return Track(sigmas, prediction)
    if prediction == "flow":
        if alphas is not None and not (isinstance(alphas, str) and alphas == "flow"):
            raise ValueError(
                "alphas are for prediction='epsilon', 'sample' and 'v'; a flow grid has none"
            )
        if data is None:
            return Track(sigmas, data=0.0 if sigmas[0] > sigmas[-1] == 0 else None)
        track, ends = Track(sigmas, data=data), (sigmas[0], sigmas[-1])
        if track.data not in (0, 1, *ends) or min(ends) < track.data < max(ends):
            raise ValueError(
                f"data={data!r} is not where the grid from {ends[0]:g} to {ends[1]:g} has its data:"
                " pass data=0.0 (noise at 1) or data=1.0 (noise at 0)"
            )
        return track
    if min(sigmas) < 0 or sigmas[0] < sigmas[-1]:
        raise ValueError(
            f"prediction={prediction!r} needs noise levels σ that fall towards 0, got {sigmas[:3]}…"
        )
    levels = check_alphas(alphas, sigmas)
    if prediction == "epsilon" and min(levels) == 0:
        raise ValueError(
            "a noise prediction says nothing about the data at α = 0: start the grid below σ = 1"
        )
    return Track(sigmas, prediction, levels, 0.0)


def check_alphas(
    alphas: str | Sequence[float] | None, sigmas: tuple[float, ...]
) -> tuple[float, ...]:
    if alphas is None:
        raise ValueError(
            "predictions of noise, data or v need α of x = α·x₀ + σ·ε: pass alphas='vp' "
            "(α² = 1 − σ²), 've' (α = 1), 'flow' (α = 1 − σ), or the values"
        )
    if not isinstance(alphas, str):
        try:
            values = tuple(float(a) for a in alphas)
        except (TypeError, ValueError):
            raise TypeError(f"alphas must be numbers, one per σ, got {alphas!r}") from None
        if len(values) != len(sigmas):
            raise ValueError(f"alphas has {len(values)} values, the σ-grid {len(sigmas)}")
    elif alphas not in SCHEDULES:
        raise ValueError(
            f"unknown alphas {alphas!r}; choose one of {', '.join(SCHEDULES)}, or give the values"
        )
    elif alphas != "ve" and max(sigmas) > 1:
        raise ValueError(
            f"alphas={alphas!r} needs σ ≤ 1, got {max(sigmas):.10g}; did you mean 've'?"
        )
    else:
        values = tuple(SCHEDULES[alphas](s) for s in sigmas)
    if not all(math.isfinite(a) and a >= 0 for a in values):
        raise ValueError(f"alphas must be finite and not negative, got {values[:4]}…")
    if any(a == s == 0 for a, s in zip(values, sigmas)):
        raise ValueError("α = σ = 0 is neither signal nor noise: check the ends of alphas and σ")
    return values
