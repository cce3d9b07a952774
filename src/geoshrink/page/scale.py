"""Where a value lies along an axis, and which round values to label it with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] linearly onto [start, end], with a label at each multiple of `step`."""

    low: float
    high: float
    step: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float, count: int = 5) -> Scale:
        """A scale that reaches from round number to round number around the values."""
        found = list(values) or [0.0, 1.0]
        low, high = min(found), max(found)
        if low == high:
            margin = abs(low) / 10 or 1.0
            low, high = low - margin, high + margin
        step = round_step((high - low) / count)
        return cls(math.floor(low / step) * step, math.ceil(high / step) * step, step, start, end)

    @classmethod
    def between(cls, low: float, high: float, start: float, end: float, count: int = 5) -> Scale:
        """A scale of exactly this range."""
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"a range must rise from one number to another, not {low} to {high}")
        return cls(low, high, round_step((high - low) / count), start, end)

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self) -> list[tuple[float, str]]:
        """Each labelled value and its label."""
        slack = 1e-9
        first = math.ceil(self.low / self.step - slack)
        last = math.floor(self.high / self.step + slack)
        decimals = max(0, -math.floor(math.log10(self.step) + slack))
        plain = decimals <= 4 and max(abs(self.low), abs(self.high)) < 1e6
        form = f".{decimals}f" if plain else ".3g"
        values = (number * self.step for number in range(first, last + 1))
        return [(value, minus(f"{value:{form}}")) for value in values]


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def minus(number: str) -> str:
    """The number with a true minus sign."""
    return number.replace("-", "−")
