"""Who is best where, among the methods that kept to the budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..methods.ours import OURS as FORMS
from ..summary import Measure, measure_of
from .results import NOT_RUN, Results, Setting
from .score import Score

OURS, PUBLISHED, DIRECT = "GeoShrink (default)", "GeoShrink (published)", "direct"
SHOWN = 7  # lines of a chart at first: as many as there are colours


def is_ours(label: str) -> bool:
    """Whether a method is a form of ours, with whatever options."""
    return label in FORMS or label.startswith("GeoShrink")


def contest(setting: Setting, budget: int, metric: str, reference: str) -> dict[str, float]:
    """The means of the methods that ran and kept to the budget, by label."""
    means = {}
    for label in setting.labels:
        cell = setting.at.get((label, budget))
        if cell is not None and cell.competes:
            score = cell.score(metric, reference)
            if isinstance(score, Score):
                means[label] = score.mean
    return means


def ranked(means: dict[str, float], measure: Measure) -> list[str]:
    """Labels from the best to the worst; nothing where the metric has no direction."""
    if measure.better is None:
        return []
    return sorted(means, key=means.__getitem__, reverse=measure.better == "higher")


def decided(setting: Setting, budget: int, metric: str, reference: str) -> bool:
    """Whether every method has run, or failed: who wins before that has beaten only some."""
    cells = [cell for (_, b), cell in setting.at.items() if b == budget]
    return all(cell.score(metric, reference) != NOT_RUN for cell in cells)


def contests(results: Results, reference: str) -> Iterator[tuple[Setting, list[str] | None]]:
    """(setting, who is best: several where their means are equal) for all budgets and metrics.

    None where the contest is not decided.
    """
    for setting in results.settings:
        for metric in setting.metrics:
            for budget in setting.budgets:
                if not decided(setting, budget, metric, reference):
                    yield setting, None
                    continue
                means = contest(setting, budget, metric, reference)
                order = ranked(means, measure_of(metric))
                if order:
                    yield setting, [label for label in order if means[label] == means[order[0]]]


def chosen(setting: Setting) -> list[str]:
    """What a chart shows at first: ours, as published, direct, and the best of the rest by mean
    rank over budgets and metrics, rivals before other forms of ours.
    """
    ranks: dict[str, list[float]] = defaultdict(list)
    for metric in setting.metrics:
        for budget in setting.budgets:
            for reference in setting.references[:1]:
                means = contest(setting, budget, metric, reference)
                for rank, label in enumerate(ranked(means, measure_of(metric))):
                    ranks[label].append(rank)
    first = [label for label in (OURS, PUBLISHED, DIRECT) if label in setting.labels]
    mean = {label: sum(found) / len(found) for label, found in ranks.items()}
    rest = sorted(mean.keys() - first, key=lambda label: (is_ours(label), mean[label], label))
    return [*first, *rest[: SHOWN - len(first)]]
