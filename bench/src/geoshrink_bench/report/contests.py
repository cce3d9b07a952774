"""Who is best where: one contest for each setting, budget, metric and reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..words import NOT_RUN, Measure
from .results import Cell, Results, Setting

OURS, PUBLISHED, DIRECT = "geoshrink", "paper", "direct"
SHOWN = 7  # lines of a chart at first: as many as there are colours


@dataclass(frozen=True)
class Contest:
    """All that ran, by label."""

    setting: Setting
    metric: str
    budget: int
    reference: str
    cells: dict[str, Cell]

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.setting.title, self.reference, self.metric, self.budget

    @property
    def measure(self) -> Measure:
        return self.setting.metrics[self.metric]

    @property
    def decided(self) -> bool:
        """Whether every method has run, or failed: who wins before that has beaten only some."""
        return all(c.score(self.metric, self.reference) != NOT_RUN for c in self.cells.values())

    def all_means(self) -> dict[str, float]:
        found = {k: c.mean(self.metric, self.reference) for k, c in self.cells.items()}
        return {label: mean for label, mean in found.items() if mean is not None}

    def means(self) -> dict[str, float]:
        """Of those that kept to the budget, from the best to the worst; nothing where the metric
        has no direction.
        """
        if self.measure.better is None:
            return {}
        found = {k: mean for k, mean in self.all_means().items() if self.cells[k].competes}
        higher = self.measure.better == "higher"
        return dict(sorted(found.items(), key=lambda pair: pair[1], reverse=higher))


def contests(
    settings: Sequence[Setting], reference: str, metrics: int | None = None
) -> Iterator[Contest]:
    """Of each setting the first `metrics`, or all; none where a method has no budget to keep to."""
    for setting in settings:
        if any(cell.budget is None for cell in setting.cells):
            continue
        for metric in list(setting.metrics)[:metrics]:
            for budget in setting.budgets:
                yield contest(setting, metric, budget, reference)


def contest(setting: Setting, metric: str, budget: int, reference: str = "full") -> Contest:
    found = {label: setting.at.get((label, budget)) for label in setting.labels}
    cells = {label: cell for label, cell in found.items() if cell is not None}
    return Contest(setting, metric, budget, reference, cells)


def references_of(results: Results) -> list[str]:
    there = {reference for setting in results.settings for reference in setting.references}
    return sorted(there, reverse=True)  # full, then converged


def chosen(setting: Setting, ours: set[str]) -> list[str]:
    """What a chart shows at first: geoshrink, paper, direct, and the best of the rest by mean
    rank over budgets and metrics, rivals before other forms of ours.
    """
    ranks: dict[str, list[float]] = defaultdict(list)
    for reference in setting.references[:1]:
        for one in contests([setting], reference):
            for rank, label in enumerate(one.means()):
                ranks[label].append(rank)
    first = [label for label in (OURS, PUBLISHED, DIRECT) if label in setting.labels]
    mean = {label: sum(found) / len(found) for label, found in ranks.items()}
    rest = sorted(mean.keys() - first, key=lambda label: (label in ours, mean[label], label))
    rest = rest if ranks else [label for label in setting.labels if label not in first]
    return [*first, *rest[: SHOWN - len(first)]]
