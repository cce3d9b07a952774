"""Profile: what full runs of a model say about every plan that could be made for it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..grid import Grid
from ..plan import Plan
from .choosing import Curve, Prediction, best_plan, budget_for_target, prediction
from .files import read, write
from .planner import Planner, planner_of
from .runs import RUN, TARGETS, Runs, check_budget, check_target
from .space import resampled
from .tournament import measured


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
    ) -> Plan:
        """The best plan at a budget, or the cheapest that is expected to reach target_db.

        It never runs the model. measure() makes real runs at further budgets.

        budget      how many stages query the model
        target_db   or the quality to reach, in dB
        target      "run": close to the full run, the result of the solver's own T steps. "flow":
                    close to the exact flow, which the full run only approximates
        refine      for "flow": steps in place of each of the solver's; default: 8
        """
        if (budget is None) == (target_db is None):
            raise ValueError(
                f"give a budget or a target_db, one of them; got {budget!r} and {target_db!r}"
            )
        refine = check_target(target, refine, self.solver)
        if budget is None:
            budget = budget_for_target(self, target_db, target)
        return best_plan(self, check_budget(budget, self.grid), target, refine)

    def predict(self, budget: int, target: str = RUN) -> Prediction:
        """The quality that plan(budget) is expected to have."""
        check_target(target, None, self.solver)
        return prediction(self, check_budget(budget, self.grid), target)

    def measure(
        self,
        velocity: Any,
        noise: Any,
        budgets: Sequence[int],
        target: str = RUN,
        quiet: bool = False,
    ) -> Profile:
        """The profile with real runs at these budgets.

        velocity, noise   those that the profile was made from; others are refused
        target            "run" or "flow", as in plan()
        quiet             print nothing
        """
        check_target(target, None, self.solver)
        return measured(self, velocity, noise, budgets, target, quiet)

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
        """Raises a ValueError if a run is not what was profiled."""
        reason = self.misfit(grid, guidance, model)
        if reason is not None:
            raise ValueError(
                f"this profile does not fit the run: {reason}; profile the model as it is run now"
            )

    def save(self, file: str | Path, small: bool = False) -> None:
        """Writes JSON; `small` keeps seven digits of the matrices, enough for the same plans."""
        write(self, file, small)

    @classmethod
    def load(cls, file: str | Path) -> Profile:
        """The profile that save() wrote."""
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


def grid_misfit(mine: Grid, theirs: Grid) -> str | None:
    """What differs between the grid of a profile and that of a run, as "mine, not theirs"."""
    kinds = [[track.prediction for track in grid.tracks] for grid in (mine, theirs)]
    if kinds[0] != kinds[1]:
        return f"{', '.join(kinds[0])} outputs, not {', '.join(kinds[1])}"
    if mine.regimes != theirs.regimes:
        return f"regimes from stages {mine.regimes}, not {theirs.regimes}"
    return mine.difference(theirs)


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
