"""From trials to a plan, a prediction and a curve: the winner at tried budgets, offsets in between.

At any other budget every recipe that was tried somewhere is judged by its surrogate plus what its
real runs were off from their surrogates. Direct step reduction and the default are among them. The
default is the plan unless another is better beyond doubt: by more than NOISE standard errors of
the difference, sample by sample. A recipe that was never tried is never chosen over one that was.
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
from .planner import BASELINES, DEFAULT, DIRECT, Planner, planner_of
from .runs import FLOW, FULL, REFINE, RUN, Runs, Trial, check_budget
from .tournament import SLATES

NO_RUNS = (
    "this profile has no real runs to predict from: profile.measure(velocity, noise, budgets) "
    "makes them"
)

NOISE = 1.0  # standard errors by which the default must be beaten
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


def best_plan(
    profile: Runs, budget: int, target: str = RUN, refine: int = 1, correct: bool = True
) -> Plan:
    """The plan of the best recipe at this budget, with its prediction in words.

    correct   False: only among plans whose cells are not corrected
    """
    planner = planner_of(profile, refine)
    if budget >= profile.grid.steps and target == RUN:
        return Plan.of(profile.grid)
    if target == FLOW and correct and not profile.tried(target):
        free = planner.named(DEFAULT, budget)  # no trial says whether a searched plan does better
        if free is not None and free.correct is not None:
            return replace(free, mesh=f"{free.mesh} (not planned: no real runs for the flow)")
    if not profile.tried(target):
        name = untried(planner, budget, SLATES[target], correct)
        words = "planned (but never tried)"
    else:
        expected = prediction(profile, budget, target, correct)
        name, words = expected.recipe, f"planned for {expected}"
        if name in BASELINES:
            shown = DEFAULT if planner.is_default(name, budget) else name
            words = f"{shown} (no planned ones do better), {expected},"
    if target != RUN:
        words += " to the exact flow"
    if profile.solver != "euler":
        words += f" with {profile.solver}" + ", as for Euler" * (planner.solver == "euler")
    if name not in BASELINES and not planner.exact_for(name):
        words += ", searched coarse to fine,"
    plan = planner.named(name, budget)
    assert plan is not None
    return replace(plan, mesh=words)


def untried(planner: Planner, budget: int, names: Sequence[str], correct: bool) -> str:
    """The recipe to take if nothing was tried: the best by surrogate of those that correct their
    cells if the default does. The surrogate cannot tell whether to correct.
    """
    default = planner.named(DEFAULT, budget)
    corrects = correct and default is not None and default.correct is not None
    alike = (n for n in names if n == DIRECT or planner.corrects(n, budget) == corrects)
    there = [n for n in alike if planner.named(n, budget) is not None]
    return max(there, key=lambda name: planner.surrogate(name, budget))


def prediction(profile: Runs, budget: int, target: str = RUN, correct: bool = True) -> Prediction:
    """What to expect of the best plan at a budget; its recipe is the plan's."""
    if budget >= profile.grid.steps and target == RUN:
        return Prediction(budget, math.inf, 0.0, FULL, "measured")
    planner = planner_of(profile, 1 if target == RUN else REFINE)
    mine = [
        t
        for t in profile.trials
        if t.target == target
        and t.recipe != FULL
        and (correct or not planner.corrects(t.recipe, t.budget))
    ]
    tried = dict.fromkeys(trial.recipe for trial in mine)
    default = next((name for name in tried if planner.is_default(name, budget)), None)
    trials = [trial for trial in mine if trial.budget == budget]
    if trials:
        found = leave_one_out(trials, default)
        return replace(found, how="carried over") if profile.origin else found
    judged = [interpolated(profile, name, budget, target) for name in tried]
    expected = {e.recipe: e for e in judged if e is not None}
    if not expected:
        raise ValueError(NO_RUNS)
    best = max(expected.values(), key=lambda e: e.db)
    if default not in expected:
        return best
    known = [expected[name] for name in (default, DIRECT) if name in expected]
    safe = max(known, key=lambda e: e.db)
    better = best.db - safe.db > NOISE * doubt(planner, mine, best, safe)
    return best if better else safe


