"""What a report is made of: cells, the settings they belong to, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..methods.base import SLACK as SLACK
from ..metrics.base import is_current
from ..metrics.zoo import metrics_of
from ..setting import REFERENCES
from ..suite import Suite
from ..summary import label_of, measure_of, title_of
from .score import Score

Spec = dict[str, Any]
DONE, FAILED, NOT_RUN, SKIPPED = "done", "failed", "not run", "skipped"


@dataclass
class Cell:
    """One method at one budget in one setting: what was asked for, and what came of it."""

    spec: Spec
    status: str = NOT_RUN
    reason: str = ""
    result: Spec = field(default_factory=dict)
    folder: Path = Path()
    made: float = 0.0  # when
    timing: str = ""  # the status of its latency cell, where the suite asks for one
    seconds: list[float] = field(default_factory=list)  # of that
    on: str = ""  # the device of that
    timed: float = 0.0  # when
    scores: dict[tuple[str, str], Score | str] = field(default_factory=dict)  # as they are asked

    @property
    def label(self) -> str:
        return label_of(self.spec)

    @property
    def budget(self) -> int:
        return self.spec["budget"]

    @property
    def evaluations(self) -> float:
        return self.result.get("evaluations", float("nan"))

    @property
    def competes(self) -> bool:
        """Whether it kept to the budget."""
        return self.evaluations <= SLACK * self.budget

    def score(self, metric: str, reference: str) -> Score | str:
        """The score, or why there is none."""
        at = metric, reference
        if at not in self.scores:
            self.scores[at] = self.score_at(*at)
        return self.scores[at]

    def score_at(self, metric: str, reference: str) -> Score | str:
        if self.status != DONE:
            return self.status
        found = self.result.get("scores", {}).get(metric, {}).get(reference)
        measure = measure_of(metric)
        if found is None or (
            measure.version and not is_current(self.result, metric, measure.version)
        ):
            return NOT_RUN
        if isinstance(found, str):
            return found if found.startswith(SKIPPED) else f"{SKIPPED}: {found}"
        return Score.of(found, self.spec["setting"]["seeds"], measure.better == "higher")


@dataclass
class Setting:
    """The cells of one model at one guidance, shift, length."""

    spec: Spec
    cells: list[Cell]

    def __post_init__(self) -> None:
        self.at = {(cell.label, cell.budget): cell for cell in self.cells}
        self.labels = list(dict.fromkeys(cell.label for cell in self.cells))
        self.first_budget = self.cells[0].budget
        self.budgets = sorted({cell.budget for cell in self.cells})
        done = [cell.result.get("scores", {}) for cell in self.cells if cell.status == DONE]
        known = [metric.name for metric in metrics_of(self.model)]
        found = [name for scores in done for name in scores]
        self.metrics = list(dict.fromkeys([*known, *found]))
        there = {name for scores in done for by in scores.values() for name in by}
        self.references = [name for name in REFERENCES if name in there]

    @property
    def model(self) -> str:
        return self.spec["model"]

    @property
    def title(self) -> str:
        return title_of(self.spec)


@dataclass
class Results:
    """Everything a report is made of."""

    suites: list[tuple[Path, Suite]]
    settings: list[Setting]
    damaged: list[Path]
    left_out: list[str]  # sentences

    @property
    def cells(self) -> list[Cell]:
        return [cell for setting in self.settings for cell in setting.cells]

    @property
    def name(self) -> str:
        names = [*dict.fromkeys(suite.name for _, suite in self.suites)]
        heads, tails = zip(*(name.partition(": ")[::2] for name in names))
        if len(names) > 1 and len(set(tails)) == 1 and tails[0]:
            return f"{', '.join(heads)}: {tails[0]}"
        return "; ".join(names)

    @cached_property
    def calibrated(self) -> set[str]:
        """The methods that need runs of the model beforehand, as their cells say."""
        return {cell.label for cell in self.cells if cell.result.get("calibrated")}
