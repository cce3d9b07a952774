"""HiCache (Feng et al., 2025): TaylorSeer's differences on scaled Hermite polynomials."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

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
        return self.scale**j * hermite(j, self.scale * k) / factorial(j)


def hermite(j: int, x: float) -> float:
    """H_0 = 1, H_1 = 2x, H_{j+1} = 2x·H_j − 2j·H_{j−1}.

    >>> [hermite(j, 1.0) for j in range(5)]
    [1.0, 2.0, 2.0, -4.0, -20.0]
    """
    before, value = 0.0, 1.0
    for i in range(j):
        before, value = value, 2 * x * value - 2 * i * before
    return value
