"""The words of the tables: how a method, a setting and a metric are called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .score import IDENTICAL

REFERENCE = {"full": "the full run", "converged": "the converged flow"}
FREE, CALIBRATED = "calibration-free", "calibrated"
#: How the forms of ours are called; suites, and so the names of cells, have the older names.
FORMS = {
    "GeoShrink (published)": "paper",
    "GeoShrink (corrected)": "geoshrink",
    "GeoShrink (default)": "uncorrected",
    "GeoShrink (planned)": "planned",
    "GeoShrink (learned)": "learned",
}
DONE, FAILED, NOT_RUN, SKIPPED = "done", "failed", "not run", "skipped"


class Measure(NamedTuple):
    """How a metric is shown; `better` is None where the metric is not known here."""

    name: str
    unit: str = ""
    better: Literal["higher", "lower"] | None = None
    version: str | None = None

    @classmethod
    def of(cls, metric: Any, name: str = "") -> Measure:
        """From anything that has a name, a unit, a direction and a version."""
        better = "higher" if metric.higher else "lower"
        return cls(name or metric.name, metric.unit, better, metric.version)

    def lead(self, mine: float, other: float) -> float:
        """By how many dB one mean is better than another; not a number where that is unknown.

        >>> Measure("PSNR", "dB", "higher").lead(32.0, 30.0)
        2.0
        >>> Measure("MPJPE", "cm", "lower").lead(1.0, 10.0)
        20.0
        >>> Measure("MPJPE", "cm", "lower").lead(1.0, 0.0)
        -inf
        """
        if self.better == "higher":
            return mine - other
        if self.better == "lower" and mine > 0 and other > 0:
            return 20 * math.log10(other / mine)
        if self.better == "lower" and min(mine, other) == 0 < max(mine, other):
            return math.inf if mine < other else -math.inf
        return math.nan

    def spoken(self, value: Any) -> str:
        """One sample's number in words; nothing where there is none."""
        if not isinstance(value, (int, float)):
            return ""
        return "identical" if value == IDENTICAL else f"{value:.4g} {self.unit}".strip()

    @property
    def heading(self) -> str:
        arrow = {"higher": " ↑", "lower": " ↓", None: ""}[self.better]
        return f"{self.name}, {self.unit}{arrow}" if self.unit else f"{self.name}{arrow}"


@dataclass
class Row:
    """One method as a suite sets it.

    setting     how the paper writes its options
    paper       the numbers that the paper gives for it
    """

    method: str
    budget: int | None = None
    setting: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The method with its options, or with the words that stand for them.

        >>> Row("FORA", options={"interval": 3}).label, Row("FORA", 10, "N = 3").title
        ('FORA (interval 3)', 'FORA, N = 3, B = 10')
        """
        method = FORMS.get(self.method, self.method)
        given = ", ".join(f"{name} {value}" for name, value in self.options.items())
        if self.setting:
            return f"{method}, {self.setting}"
        return f"{method} ({given})" if given else method

    @property
    def title(self) -> str:
        return self.label if self.budget is None else f"{self.label}, B = {self.budget}"


def title_of(setting: Mapping[str, Any]) -> str:
    """Of a model of the zoo at one guidance, shift and length."""
    text = f"{setting['model']}, {setting['steps']} steps, guidance {setting['guidance']:g}, "
    text += f"shift {shift_of(setting)}{interval_of(setting)}"
    lengths = setting["lengths"]
    return text + (f", lengths {' and '.join(map(str, lengths))}" if lengths else "")


def interval_of(setting: Mapping[str, Any]) -> str:
    """Where guidance acts."""
    return " for σ in [{:g}, {:g}]".format(*setting["interval"]) if setting["interval"] else ""


def shift_of(setting: Mapping[str, Any]) -> str:
    shift = setting["shift"]
    return " and ".join(f"{s:g}" for s in (shift if isinstance(shift, list) else [shift]))


def many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