def leave_one_out(trials: Sequence[Trial], default: str | None = None) -> Prediction:
    """Each sample is scored under the recipe that wins on the others; the plan is the winner's.

    The anchors were searched with all samples, which is not undone here.
    """
    db = np.array([trial.db for trial in trials])
    names = [trial.recipe for trial in trials]
    safe = names.index(default) if default in names else None
    each = range(db.shape[1])
    scores = np.array([db[winner(np.delete(db, i, 1), safe), i] for i in each])
    won = trials[winner(db, safe)]
    error = float(scores.std(ddof=1) / math.sqrt(len(scores)))
    return Prediction(won.budget, float(scores.mean()), error, won.recipe, "measured")


def winner(db: np.ndarray, safe: int | None) -> int:
    """The row of the best mean; row `safe`, unless that is better by more than the noise."""
    best = int(db.mean(1).argmax())
    if safe is None:
        return best
    gain = db[best] - db[safe]
    noise = float(gain.std(ddof=1)) / math.sqrt(len(gain))
    return best if float(gain.mean()) > NOISE * noise else safe


def doubt(planner: Planner, trials: Sequence[Trial], best: Prediction, safe: Prediction) -> float:
    """By how many dB best − safe may be wrong where neither was tried: the standard error of the
    difference, and how far what it was off from the surrogates' is from what it is taken to be.
    """
    at = {(t.recipe, t.budget): t for t in trials}
    pairs = [
        (t, at[safe.recipe, t.budget])
        for t in trials
        if t.recipe == best.recipe and (safe.recipe, t.budget) in at
    ]
    if not pairs:
        return math.inf
    mine, other = (planner.surrogate(e.recipe, e.budget) for e in (best, safe))
    taken = (best.db - mine) - (safe.db - other)
    offs = [(a.mean - a.surrogate) - (b.mean - b.surrogate) for a, b in pairs]
    ahead = [np.subtract(a.db, b.db) for a, b in pairs]
    spread = float(np.mean([a.std(ddof=1) for a in ahead])) / math.sqrt(len(ahead[0]))
    return math.hypot(spread, max(abs(taken - off) for off in offs))


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


def budget_for_target(
    profile: Runs, db: float | None, target: str = RUN, correct: bool = True
) -> int:
    """The smallest budget whose predicted quality is at least `db`."""
    if not is_number(db) or isinstance(db, bool) or not math.isfinite(float(db)):  # type: ignore[arg-type]
        raise ValueError(f"target_db is a number of decibels, got {db!r}")
    expected = [prediction(profile, b, target, correct) for b in budgets_of(profile, target)]
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
            equal = name != DIRECT and methods.get(DEFAULT) == found
            if any(found) and not equal:  # else it was never tried, or is the default
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
        wide = [max(12, len(name)) for name in self.methods]
        head = "budget  " + "  ".join(f"{name:>{w}}" for name, w in zip(self.methods, wide))
        lines, marks = [head], {"measured": "", "interpolated": "~"}
        for i, budget in enumerate(self.budgets):
            found = [values[i] for values in self.methods.values()]
            cells = [
                "–" if p is None else f"{marks.get(p.how, '?')}{p.db:.1f} ± {p.error:.1f}"
                for p in found
            ]
            row = "  ".join(f"{cell:>{w}}" for cell, w in zip(cells, wide))
            lines.append(f"{budget:6d}  {row}")
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
    if name == DEFAULT:
        planner = planner_of(profile, 1 if target == RUN else REFINE)
        tried = (t.recipe for t in profile.trials if t.target == target)
        name = next((n for n in tried if planner.is_default(n, budget)), name)
    for trial in () if profile.origin else profile.trials:
        if (trial.recipe, trial.budget, trial.target) == (name, budget, target):
            return Prediction(budget, trial.mean, trial.error, name, "measured")
    return interpolated(profile, name, budget, target)
