"""Methods side by side, from outcomes to a table, a verdict in words, a slider and charts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..page import Anchors, Column, Comparison, Lines, Media, Section, Series, Table
from ..plan import Plan
from ..report import Report

FULL, DIRECT = "full", "direct"
#: The forms of our method: to the paper's letter, our default, with anchors from a profile.
FORMS = PAPER, GEOSHRINK, PLANNED = "paper", "geoshrink", "planned"
PSNR = Column("PSNR", "dB", better="higher", digits=1)
SSIM = Column("SSIM", better="higher", digits=3)
Pairs = tuple[Column, Mapping[str, Any]]


@dataclass(frozen=True)
class Cost:
    """What one call took, and the reports of its runs where it was accelerated.

    share   of the seconds that were spent in the denoisers; None where they are not seen
    plan    of its latest run, where it was accelerated and the host tells
    off     how far the solver ended from the full run, in dB; None if nobody knows
    """

    seconds: float
    share: float | None
    calls: int
    reports: tuple[Report, ...] = ()
    plan: Plan | None = None
    off: float | None = None


@dataclass(frozen=True)
class Outcome:
    """One method at one budget: what it cost, and the reports of its runs."""

    method: str
    budget: int
    calls: float
    seconds: float
    reports: tuple[Report, ...]

    @property
    def label(self) -> str:
        return label_of(self.method, self.budget)

    @property
    def group(self) -> str:
        return "reference" if self.method == FULL else f"B = {self.budget}"

    @property
    def not_accelerated(self) -> str | None:
        """Why a form of ours queried every stage; None if it did not, or if it is not ours."""
        if self.method not in FORMS or any(report.predicted for report in self.reports):
            return None
        if not self.reports:
            return "the loop never steps the scheduler"
        reasons = dict.fromkeys(why for report in self.reports for _, why in report.reasons)
        return "; ".join(reasons) or "every stage is queried"


def label_of(method: str, budget: int) -> str:
    return method if method == FULL else f"{method}, B = {budget}"


def results(
    outcomes: Sequence[Outcome],
    quality: Mapping[str, Sequence[float]],
    caption: str,
    command: str,
    *more: Pairs,
    metrics: Sequence[Column] = (PSNR, SSIM),
) -> Table:
    """Cost and distance to the full run, which comes first; `quality` is by label, so is `more`."""
    full, rows = outcomes[0], []
    for o in outcomes:
        distance = [None if o is full or math.isnan(q) else q for q in quality[o.label]]
        cost = [o.budget, o.method, o.calls, o.seconds, full.seconds / o.seconds]
        rows.append([*cost, *distance, *(values[o.label] for _, values in more)])
    return Table(
        "Quality at equal cost",
        [
            Column("B", digits=0),
            Column("method"),
            Column("model calls", digits=0),
            Column("time", "s", digits=1 if full.seconds >= 1 else 3),
            Column("speed-up", "×", digits=1),
            *metrics,
            *(column for column, _ in more),
        ],
        rows,
        caption=caption,
        command=command,
        group_by=0,
    )


def verdict(
    budgets: Sequence[int],
    outcomes: Sequence[Outcome],
    scores: Mapping[str, float],
    metric: Column = PSNR,
) -> list[str]:
    """For every budget, whether each form of ours is ahead of direct, and by how much."""
    lines, sign = [], -1 if metric.better == "lower" else 1
    for budget in budgets:
        direct = scores[label_of(DIRECT, budget)]
        ours = [o for o in outcomes if o.budget == budget and o.method in FORMS]
        gains = [(o, sign * (scores[o.label] - direct)) for o in ours]
        parts = (f"{o.method} {standing(o, gain, metric)}" for o, gain in gains)
        lines.append(f"B = {budget}: " + "; ".join(parts) + ".")
    return lines


def standing(outcome: Outcome, gain: float, metric: Column = PSNR) -> str:
    if outcome.not_accelerated is not None:
        return "was not accelerated"
    if math.isnan(gain):
        return "cannot be compared with direct"
    return f"is {amount(abs(gain), metric)} {'ahead of' if gain > 0 else 'BEHIND'} direct"


def amount(score: float, metric: Column) -> str:
    """A number of a metric with its unit."""
    return "no score" if math.isnan(score) else f"{score:.{metric.digits}f} {metric.unit}".strip()


def comparison(
    subjects: Sequence[str],
    outcomes: Sequence[Outcome],
    media: Mapping[tuple[str, str], Media],
    scores: Mapping[tuple[str, str], float],
    budget: int,
    metric: Column = PSNR,
    title: str = "Look",
) -> Comparison:
    """The slider, opened with direct against geoshrink at this budget."""
    return Comparison(
        title,
        subjects,
        [o.label for o in outcomes],
        media,
        "Drag to wipe between any two methods; under each picture its distance to the full run.",
        {o.label: o.group for o in outcomes},
        {pair: amount(value, metric) for pair, value in scores.items()},
        (label_of(DIRECT, budget), label_of(GEOSHRINK, budget)),
    )


def charts(outcomes: Sequence[Outcome], budget: int, steps: int) -> list[Section]:
    """Where our methods asked the model; at this budget, what they kept and how outputs turned."""
    shown = [o for o in outcomes if o.method in FORMS and o.reports]
    asked = [{n for n in (*o.reports[0].queried, *o.reports[0].extra) if n < steps} for o in shown]
    rows = [(o.label, sorted(stages)) for o, stages in zip(shown, asked)]
    strips = "Each strip is the solver's grid; a dot is a real model call."
    here = [o for o in shown if o.budget == budget]
    return [
        Anchors("Where the model is asked", rows, steps, strips),
        course(here, budget, "omega", "How much of the latest change is kept", "retention ω"),
        course(here, budget, "turning", "How sharply the outputs turn", "turning sin²θ"),
    ]


def course(outcomes: Sequence[Outcome], budget: int, what: str, title: str, label: str) -> Lines:
    """A number of the reports over the stages, mean over runs and slots."""
    series = []
    for o in outcomes:
        found: dict[int, list[float]] = defaultdict(list)
        for row in (row for report in o.reports for row in report.stages):
            if (value := getattr(row, what)) is not None:
                found[row.stage].append(value)
        stages = sorted(found)
        means = [sum(found[n]) / len(found[n]) for n in stages]
        series.append(Series(o.label, stages, means))
    where = "at the predicted stages" if what == "omega" else "at the anchors"
    caption = f"Mean over the samples, {where}, B = {budget}."
    return Lines(title, series, "stage", label, caption, (0.0, 1.0))


def middle(budgets: Sequence[int]) -> int:
    return budgets[len(budgets) // 2]


def progress_bar(command: str) -> Any:
    """tqdm's class, once everything that a page of pictures needs is there."""
    try:
        import PIL  # noqa: F401
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(
            f"the {command} needs {error.name}: pip install 'geoshrink[compare]'"
        ) from None
    return tqdm
