"""How many model calls a method needs to come so near to the full run: between the budgets that
were measured, on the line through them; beyond them only which side it is on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..words import DONE, Measure
from .results import Results, Setting

AGAIN = "full run, again"
#: Errors that are counted as dB like PSNR, 20·log₁₀(range / error): the range, and what it is.
RANGES = {
    "MPJPE": (170.0, "a person's height (170 cm)"),
    "SDF error": (300.0, "the range of the truncated distance (300 ‰)"),
}


@dataclass(frozen=True)
class Between:
    """A number of calls, as far as it is known: from low to high.

    >>> print(Between(8.25, 8.25), Between(0, 7), Between(20, math.inf), Between(7, 10), sep=", ")
    8.2, ≤ 7, > 20, 7 to 10
    """

    low: float
    high: float

    @property
    def known(self) -> bool:
        return self.low == self.high

    def __str__(self) -> str:
        return self.text(lambda calls: f"{calls:.1f}" if self.known else f"{calls:.3g}")

    def text(self, said: Callable[[float], str]) -> str:
        if self.known:
            return said(self.low)
        if math.isinf(self.high):
            return f"> {said(self.low)}"
        ends = dict.fromkeys((said(self.low), said(self.high)))
        return " to ".join(ends) if self.low else f"≤ {said(self.high)}"

    def share(self, steps: float) -> Between:
        return Between(self.low / steps, self.high / steps)

    def saving(self, other: Between) -> Saving:
        """Against another number of calls."""
        low = 1 - self.high / other.low if other.low else -math.inf
        return Saving(low, 1 - self.low / other.high)


@dataclass(frozen=True)
class Saving:
    """The share of calls that is saved, as far as it is known; below 0 where more are needed.

    >>> eight, sixteen, few, many = Between(8, 8), Between(16, 16), Between(0, 7), Between(20, 99)
    >>> print(eight.saving(sixteen), few.saving(sixteen), sixteen.saving(eight), sep=", ")
    50 %, ≥ 56 %, −100 %
    """

    low: float
    high: float

    @property
    def known(self) -> bool:
        return math.isfinite(self.low) or self.high < 1

    def __str__(self) -> str:
        low, high = (f"{100 * each:.0f} %".replace("-", "−") for each in (self.low, self.high))
        if self.low == self.high:
            return low
        if math.isinf(self.low):
            return f"≤ {high}"
        return f"≥ {low}" if self.high == 1 else f"{low} to {high}"


def needed(points: Sequence[tuple[float, float]], target: float) -> Between:
    """The calls with which a line through (calls, dB) first reaches a target.

    More calls count as at least as good: whoever has them can make fewer. Between a run and one
    that is identical to the full run there is no line.

    >>> print(needed([(7, 20.0), (10, 26.0)], 23), needed([(7, 20.0)], 23), sep=", ")
    8.5, > 7
    """
    found = sorted(points)
    if found[0][1] >= target:
        return Between(0, found[0][0])
    for (fewer, low), (more, high) in pairwise(found):
        low = max(quality for calls, quality in found if calls <= fewer)
        if high >= target:
            if math.isinf(high):
                return Between(fewer, more)
            calls = fewer + (more - fewer) * (target - low) / (high - low)
            return Between(calls, calls)
    return Between(found[-1][0], math.inf)


def median(found: Sequence[Between]) -> Between:
    """The lower median of numbers of which some are bounds only: what it is at least and at most.

    >>> print(median([Between(3, 3), Between(0, 2), Between(9, math.inf)]))
    3.0
    """
    lows, highs = ([getattr(each, end) for each in found] for end in ("low", "high"))
    return Between(statistics.median_low(lows), statistics.median_low(highs))


def decibels(measure: Measure, mean: float) -> float | None:
    """A mean as dB; None for a metric that has none."""
    if measure.unit == "dB" and measure.better == "higher":
        return mean
    if measure.name in RANGES:
        return 20 * math.log10(RANGES[measure.name][0] / mean) if mean > 0 else math.inf
    return None


class Curves(NamedTuple):
    """Each method's (calls, dB) in one setting by one metric; the calls are those it made."""

    setting: Setting
    measure: Measure
    points: dict[str, list[tuple[float, float]]]

    @property
    def full(self) -> Between | None:
        """The calls of the full run."""
        steps = self.setting.spec.get("steps")
        return Between(steps, steps) if steps else None

    def calls(self, target: float) -> dict[str, Between]:
        return {label: needed(found, target) for label, found in self.points.items()}


def curves(results: Results) -> list[Curves]:
    """Of every setting and metric that is counted in dB; a method needs two numbers of calls."""
    return [
        Curves(setting, measure, points)
        for setting in results.settings
        for metric, measure in setting.metrics.items()
        if (points := points_of(setting, metric, measure))
    ]


def points_of(
    setting: Setting, metric: str, measure: Measure
) -> dict[str, list[tuple[float, float]]]:
    points: dict[str, dict[float, float]] = {}
    for cell in setting.cells:
        mean = cell.mean(metric) if cell.status == DONE and cell.label != AGAIN else None
        value = None if mean is None else decibels(measure, mean)
        if value is not None and not math.isnan(cell.evaluations):
            points.setdefault(cell.label, {})[cell.evaluations] = value
    return {label: [*each.items()] for label, each in points.items() if len(each) > 1}


def measured_by(found: Sequence[Curves]) -> str:
    """Which models are measured by what, in words."""
    by: dict[str, dict[str, None]] = {}
    for each in found:
        by.setdefault(each.measure.name, {})[each.setting.model] = None
    return "; ".join(f"{said(name)}: {', '.join(models)}" for name, models in by.items())


def said(metric: str) -> str:
    if metric in RANGES:
        return f"20·log₁₀ of {RANGES[metric][1]} over the {metric}"
    return "energy of the full run over the error's" if metric == "dB" else metric


def labels_in(found: Sequence[Curves]) -> Iterator[str]:
    yield from dict.fromkeys(label for each in found for label in each.points)
