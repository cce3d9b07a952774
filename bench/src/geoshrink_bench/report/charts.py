"""Quality against cost, and the error along the way: a line for each method."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from geoshrink.page import Choice, Section, Series

from ..summary import measure_of
from .ranking import chosen
from .results import Cell, Setting
from .score import Score
from .tables import REFERENCE

Cost = Callable[[Cell], float | None]


def evaluations(cell: Cell) -> float | None:
    return None if math.isnan(cell.evaluations) else cell.evaluations


def seconds(cell: Cell) -> float | None:
    return statistics.median(cell.seconds) if cell.seconds else None


def charts(setting: Setting) -> list[Section]:
    """Each metric against evaluations and, where there are latencies, seconds; then the traces."""
    shown = chosen(setting)
    order = [*shown, *(label for label in setting.labels if label not in shown)]
    found: list[Section] = []
    for metric in setting.metrics:
        for reference in setting.references:
            found.append(
                pareto(setting, metric, reference, order, shown, evaluations, "network evaluations")
            )
        if setting.references and any(cell.seconds for cell in setting.cells):
            first = setting.references[0]
            found.append(pareto(setting, metric, first, order, shown, seconds, "seconds"))
    if any(cell.result.get("trace") for cell in setting.cells):
        found.append(traces(setting, order, shown))
    return found


def first_chart(setting: Setting) -> Choice | None:
    """The first metric against evaluations, titled by the setting."""
    if not setting.metrics or not setting.references:
        return None
    shown = chosen(setting)
    metric, reference = setting.metrics[0], setting.references[0]
    chart = pareto(setting, metric, reference, shown, shown, evaluations, "network evaluations")
    return replace(chart, title=setting.title) if chart.series else None


def pareto(
    setting: Setting,
    metric: str,
    reference: str,
    order: Sequence[str],
    shown: Sequence[str],
    cost: Cost,
    cost_name: str,
) -> Choice:
    series = []
    for label in order:
        points = []
        for budget in setting.budgets:
            cell = setting.at.get((label, budget))
            score = cell.score(metric, reference) if cell else None
            paid = cost(cell) if cell else None
            if isinstance(score, Score) and paid is not None and math.isfinite(score.mean):
                points.append((paid, score.mean))
        points.sort()
        series.append(Series(label, [x for x, _ in points], [y for _, y in points]))
    caption = "Identical to the reference has no finite value, and no point."
    measure = measure_of(metric)
    return choice(
        f"{measure.name} to {REFERENCE[reference]}, by {cost_name.split()[-1]}",
        series,
        cost_name,
        measure.heading,
        shown,
        caption if any_identical(setting, metric, reference) else "",
    )


def choice(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    shown: Sequence[str],
    caption: str,
) -> Choice:
    """Only lines with a point are offered."""
    drawn = [each for each in series if each.points()]
    labels = [each.label for each in drawn]
    return Choice(
        title,
        drawn,
        x_label,
        y_label,
        caption,
        chosen=[label for label in shown if label in labels],
    )


def any_identical(setting: Setting, metric: str, reference: str) -> bool:
    scores = (cell.score(metric, reference) for cell in setting.cells)
    return any(isinstance(score, Score) and math.isinf(score.mean) for score in scores)


def traces(setting: Setting, order: Sequence[str], shown: Sequence[str]) -> Choice:
    """How far the state is from the full run's at the stages where the network was asked."""
    series = []
    for label in order:
        cell = setting.at.get((label, setting.first_budget))
        trace = (cell.result.get("trace") if cell else None) or []
        points = [(n, 100 * error) for n, error in enumerate(trace) if error is not None]
        series.append(Series(label, [n for n, _ in points], [e for _, e in points]))
    return choice(
        f"Error along the way, B = {setting.first_budget}",
        series,
        "stage",
        "‖x − x of the full run‖ / ‖x of the full run‖, %",
        shown,
        "Where the network is asked at a σ of the full grid, and at the end.",
    )
