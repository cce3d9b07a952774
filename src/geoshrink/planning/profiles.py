"""Profile: what full runs of a model say about every possible plan; profile() makes them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..checks import check_switch
from ..grid import Grid
from ..outputs import flatten
from ..plan import Plan
from ..purpose import Purpose
from ..solvers import SOLVERS
from .choosing import Curve, Prediction, best_plan, budget_for_target, prediction
from .files import read, write
from .gains import STAGES, check_stages, gain_stages
from .holding import held_plan
from .planner import Planner, planner_of
from .profiling import Models, Velocity
from .runs import FEWEST, RUN, TARGETS, Runs, check_budget, check_target, grid_misfit
from .space import resampled
from .tournament import Source, changed, profiled


@dataclass(frozen=True)
class Profile(Runs):
    """Full runs on a few calibration samples, as products of their outputs.

        profile = geoshrink.profile(velocity, noise, sigmas)
        plan = profile.plan(budget=10)
        x0 = geoshrink.sample(velocity, other_noise, plan=plan)

    grid, batches     the stages of the runs, and the products of their outputs
    model, guidance   what was profiled, if the caller said so; guidance may be a range
    dtype             of the noise
    stages            at which the gains were measured
    solver            of the full runs; plans are made for it
    trials            real runs of plans, by which plan() chooses
    complete          False while profiling is under way; such a profile makes no plans
    origin            the grid or samples that it was carried over from, in words; the trials were
                      run there
    made              the command and the weights that it was made by, in words
    purpose           the facts of the runs that were profiled, where a host told them; plans have
                      them, too (purpose.py)
    """

    @property
    def planner(self) -> Planner:
        """Searches for plans close to the full run, and remembers them."""
        return planner_of(self)

    def plan(
        self,
        budget: int | None = None,
        *,
        target_db: float | None = None,
        target: str = RUN,
        refine: int | None = None,
        correct: bool = True,
        hold: bool = False,
        most: int | None = None,
        judge: str = "mean",
    ) -> Plan:
        """The best plan at a budget, or the cheapest that is expected to reach target_db.

        It never runs the model. measure() makes real runs at further budgets.

        budget      how many stages query the model
        target_db   or the quality to reach, in dB
        target      "run": close to the full run, the result of the solver's own T steps. "flow":
                    close to the exact flow, which the full run only approximates
        refine      for "flow": steps in place of each of the solver's; default: 8
        correct     False: only plans that do not correct their cells, for a loop that cannot
        hold        with target_db: the plan is a first guess, and the run goes on with as many
                    calls as what it sees asks for (docs/quality.md)
        most        with hold: calls at most
        judge       with hold: "mean" of the samples of a batch is to reach it, or "worst", each
        """
        if hold or most is not None or judge != "mean":
            if not hold or target_db is None or budget is not None or target != RUN:
                raise ValueError(
                    f"hold={hold!r}, most={most!r} and judge={judge!r} go together with target_db "
                    "and the full run as the target: profile.plan(target_db=30, hold=True)"
                )
            check_switch("correct", correct)
            plan = held_plan(self, target_db, most, judge, correct)
            return replace(plan, purpose=self.facts)
        if (budget is None) == (target_db is None):
            raise ValueError(
                f"give a budget or a target_db, one of them; got {budget!r} and {target_db!r}"
            )
        check_switch("correct", correct)
        refine = check_target(target, refine, self.solver)
        if budget is None:
            budget = budget_for_target(self, target_db, target, correct)
        plan = best_plan(self, check_budget(budget, self.grid), target, refine, correct)
        return replace(plan, purpose=self.facts)

    @property
    def facts(self) -> Purpose:
        """What is known of the runs that its plans are for."""
        said = Purpose(self.model, steps=self.grid.given, guidance=self.guidance)
        known = said if self.purpose is None else self.purpose
        if self.origin:  # of another grid
            known = replace(known, steps=self.grid.given, settings=())
        return known

    def predict(self, budget: int, target: str = RUN, correct: bool = True) -> Prediction:
        """The quality that plan(budget, target=target, correct=correct) is expected to have."""
        check_target(target, None, self.solver)
        return prediction(self, check_budget(budget, self.grid), target, correct)

    def measure(
        self,
        velocity: Any,
        noise: Any,
        budgets: Sequence[int],
        target: str = RUN,
        quiet: bool = False,
    ) -> Profile:
        """The profile with real runs at these budgets; the full runs are made once more.

        velocity, noise   those that the profile was made from; others are refused
        budgets           at which plans are tried
        target            "run" or "flow", as in plan()
        quiet             print nothing
        """
        check_target(target, None, self.solver)
        planner_of(self)  # one that is not whole is refused
        source = Models(velocity, noise, self.grid, (), self.solver)
        given = [len(flatten(x)[0][0]) for x in source.states]
        wanted = "give the velocity and noise that the profile was made from"
        if given != (known := [batch.samples for batch in self.batches]):
            raise ValueError(
                f"the profile was made from batches of {known} samples, got {given}: {wanted}"
            )
        if strange := changed(self, source.begin):
            raise ValueError(f"this is not what was profiled (the {strange} differ): {wanted}")
        return profiled(self, source, budgets, target, quiet=quiet)

    def curve(self, budgets: Sequence[int] | None = None, target: str = RUN) -> Curve:
        """Predicted quality against budget, of plans and of the meshes that need no profile.

        budgets   those of the rows; default: up to half of the stages
        target    "run" or "flow", as in plan()
        """
        check_target(target, None, self.solver)
        return Curve.of(self, budgets, target)

    def resample(self, sigmas: Any, **options: Any) -> Profile:
        """The profile on another grid of the same model: another number of steps or shift.

        No prediction of such a profile is called measured.

        sigmas    the other grid, σ_0 … σ_T, or a Grid
        options   prediction, alphas, data, regimes: what the grid is, as in Grid.of
        """
        return resampled(self, Grid.of(sigmas, **options))

    def misfit(
        self, grid: Grid | None = None, guidance: float | None = None, model: str | None = None
    ) -> str | None:
        """Why a run is not what was profiled; None if it is, as far as both are known."""
        if model and self.model and model != self.model:
            return f"it is of the model {self.model!r}, not {model!r}"
        if grid is not None and (reason := grid_misfit(self.grid, grid)):
            return f"its σ-grid is another one ({reason})"
        if guidance is not None and self.guidance is not None:
            low, high = pair(self.guidance)
            if not low - 1e-6 <= guidance <= high + 1e-6:
                seen = f"{low:g}" if low == high else f"{low:g} to {high:g}"
                return f"it was made at guidance {seen}, this run has {guidance:g}"
        return None

    def check(
        self, grid: Grid | None = None, guidance: float | None = None, model: str | None = None
    ) -> None:
        """Raises a ValueError if a run is not what was profiled.

        grid       the σ-grid of the run
        guidance   its scale
        model      its name; what is None on either side is not looked at
        """
        reason = self.misfit(grid, guidance, model)
        if reason is not None:
            raise ValueError(
                f"this profile does not fit the run: {reason}; profile the model as it is run now"
            )

    def save(self, file: str | Path, small: bool = False) -> None:
        """Writes it to a file as JSON; `small` keeps seven digits of the matrices, enough for the
        same plans.
        """
        write(self, file, small)

    @classmethod
    def load(cls, file: str | Path) -> Profile:
        """The profile that save() wrote to a file."""
        return read(cls, file)

    def __str__(self) -> str:
        name = f"{self.model}, " if self.model else ""
        guidance = "" if self.guidance is None else f", guidance {self.guidance}"
        at = [
            f"{', '.join(map(str, sorted(self.tried(t))))} ({t})" for t in TARGETS if self.tried(t)
        ]
        runs = f"real runs at budgets {'; '.join(at)}" if at else "no real runs of plans"
        guidance += f", {self.solver}" if self.solver != "euler" else ""
        part = "" if self.complete else " (not whole)"
        part += f" ({self.origin})" if self.origin else ""
        return (
            f"profile{part}: {name}{self.grid.steps} stages{guidance}, {self.samples} samples, "
            f"{self.dtype}; {runs}"
        )


def profile(
    velocity: Velocity | Sequence[Velocity],
    noise: Any,
    sigmas: Any,
    *,
    budgets: Sequence[int] | None = None,
    model: str = "",
    guidance: float | tuple[float, float] | None = None,
    file: str | Path | None = None,
    perturbed: int = STAGES,
    target: str = RUN,
    solver: str = "euler",
    quiet: bool = False,
    through: Callable[[Source], Source] = lambda source: source,
    **options: Any,
) -> Profile:
    """Profiles a model on a few samples; the result plans any budget.

        profile = geoshrink.profile(model.velocity(labels), model.noise(16), model.grid(50))

    velocity, noise   as in sample(), for at least 4 samples; or a list of each, one per batch
    sigmas            σ_0 … σ_T, or a Grid
    budgets           budgets at which plans are tried in real runs; () tries none; default: at most
                      three, within ten full runs for everything
    model, guidance   kept with the profile, to tell whether it fits a run; guidance may be a range
    file              written after every batch; if it exists, profiling goes on from it. One model
                      call per batch in it tells whether it is of this model
    perturbed         the number of stages at which the gains are measured
    target            "run": plans are tried for closeness to the full run. "flow": to the exact
                      flow, for four more full runs and without the limit of ten
    solver            "euler", "ab2", "dpm++2m" or one that you registered: what the plans are for
    quiet             print neither the cost nor a progress bar
    through           given what is profiled, returns what is asked in its place: batch.Spread, on a
                      cluster
    prediction        what the model returns: "flow" (dx/dσ), "epsilon", "sample" or "v"
    alphas            α of x = α·x₀ + σ·ε, unless it is a flow: "vp", "ve", "flow", or one per σ
    data              the σ at which x is data, for flows that do not end at 0
    regimes           stages at which the model changes: each is queried
    """
    grid = Grid.of(sigmas, **options)
    check_stages(perturbed)
    stages = gain_stages(grid, perturbed)
    source = Models(velocity, noise, grid, stages, solver)
    samples = sum(len(flatten(x)[0][0]) for x in source.states)
    if samples < FEWEST:
        raise ValueError(f"{samples} samples are too few to plan from: give at least {FEWEST}")
    single = [name for name, kind in SOLVERS.items() if kind.evaluations == 1]
    if solver not in single:
        raise ValueError(f"plans are made for {', '.join(single)}, got solver={solver!r}")
    check_target(target, None, solver)
    kind = str(flatten(source.states[0])[0][0].dtype).removeprefix("torch.")
    start = Profile(
        grid, (), stages, model, check_guidance(guidance), kind, complete=False, solver=solver
    )
    return profiled(start, through(source), budgets, target, file, quiet)


def plan_for(
    profile: Profile | str | Path | None,
    grid: Grid,
    budget: int,
    guidance: float | None = None,
    model: str | None = None,
) -> Plan:
    """The plan of a profile that the library chose; the default, with a warning, if it misfits.

    If the user chose the profile, call profile.check(): a misfit is an error then.
    """
    reason = "there is no profile of it"
    if profile is not None:
        found = profile if isinstance(profile, Profile) else Profile.load(profile)
        reason = found.misfit(grid, guidance, model)
        if reason is None:
            return replace(found.plan(budget), grid=grid)
    warnings.warn(f"planned without a profile, by the default: {reason}", UserWarning, stacklevel=2)
    return Plan.of(grid, budget)


def pair(guidance: float | Sequence[float]) -> tuple[float, float]:
    if isinstance(guidance, (int, float)):
        return float(guidance), float(guidance)
    low, high = guidance
    return float(low), float(high)


def check_guidance(guidance: Any) -> float | tuple[float, float] | None:
    if guidance is None:
        return None
    try:
        low, high = pair(guidance)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and low <= high < math.inf):
        raise ValueError(f"guidance is a number or a range (low, high), got {guidance!r}")
    return low if low == high else (low, high)
