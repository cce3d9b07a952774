"""Curve: predicted quality against budget, as a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..page import Lines, Page, Series
from .choosing import Prediction, budgets_of, interpolated, prediction
from .planner import BASELINES
from .runs import FULL, RUN, Runs, check_budget

PLANNED = "planned"
LEGEND = (
    "dB of the target over the error; ~ is between budgets with real runs, ? beyond them or carried"
    " over.\nUnmarked, planned is leave-one-out: each sample is scored under the recipe that wins"
    " on the others, so it\ncan be below the column of the plan itself."
)


@dataclass(frozen=True)
class Curve:
    """dB by method and budget; None if a method has no plan there. print(curve) is the table."""

    budgets: tuple[int, ...]
    methods: dict[str, tuple[Prediction | None, ...]]
    note: str = ""

    @classmethod
    def of(cls, profile: Runs, budgets: Sequence[int] | None = None, target: str = RUN) -> Curve:
        if budgets is None:
            least = max(4, len(profile.grid.spans()))
            half = max(least, profile.grid.steps // 2)
            budgets = [b for b in budgets_of(profile, target) if least <= b <= half] or [least]
        checked = tuple(dict.fromkeys(check_budget(b, profile.grid) for b in budgets))
        methods: dict[str, tuple[Prediction | None, ...]] = {}
        methods[PLANNED] = tuple(prediction(profile, b, target) for b in checked)
        for name in BASELINES:
            found = tuple(of_method(profile, name, b, target) for b in checked)
            if any(found):  # else it was never tried
                methods[name] = found
        full = [t.mean for t in profile.trials if t.recipe == FULL and t.target == target]
        note = f"\nthe full run of {profile.grid.steps} calls: {full[0]:.1f} dB" if full else ""
        return cls(checked, methods, note)

    def rows(self) -> list[dict[str, float | int | None]]:
        """One row per budget, for a data frame or a CSV writer."""
        columns = {name: [p and p.db for p in values] for name, values in self.methods.items()}
        return [
            {"budget": b} | {name: column[i] for name, column in columns.items()}
            for i, b in enumerate(self.budgets)
        ]

    def __str__(self) -> str:
        head = "budget  " + "  ".join(f"{name:>12}" for name in self.methods)
        lines = [head]
        for i, budget in enumerate(self.budgets):
            cells = [show(values[i]) for values in self.methods.values()]
            lines.append(f"{budget:6d}  " + "  ".join(f"{cell:>12}" for cell in cells))
        return "\n".join([*lines, LEGEND + self.note])

    def chart(self) -> Lines:
        """The curve as a section of a page."""
        series = [
            Series(name, self.budgets, [None if p is None else p.db for p in values])
            for name, values in self.methods.items()
        ]
        return Lines("Expected quality", series, "model calls", "dB")

    def write(self, file: str | Path) -> Path:
        """The chart as a page of its own."""
        return Page("Expected quality against budget", LEGEND + self.note, [self.chart()]).write(
            file
        )


def of_method(profile: Runs, name: str, budget: int, target: str) -> Prediction | None:
    """A baseline's quality: its real runs at this budget, or between those at others."""
    if budget >= profile.grid.steps and target == RUN:
        return prediction(profile, budget)
    for trial in () if profile.origin else profile.trials:
        if (trial.recipe, trial.budget, trial.target) == (name, budget, target):
            return Prediction(budget, trial.mean, trial.error, name, "measured")
    return interpolated(profile, name, budget, target)


def show(p: Prediction | None) -> str:
    if p is None:
        return "–"
    mark = {"measured": "", "interpolated": "~"}.get(p.how, "?")
    return f"{mark}{p.db:.1f} ± {p.error:.1f}"
