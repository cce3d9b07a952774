"""Quality against cost, and the error along the way: a line for each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from geoshrink.page import Section, Series

from ..page import Choice
from ..words import REFERENCE
from .results import Cell, Setting
from .tables import SPEEDUP

Cost = Callable[[Cell], float | None]
Points = dict[str, list[tuple[float, float]]]
EVALUATIONS = "network evaluations"
THEIRS = "as printed"  # the paper's own numbers
COSTS: dict[str, Cost] = {
    EVALUATIONS: lambda cell: None if math.isnan(cell.evaluations) else cell.evaluations,
    "seconds": lambda cell: cell.median,
    "speed-up, ×": lambda cell: cell.speedup,
}


def charts(setting: Setting, shown: Sequence[str]) -> list[Section]:
    """Each metric against evaluations and, where they are known, seconds and the speed-up; then the
    traces.
    """
    found = [
        pareto(setting, metric, reference, shown, cost)
        for metric in setting.metrics
        for reference, cost in [
            *((reference, EVALUATIONS) for reference in setting.references),
            *((setting.references[0], cost) for cost in list(COSTS)[1:] if setting.references),
        ]
    ]
    if any(cell.result.get("trace") for cell in setting.cells):
        found.append(traces(setting, shown))
    return [chart for chart in found if chart.series]


def first_chart(setting: Setting, shown: Sequence[str]) -> Choice | None:
    """The first metric against evaluations, titled by the setting."""
    if not setting.metrics or not setting.references:
        return None
    metric = next(iter(setting.metrics))
    chart = pareto(setting, metric, setting.references[0], shown, EVALUATIONS)
    drawn = [each for each in chart.series if each.label in shown]
    return replace(chart, title=setting.title, series=drawn) if drawn else None


def pareto(
    setting: Setting, metric: str, reference: str, shown: Sequence[str], cost: str
) -> Choice:
    """Beside the speed-up, the paper's own points, too."""
    lines: Points = {}
    identical = False
    for cell in setting.cells:
        mean, paid = cell.mean(metric, reference), COSTS[cost](cell)
        identical |= mean is not None and math.isinf(mean)
        if mean is not None and paid is not None and math.isfinite(mean):
            lines.setdefault(cell.label, []).append((paid, mean))
        if cost.startswith("speed-up") and SPEEDUP in cell.paper and metric in cell.paper:
            points = lines.setdefault(f"{cell.label}, {THEIRS}", [])
            points.append((cell.paper[SPEEDUP], cell.paper[metric]))
    measure, spoken = setting.metrics[metric], cost.split(",")[0].split()[-1]
    title = f"{measure.name} to {REFERENCE[reference]}, by {spoken}"
    caption = "Identical to the reference has no finite value, and no point." if identical else ""
    return choice(title, lines, cost, measure.heading, shown, caption)


def choice(
    title: str, lines: Points, x_label: str, y_label: str, shown: Sequence[str], caption: str
) -> Choice:
    """Only lines with a point are offered, those first that are shown."""
    order = [*(k for k in shown if k in lines), *(k for k in lines if k not in shown)]
    series = [Series(k, *map(list, zip(*sorted(lines[k])))) for k in order]
    first = [label for label in order if label in shown] or order[:1]
    return Choice(title, series, x_label, y_label, caption, chosen=first)


def traces(setting: Setting, shown: Sequence[str]) -> Choice:
    """How far the state is from the full run's at the stages where the network was asked."""
    lines: Points = {}
    for label in setting.labels:
        cell = setting.at.get((label, setting.first_budget))
        trace = (cell.result.get("trace") if cell else None) or []
        points = [(float(n), 100 * error) for n, error in enumerate(trace) if error is not None]
        if points:
            lines[label] = points
    return choice(
        f"Error along the way, B = {setting.first_budget}",
        lines,
        "stage",
        "‖x − x of the full run‖ / ‖x of the full run‖, %",
        shown,
        "Where the network is asked at a σ of the full grid, and at the end.",
    )
