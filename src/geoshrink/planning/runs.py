"""Runs: what the full runs of a profile leave behind, and the trials of plans; numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..checks import whole
from ..grid import Grid
from ..purpose import Purpose
from ..targets import FLOW as FLOW
from ..targets import REFINE, RUN
from ..targets import TARGETS as TARGETS
from ..targets import check_target as check_known
from .gains import fitted_gains

FULL = "every stage"  # the recipe of a plain full run
FEWEST = 4  # samples
Kind = TypeVar("Kind", bound="Runs")


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
    """A real run of a plan on the calibration samples: the dB of each to the target."""

    recipe: str
    budget: int
    anchors: tuple[int, ...]
    surrogate: float
    db: tuple[float, ...]
    target: str = RUN

    @property
    def mean(self) -> float:
        return sum(self.db) / len(self.db)

    @property
    def error(self) -> float:
        """One standard error of the mean."""
        return float(np.std(self.db, ddof=1)) / math.sqrt(len(self.db))


@dataclass(frozen=True)
class Runs:
    """The fields of a Profile, which documents them, and what follows from them directly."""

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
    purpose: Purpose | None = None
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
        """a(σ) at the grid points 0 … T; `early`: samples with a large gain count more."""
        measured = torch.cat([b.gains[slot] for b in self.batches], 1).numpy()
        return fitted_gains(self.grid, self.stages, measured, slot, early)

    def tried(self, target: str) -> set[int]:
        """The budgets with real runs."""
        return {t.budget for t in self.trials if t.target == target and t.recipe != FULL}


def check_budget(budget: Any, grid: Grid) -> int:
    budget = whole(budget, "budget")
    least = max(2, len(grid.spans()))
    if budget < min(least, grid.steps):
        raise ValueError(f"budget {budget} is too small: a plan needs at least {least} anchors")
    return min(budget, grid.steps)


def check_target(target: Any, refine: int | None, solver: str) -> int:
    """How many times the grid is refined for this target."""
    if check_known(target) == RUN:
        if refine not in (None, 1):
            raise ValueError(
                f"refine={refine!r} is for target='flow': refined steps leave the solver's own run"
            )
        return 1
    if solver != "euler":
        raise ValueError(f"target='flow' refines Euler; this profile is of solver={solver!r}")
    refine = REFINE if refine is None else whole(refine, "refine")
    if not 2 <= refine <= 64:
        raise ValueError(f"refine is a number from 2 to 64, got {refine}")
    return refine


def grid_misfit(mine: Grid, theirs: Grid) -> str | None:
    """What differs between the grid of a profile and that of a run, as "mine, not theirs"."""
    kinds = [[track.prediction for track in grid.tracks] for grid in (mine, theirs)]
    if kinds[0] != kinds[1]:
        return f"{', '.join(kinds[0])} outputs, not {', '.join(kinds[1])}"
    if mine.regimes != theirs.regimes:
        return f"regimes from stages {mine.regimes}, not {theirs.regimes}"
    return mine.difference(theirs)
