"""HiCache (Feng et al., 2025): TaylorSeer's differences on scaled Hermite polynomials."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

from numpy.polynomial.hermite import hermval

from .taylorseer import TaylorSeer


@dataclass(eq=False)
class HiCache(TaylorSeer):
    """Every branch's output k stages after the last full one is Σ_j D_j·s^j·H_j(s·k)/j!.

    H_j are the physicists' polynomials, so the first weight is 2·s²·k: half of Taylor's at s = 0.5.
    Schedule and differences are TaylorSeer's; order 2 as in the paper's runs on FLUX (N = 7 there).
    """

    name = "HiCache"
    order: int = 2
    scale: float = 0.5

    def weight(self, j: int, k: int) -> float:
        hermite = float(hermval(self.scale * k, [0] * j + [1]))
        return self.scale**j * hermite / factorial(j)
