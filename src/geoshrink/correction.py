"""Correction: how a skipped cell is put right once the anchor that ends it is known. Plain data.

Between its anchors k and l a cell was extrapolated, ẑ_n = z_k + ω_n·Δz. When z_l is known it can be
interpolated, z̃_n = z_k + s_n·(z_l − z_k), and a solver that is linear ends up elsewhere by

    d = Σ c_n·(z̃_n − ẑ_n) = a·(z_l − z_k) − b·Δz,    a = Σ c_n·s_n,  b = Σ c_n·ω_n

where c_n is what x_l owes to z_n. The state moves by d, and the output, which was evaluated where
the state was, moves as if x̂₀ had moved by K·d.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checks import is_number

#: K of a flow at σ = τ. Elsewhere x/(α + σ) is a flow's state at τ = σ/(α + σ), so K = κ/(α + σ).
GAINS: dict[str, Callable[[float], float]] = {
    "half": lambda tau: 0.5,
    "linear": lambda tau: 1 - tau,
    "gaussian": lambda tau: (1 - tau) / ((1 - tau) ** 2 + tau**2),
}


@dataclass(frozen=True)
class Correction:
    """How a cell is corrected.

    gain      K, the part of the state's move that the data prediction makes with it: "half" (½),
              "linear" (1 − σ), "gaussian" (of data with mean 0 and variance 1), or a number
    caution   q: d shrinks by (1 + r²)^−q, where r = ‖ẑ_l − z_l‖/‖z_l − z_k‖ says how wrong the
              prediction of the anchor itself was; 0 keeps all of d
    """

    gain: str | float = "half"
    caution: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.gain, str) and self.gain not in GAINS:
            raise ValueError(
                f"unknown gain {self.gain!r}; choose one of {', '.join(GAINS)}, or give a number"
            )
        if not isinstance(self.gain, str):
            object.__setattr__(self, "gain", number("gain", self.gain))
        object.__setattr__(self, "caution", number("caution", self.caution))
        if self.caution < 0:
            raise ValueError(f"caution is 0 or more, got {self.caution!r}")

    @classmethod
    def of(cls, given: Any) -> Correction | None:
        """What people pass as `correct`: False or None, True, a gain, or a Correction."""
        if given is None:
            return None
        if isinstance(given, (bool, np.bool_)):
            return cls() if given else None
        if isinstance(given, cls):
            return given
        if isinstance(given, str) or is_number(given):
            return cls(gain=given)
        if isinstance(given, Mapping) and set(given) <= {"gain", "caution"}:
            return cls(**given)
        raise TypeError(
            f"correct={given!r} is not a correction: give True, a gain ({', '.join(GAINS)}, or a "
            "number) or geoshrink.Correction(gain=…, caution=…)"
        )

    def data_gain(self, alpha: float, sigma: float) -> float:
        """K where x = α·x₀ + σ·ε."""
        tau = sigma / (alpha + sigma)
        kappa = GAINS[self.gain](tau) if isinstance(self.gain, str) else self.gain
        return kappa / (alpha + sigma)

    def __str__(self) -> str:
        gain = self.gain if isinstance(self.gain, str) else f"{self.gain:g}"
        return f"{gain}, caution {self.caution:g}" if self.caution else gain


FEW = 8  # anchors up to which the default is cautious
CAUTION = 0.5


def usual(budget: int) -> Correction:
    """The default's: K = ½, cautious where few anchors make long cells (benchmarks/default.md)."""
    return Correction(caution=CAUTION if budget <= FEW else 0.0)


def number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{name} is a finite number, got {value!r}")
    return float(value)
