"""The words of the tables: how a setting, a method and a metric are called."""

from __future__ import annotations

import statistics
from typing import Any, Literal, NamedTuple

from .metrics.zoo import OF_MODEL, PICTURES

Spec = dict[str, Any]


class Measure(NamedTuple):
    """How a metric is shown; `better` is None where the metric is not known here."""

    name: str
    unit: str
    better: Literal["higher", "lower"] | None
    version: str | None = None

    @property
    def heading(self) -> str:
        arrow = {"higher": " ↑", "lower": " ↓", None: ""}[self.better]
        return f"{self.name}, {self.unit}{arrow}" if self.unit else f"{self.name}{arrow}"


def measure_of(name: str) -> Measure:
    for measured in (*PICTURES, *(m for each in OF_MODEL.values() for m in each)):
        metric = measured.metric
        if metric.name == name:
            better = "higher" if metric.higher else "lower"
            return Measure(name, metric.unit, better, metric.version)
    return Measure(name, "", None)


def title_of(setting: Spec) -> str:
    shift = setting["shift"]
    text = f"{setting['model']}, {setting['steps']} steps, guidance {setting['guidance']:g}, shift "
    text += " and ".join(f"{s:g}" for s in (shift if isinstance(shift, list) else [shift]))
    if setting["interval"]:
        text += " for σ in [{:g}, {:g}]".format(*setting["interval"])
    if setting["lengths"]:
        text += f", lengths {' and '.join(map(str, setting['lengths']))}"
    return text


def label_of(spec: Spec) -> str:
    options = ", ".join(f"{k} {v}" for k, v in spec["options"].items())
    return f"{spec['method']} ({options})" if options else spec["method"]


def by_seed(each: list[float], seeds: int) -> tuple[float, float]:
    """(mean, sd over seeds of the mean over samples)."""
    size = len(each) // seeds
    means = [statistics.fmean(each[i * size : (i + 1) * size]) for i in range(seeds)]
    return statistics.fmean(means), statistics.stdev(means) if seeds > 1 else 0.0
