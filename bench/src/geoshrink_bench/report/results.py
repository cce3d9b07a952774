"""What a report is made of: one row for each method in each setting, whatever it ran on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..code import CURRENT
from ..methods.base import SLACK
from ..methods.ours import FORMS
from ..samples import Sample
from ..score import Score
from ..words import DONE, NOT_RUN, Measure, Row

Spec = dict[str, Any]


@dataclass
class Cell(Row):
    """A row in one setting: what was asked for, and what came of it.

    result      the facts of the outcome: evaluations, forwards, held, …
    scores      by metric and reference: a score, or "word: why there is none"
    timing      the status of its latency cell, where the suite asks for one
    code        whether today's code made it (code.py); nothing where it has not run
    timed_code  the same of its latency cell
    """

    status: str = NOT_RUN
    reason: str = ""
    spec: Spec = field(default_factory=dict)
    result: Spec = field(default_factory=dict)
    scores: dict[tuple[str, str], Score | str] = field(default_factory=dict)
    folder: Path = Path()
    timing: str = ""
    code: str = ""
    timed_code: str = ""
    seconds: list[float] = field(default_factory=list)
    on: str = ""  # the device of those
    speedup: float | None = None

    @property
    def evaluations(self) -> float:
        return self.result.get("evaluations", math.nan)

    @property
    def stale(self) -> bool:
        """Whether other code than today's made it, or unknown code."""
        return bool(self.code) and self.code != CURRENT

    @property
    def competes(self) -> bool:
        """Whether it kept to the budget."""
        return self.budget is None or self.evaluations <= SLACK * self.budget

    @property
    def median(self) -> float | None:
        """Seconds."""
        return statistics.median(self.seconds) if self.seconds else None

    def score(self, metric: str, reference: str = "full") -> Score | str:
        """The score, or why there is none."""
        return self.scores.get((metric, reference), self.status if self.status != DONE else NOT_RUN)

    def mean(self, metric: str, reference: str = "full") -> float | None:
        found = self.score(metric, reference)
        return found.mean if isinstance(found, Score) else None


@dataclass(frozen=True)
class Shot:
    """What one method made of some subjects; a score in words for some of them."""

    title: str
    group: str
    samples: Mapping[str, Sample]
    scores: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Setting:
    """The cells of one case: a model at one guidance, shift and length, or a checkpoint.

    model, spec     what the case is, by the names of the spreadsheet's columns
    about, notes    sentences to read before and after its tables
    facts           (what, value): where the numbers come from
    """

    title: str
    model: str
    spec: Spec
    cells: list[Cell]
    metrics: dict[str, Measure]
    references: list[str]
    about: str = ""
    notes: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    label: str = ""  # of the table, in the paper

    def __post_init__(self) -> None:
        self.at = {(cell.label, cell.budget): cell for cell in self.cells}
        self.labels = list(dict.fromkeys(cell.label for cell in self.cells))
        self.budgets = sorted({cell.budget for cell in self.cells if cell.budget is not None})
        self.first_budget = next((c.budget for c in self.cells if c.budget is not None), None)

    def states(self) -> Iterator[tuple[str, str]]:
        """(method, status) of every file that is asked for: of one that is done, which code made
        it.
        """
        for cell in self.cells:
            yield cell.label, cell.code if cell.status == DONE else cell.status
            if cell.timing:
                told = cell.timed_code if cell.timing == DONE else cell.timing.split(":")[0]
                yield cell.label, told

    def shots(self, most: int | None, chosen: list[str]) -> Iterator[Shot]:
        """The samples that were kept: the references, then the methods, the chosen ones first."""
        return iter(())


@dataclass
class Results:
    """Everything a report is made of."""

    suites: list[tuple[Path, Any]]
    settings: list[Setting]
    damaged: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # sentences

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

    @cached_property
    def ours(self) -> set[str]:
        """The forms of ours, with whatever options."""
        return {cell.label for cell in self.cells if cell.method in FORMS}
