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

from ..checks import whole
from ..grid import Grid
from ..plan import Plan
from .gains import fitted_gains

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
    """A real run of a plan on the calibration samples: dB of each against its full run."""

    recipe: str
    budget: int
    anchors: tuple[int, ...]
    surrogate: float
    db: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.db) / len(self.db)


@dataclass(frozen=True)
class Prediction:
    """The quality to expect: dB of the full run's energy over the error's, mean over samples.

    error    one standard error of that mean
    recipe   how the plan is made
    how      "measured" in real runs at this budget, leave-one-out; "interpolated" between real runs
             at other budgets; "extrapolated" beyond them, which is not to be relied on
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
    trials            real runs of plans, by which plan() chooses
    complete          False while profiling is under way; such a profile makes no plans
    """

    grid: Grid
    batches: tuple[Batch, ...]
    stages: tuple[int, ...]
    model: str = ""
    guidance: float | tuple[float, float] | None = None
    dtype: str = "float32"
    trials: tuple[Trial, ...] = ()
    complete: bool = True
    _planner: list[Any] = field(default_factory=list, repr=False, compare=False)

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
        """The searches on this profile; they are remembered."""
        if not self.complete:
            raise ValueError(
                "this profile is not whole: profiling was interrupted; call profile(…, file=…) "
                "again with the same file, and it goes on"
            )
        if not self._planner:
            from .planner import Planner

            self._planner.append(Planner(self))
        return self._planner[0]

    def plan(self, budget: int | None = None, *, target_db: float | None = None) -> Plan:
        """The best plan at a budget, or the cheapest whose predicted quality reaches target_db.

        It never runs the model: real runs at further budgets are measure()'s.
        """
        from .choosing import best_plan, budget_for_target

        if (budget is None) == (target_db is None):
            raise ValueError(
                f"give a budget or a target_db, one of them; got {budget!r} and {target_db!r}"
            )
        if budget is None:
            budget = budget_for_target(self, target_db)
        return best_plan(self, check_budget(budget, self.grid))

    def predict(self, budget: int) -> Prediction:
        """The quality that plan(budget) is expected to have."""
        from .choosing import prediction

        return prediction(self, check_budget(budget, self.grid))

    def measure(
        self, velocity: Any, noise: Any, budgets: Sequence[int], quiet: bool = False
    ) -> Profile:
        """The profile with real runs at these budgets, on the samples it was made from."""
        from .tournament import measured

        return measured(self, velocity, noise, budgets, quiet)

    def curve(self, budgets: Sequence[int] | None = None) -> Curve:
        """Predicted quality against budget: planned, published, σ-geometric and direct."""
        from .curve import Curve

        return Curve.of(self, budgets)

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

    def save(self, file: str | Path) -> None:
        from .files import write

        write(self, file)

    @classmethod
    def load(cls, file: str | Path) -> Profile:
        from .files import read

        return read(file)

    def with_trials(self, trials: Sequence[Trial]) -> Profile:
        """These trials in place of those at the same budgets."""
        new = {t.budget for t in trials}
        kept = tuple(t for t in self.trials if t.budget not in new)
        return replace(self, trials=(*kept, *trials), _planner=self._planner)

    def __str__(self) -> str:
        name = f"{self.model}, " if self.model else ""
        guidance = "" if self.guidance is None else f", guidance {self.guidance}"
        tried = ", ".join(map(str, sorted({t.budget for t in self.trials})))
        runs = f"real runs at budgets {tried}" if tried else "no real runs of plans"
        part = "" if self.complete else " (not whole)"
        return (
            f"profile{part}: {name}{self.grid.steps} stages{guidance}, {self.samples} samples, "
            f"{self.dtype}; {runs}"
        )


def check_budget(budget: Any, grid: Grid) -> int:
    budget = whole(budget, "budget")
    least = max(2, len(grid.spans()))
    if budget < min(least, grid.steps):
        raise ValueError(f"budget {budget} is too small: a plan needs at least {least} anchors")
    return min(budget, grid.steps)
