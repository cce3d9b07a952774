"""From trials to a plan, a prediction and a curve: the winner at tried budgets, offsets in between.

At any other budget every recipe that was tried somewhere is judged by its surrogate plus what its
real runs were off from their surrogates. Direct step reduction is one of them: if it is expected to
be the best, it is the plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..checks import is_number
from ..page import Lines, Page, Series
from ..plan import Plan
from .planner import AUTO, BASELINES, DIRECT, planner_of
from .runs import FLOW, FULL, REFINE, RUN, Runs, Trial, check_budget
from .tournament import SLATES

NO_RUNS = (
    "this profile has no real runs to predict from: profile.measure(velocity, noise, budgets) "
    "makes them"
)


PLANNED = "planned"
LEGEND = (
    "dB of the target over the error; ~ is between budgets with real runs, ? beyond them or carried"
    " over.\nUnmarked, planned is leave-one-out: each sample is scored under the recipe that wins"
    " on the others, so it\ncan be below the column of the plan itself."
)


@dataclass(frozen=True)
class Prediction:
    """The quality to expect: dB of the full run's energy over the error's, mean over samples.

    error    one standard error of that mean
    recipe   how the plan is made
    how      "measured" in real runs at this budget (plans: leave-one-out); "interpolated" between
             real runs at other budgets; "extrapolated" beyond them, not to be relied on; "carried
             over" from another grid
    """

    budget: int
    db: float
    error: float
    recipe: str
    how: str

    def __str__(self) -> str:
        return f"{self.db:.1f} ± {self.error:.1f} dB ({self.how})"


def best_plan(profile: Runs, budget: int, target: str = RUN, refine: int = 1) -> Plan:
    """The plan of the best recipe at this budget, with its prediction in words."""
    planner = planner_of(profile, refine)
    if budget >= profile.grid.steps and target == RUN:
        return Plan.of(profile.grid)
    if target == FLOW and not profile.tried(target):
        free = planner.named(AUTO, budget)  # no trial says whether a searched plan does better
        if free is not None and free.correct is not None:
            return replace(free, mesh=f"{free.mesh} (not planned: no real runs for the flow)")
    if not profile.tried(target):
        entrants = (DIRECT, *SLATES[target])
        names = [n for n in entrants if planner.named(n, budget) is not None]
        name = max(names, key=lambda name: planner.surrogate(name, budget))
        words = "planned (but never tried)"
    else:
        expected = prediction(profile, budget, target)
        name, words = expected.recipe, f"planned for {expected}"
        if name in BASELINES:
            words = f"{name} (no planned ones do better), {expected},"
    if target != RUN:
        words += " to the exact flow"
    if profile.solver != "euler":
        words += f" with {profile.solver}" + ", as for Euler" * (planner.solver == "euler")
    if name not in BASELINES and not planner.exact_for(name):
        words += ", searched coarse to fine,"
    plan = planner.named(name, budget)
    assert plan is not None
    return replace(plan, mesh=words)


def prediction(profile: Runs, budget: int, target: str = RUN) -> Prediction:
    if budget >= profile.grid.steps and target == RUN:
        return Prediction(budget, math.inf, 0.0, FULL, "measured")
    mine = [t for t in profile.trials if t.target == target and t.recipe != FULL]
    trials = [trial for trial in mine if trial.budget == budget]
    if trials:
        found = leave_one_out(trials)
        return replace(found, how="carried over") if profile.origin else found
    tried = dict.fromkeys(trial.recipe for trial in mine)
    expected = [interpolated(profile, name, budget, target) for name in tried]
    if not any(expected):
        raise ValueError(NO_RUNS)
    return max((e for e in expected if e is not None), key=lambda e: e.db)


def leave_one_out(trials: Sequence[Trial]) -> Prediction:
    """Each sample is scored under the recipe that wins on the others; the plan is the winner's.

    The anchors were searched with all samples, which is not undone here.
    """
    db = np.array([trial.db for trial in trials])
    others = (db.sum(1, keepdims=True) - db) / (db.shape[1] - 1)
    scores = db[others.argmax(0), np.arange(db.shape[1])]
    winner = trials[int(db.mean(1).argmax())]
    error = float(scores.std(ddof=1) / math.sqrt(len(scores)))
    return Prediction(winner.budget, float(scores.mean()), error, winner.recipe, "measured")


def interpolated(profile: Runs, name: str, budget: int, target: str = RUN) -> Prediction | None:
    """The surrogate plus what real runs at other budgets were off from theirs, over log B."""
    trials = [t for t in profile.trials if t.recipe == name and t.target == target]
    trials.sort(key=lambda t: t.budget)
    planner = planner_of(profile, 1 if target == RUN else REFINE)
    surrogate = planner.surrogate(name, budget)
    if not trials or not math.isfinite(surrogate):
        return None
    places = np.log([t.budget for t in trials])
    offsets = [t.mean - t.surrogate for t in trials]
    offset = float(np.interp(math.log(budget), places, offsets))
    spread = float(np.std([t.db for t in trials], axis=1).mean()) / math.sqrt(profile.samples)
    error = math.hypot(spread, max(abs(offset - o) for o in offsets) / 2)
    inside = trials[0].budget <= budget <= trials[-1].budget
    how = "interpolated" if inside else "extrapolated"
    how = "carried over" if profile.origin else how
    return Prediction(budget, surrogate + offset, error, name, how)


def budgets_of(profile: Runs, target: str = RUN) -> Sequence[int]:
    """The budgets to look at: all below T; only the tried ones on long grids, which are slow."""
    if not planner_of(profile).exact:
        return sorted(profile.tried(target))
    return range(max(2, len(profile.grid.spans())), profile.grid.steps)


def budget_for_target(profile: Runs, db: float | None, target: str = RUN) -> int:
    """The smallest budget whose predicted quality is at least `db`."""
    if not is_number(db) or isinstance(db, bool) or not math.isfinite(float(db)):  # type: ignore[arg-type]
        raise ValueError(f"target_db is a number of decibels, got {db!r}")
    expected = [prediction(profile, b, target) for b in budgets_of(profile, target)]
    if not expected:
        raise ValueError(NO_RUNS)
    for e in expected:
        if e.db >= float(db):  # type: ignore[arg-type]
            return e.budget
    best = max(expected, key=lambda e: e.db)
    among = f"below {profile.grid.steps}" if planner_of(profile).exact else "with real runs"
    raise ValueError(
        f"no budget {among} is expected to reach {db:g} dB: the best is {best.db:.1f} dB with "
        f"{best.budget} calls; ask for less, or run every stage"
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
        lines, marks = [head], {"measured": "", "interpolated": "~"}
        for i, budget in enumerate(self.budgets):
            found = [values[i] for values in self.methods.values()]
            cells = [
                "–" if p is None else f"{marks.get(p.how, '?')}{p.db:.1f} ± {p.error:.1f}"
                for p in found
            ]
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
        words = LEGEND + self.note
        return Page("Expected quality against budget", words, [self.chart()]).write(file)


def of_method(profile: Runs, name: str, budget: int, target: str) -> Prediction | None:
    """A baseline's quality: its real runs at this budget, or between those at others."""
    if budget >= profile.grid.steps and target == RUN:
        return prediction(profile, budget)
    for trial in () if profile.origin else profile.trials:
        if (trial.recipe, trial.budget, trial.target) == (name, budget, target):
            return Prediction(budget, trial.mean, trial.error, name, "measured")
    return interpolated(profile, name, budget, target)
