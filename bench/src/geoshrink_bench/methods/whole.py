"""For caches that reuse what transformer blocks add, on a network of any kind: the whole network
in the place of the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable

from .base import Case
from .output import Parts
from .taylorseer import OutputForecast, Series, TaylorSeer

#: What is extrapolated: what the network's output differs by from x, or the output.
REUSES = ("input", "output")


class Reused(OutputForecast):
    """At a skipped stage a Taylor sum in stages, from stage `first` on. A regime begins anew."""

    def __init__(self, case: Case, stages: Iterable[int], order: int, reuse: str, first: int = 0):
        super().__init__(case, stages, lambda: Series(order, first, TaylorSeer().weight))
        self.regimes = frozenset(case.grid().regimes)
        self.rest = 1 if reuse == "input" else 0  # so many times x

    def observe(self, x: Parts, output: Parts) -> None:
        super().observe(x, [part - given if self.rest else part for part, given in zip(output, x)])

    def predict(self, x: Parts) -> Parts:
        parts = super().predict(x)
        return [part + given if self.rest else part for part, given in zip(parts, x)]


def check_reuse(reuse: str) -> str:
    if reuse not in REUSES:
        raise ValueError(f"reuse is one of {', '.join(REUSES)}; got {reuse!r}")
    return reuse
