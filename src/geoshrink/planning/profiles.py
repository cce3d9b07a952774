"""Profile: what full runs of a model say about every plan that could be made for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..grid import Grid
from ..plan import Plan
from .gains import fitted_gains
from .targets import FULL, RUN, TARGETS, check_budget, check_target

if TYPE_CHECKING:
    from .curve import Curve
    from .planner import Planner

FEWEST = 4  # samples


@dataclass(frozen=True)
class Batch:
    """Samples that were run together.

    grams      one (samples, T + 1, T + 1) per slot: of the noise and the outputs
    energies   one (samples,) per slot: ‖x‖² at the end of the full run
    gains      one (stages, samples) per slot
    """

    grams: tuple[Tensor, ...]
    energies: tuple[Tensor, ...]
    gains: tuple[Tensor, ...]

    @property
    def samples(self) -> int:
        return len(self.energies[0])


@dataclass(frozen=True)
class Trial:
    """A real run of a plan on the calibration samples: dB of each against the target."""

    recipe: str
    budget: int
    anchors: tuple[int, ...]
    surrogate: float
    db: tuple[float, ...]
    target: str = RUN

    @property
    def mean(self) -> float:
        return sum(self.db) / len(self.db)


@dataclass(frozen=True)
class Prediction:
    """The quality to expect: dB of the full run's energy over the error's, mean over samples.

    error    one standard error of that mean
    recipe   how the plan is made
    how      "measured" in real runs at this budget, leave-one-out; "interpolated" between real runs
             at other budgets; "extrapolated" beyond them, which is not to be relied on; "carried
             over" from another grid
    """

    budget: int
    db: float
    error: float
    recipe: str
    how: str

    def __str__(self) -> str:
        return f"{self.db:.1f} ± {self.error:.1f} dB ({self.how})"


@dataclass(frozen=True)
class Profile:
    """Full runs on a few calibration samples, as products of their outputs.

        profile = geoshrink.profile(velocity, noise, sigmas)
        plan = profile.plan(budget=10)
        x0 = geoshrink.sample(velocity, other_noise, plan=plan)

    model, guidance   what was profiled, as far as the caller said; guidance may be a range
    stages            where the gains were measured
    solver            of the full runs, for which plans are made
    trials            real runs of plans, by which plan() chooses
    complete          False while profiling is under way; such a profile makes no plans
    origin            where it was carried over from, in words; what was tried was tried there
    made              by which command and from which weights, in words
    """

    grid: Grid
    batches: tuple[Batch, ...]
    stages: tuple[int, ...]
    model: str = ""
    guidance: float | tuple[float, float] | None = None
    dtype: str = "float32"
    trials: tuple[Trial, ...] = ()
    complete: bool = True
    solver: str = "euler"
    origin: str = ""
    made: str = ""
    _planners: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def samples(self) -> int:
        return sum(batch.samples for batch in self.batches)

    @property
    def slots(self) -> int:
        return len(self.batches[0].grams)

    @cached_property
    def grams(self) -> tuple[Tensor, ...]:
        return tuple(torch.cat(parts) for parts in zip(*(b.grams for b in self.batches)))

    @cached_property
    def energies(self) -> tuple[float, ...]:
        """E‖x_end‖² of every slot."""
        return tuple(float(torch.cat(p).mean()) for p in zip(*(b.energies for b in self.batches)))

    def gains(self, slot: int = 0, early: bool = False) -> np.ndarray:
        """a(σ) at the grid points 0 … T; `early`: of the samples where it is largest."""
        measured = torch.cat([b.gains[slot] for b in self.batches], 1).numpy()
        return fitted_gains(self.grid, self.stages, measured, slot, early)

    @property
    def planner(self) -> Planner:
        """The searches for plans close to the full run; they are remembered."""
        return self.planner_for(1)

    def planner_for(self, refine: int) -> Planner:
        if not self.complete:
            raise ValueError(
                "this profile is not whole: profiling was interrupted; call profile(…, file=…) "
                "again with the same file, and it goes on"
            )
        if refine not in self._planners:
            from .planner import Planner

            self._planners[refine] = Planner(self, refine)
        return self._planners[refine]

    def plan(
        self,
        budget: int | None = None,
        *,
        target_db: float | None = None,
        target: str = RUN,
        refine: int | None = None,
    ) -> Plan:
        """The best plan at a budget, or the cheapest whose predicted quality reaches target_db.

        It never runs the model: real runs at further budgets are measure()'s.

        target    "run": as close as can be to the full run, the result of the solver's own T steps.
                  "flow": to the exact flow, of which the full run is an approximation, too
        refine    for "flow": steps in place of each of the solver's, 8 unless said
        """
        from .choosing import best_plan, budget_for_target

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
        from .choosing import prediction

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
        """The profile with real runs at these budgets, on the samples it was made from."""
        from .tournament import measured

        check_target(target, None, self.solver)
        return measured(self, velocity, noise, budgets, target, quiet)

    def curve(self, budgets: Sequence[int] | None = None, target: str = RUN) -> Curve:
        """Predicted quality against budget: planned, published, σ-geometric and direct."""
        from .curve import Curve

        check_target(target, None, self.solver)
        return Curve.of(self, budgets, target)

    def resample(self, sigmas: Any, **options: Any) -> Profile:
        """The profile on another grid of the same model: another number of steps or shift."""
        from .resampling import resampled

        grid = sigmas if isinstance(sigmas, Grid) else Grid.of(sigmas, **options)
        return resampled(self, grid)

    def misfit(
        self, grid: Grid | None = None, guidance: float | None = None, model: str | None = None
    ) -> str | None:
        """Why a run is not what was profiled; None where it is, as far as both are known."""
        from .fitting import misfit

        return misfit(self, grid, guidance, model)

    def check(
        self, grid: Grid | None = None, guidance: float | None = None, model: str | None = None
    ) -> None:
        """An error where a run is not what was profiled."""
        reason = self.misfit(grid, guidance, model)
        if reason is not None:
            raise ValueError(
                f"this profile does not fit the run: {reason}; profile the model as it is run now"
            )

    def save(self, file: str | Path, small: bool = False) -> None:
        """As JSON; `small` keeps seven digits of the matrices, enough for the same plans."""
        from .files import write

        write(self, file, small)

    @classmethod
    def load(cls, file: str | Path) -> Profile:
        from .files import read

        return read(file)

    def with_trials(self, trials: Sequence[Trial]) -> Profile:
        """These trials in place of those at the same budgets, for the same target."""
        new = {(t.budget, t.target) for t in trials}
        kept = tuple(t for t in self.trials if (t.budget, t.target) not in new)
        return replace(self, trials=(*kept, *trials), _planners=self._planners)

    def tried(self, target: str) -> set[int]:
        """The budgets with real runs."""
        return {t.budget for t in self.trials if t.target == target and t.recipe != FULL}

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
