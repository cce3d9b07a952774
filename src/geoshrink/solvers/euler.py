"""euler: one slope per stage."""

from __future__ import annotations

from torch import Tensor

from .registry import Solver


class Euler(Solver):
    """x' = x + h·v on a flow grid; DDIM, which is Euler in σ/α, for noise, data and v outputs."""

    name, order = "euler", 1

    def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        if not self.track.moves(n):
            return x
        p, g = self.track.euler(n)
        return ((x if p == 1 else p * x) + g * output).to(x.dtype)
