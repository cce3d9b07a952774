"""Aim: the quality that a run holds. Plain data, part of the plan.

A run with an aim begins with the anchors of a first guess. At every anchor it estimates how far it
will end up from the full run (quality/), and goes on with the anchors of the least budget that is
expected to reach the aim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checks import is_number, whole

MEAN, WORST = JUDGED = "mean", "worst"


@dataclass(frozen=True)
class Aim:
    """What a run holds.

    db      the distance to the full run to reach: 10·log10(‖full run‖²/‖error‖²)
    most    calls at most; None: as many as there are stages
    judge   "mean": the mean over the samples of a batch is to reach it; "worst": every sample
    mesh    the name of the mesh that places any budget
    usual   cells are corrected as the default does, which depends on the budget
    rungs   (anchors, dB) for some budgets, from a profile: in place of the mesh's and of the prior
    """

    db: float
    most: int | None = None
    judge: str = MEAN
    mesh: str = "corrected"
    usual: bool = False
    rungs: tuple[tuple[tuple[int, ...], float], ...] = ()

    def __post_init__(self) -> None:
        rungs = tuple((tuple(anchors), float(db)) for anchors, db in self.rungs)
        object.__setattr__(self, "rungs", rungs)
        object.__setattr__(self, "db", check_target_db(self.db))
        if self.most is not None:
            object.__setattr__(self, "most", whole(self.most, "most"))
            if self.most < 2:
                raise ValueError(f"most is a number of calls, 2 or more, got {self.most}")
        if self.judge not in JUDGED:
            raise ValueError(f"unknown judge {self.judge!r}; choose one of {', '.join(JUDGED)}")

    @classmethod
    def of(cls, given: Any) -> Aim | None:
        """An aim, or the fields of one as a plan's file has them."""
        return given if given is None or isinstance(given, cls) else cls(**given)

    def expected(self, calls: Any) -> Any:
        """The dB that the profile expects of so many calls; None without one."""
        if not self.rungs:
            return None
        return np.interp(calls, [len(a) for a, _ in self.rungs], [db for _, db in self.rungs])

    def __str__(self) -> str:
        most = "" if self.most is None else f", {self.most} calls at most"
        return f"{self.db:g} dB{' of the worst sample' * (self.judge == WORST)}{most}"


@dataclass(frozen=True)
class Prior:
    """What is believed before a run has seen much of itself.

    A budget B of T stages is expected to have base + per_log·ln B + per_stages·ln T + per_share·B/T
    dB: the mean over the models of benchmarks/estimate.md. When a part f of a run's calls is made,
    the estimate of what lies ahead counts trust + (1 − trust)·f² against it, and is too high by
    hope·(1 − f²) dB.
    """

    base: float
    per_log: float
    per_stages: float
    per_share: float
    trust: float
    hope: float

    def expected(self, budget: Any, steps: int) -> Any:
        budget = np.asarray(budget, dtype=np.float64)
        of_budget = self.per_log * np.log(budget) + self.per_share * budget / steps
        return self.base + of_budget + self.per_stages * math.log(steps)

    def weighed(self, db: Any, budget: Any, steps: int, done: Any) -> Any:
        """The dB to go by.

        db      as estimated, of every budget and sample
        done    the part of its calls that is made, of every budget
        """
        expected, rest = self.expected(budget, steps), 1 - np.square(done)
        trust = self.trust + (1 - self.trust) * (1 - rest)
        return expected + trust * (db - expected) - self.hope * rest


PRIOR = Prior(-29.92, 15.472, 4.026, 26.146, trust=0.259, hope=2.791)


def first_budget(db: float, steps: int, least: int) -> int:
    """The least budget that is expected to reach `db`, or all stages but one.

    >>> [first_budget(db, 50, 4) for db in (20, 30, 40)]
    [8, 12, 19]
    """
    budgets = np.arange(least, steps)
    enough = budgets[PRIOR.expected(budgets, steps) >= db]
    return int(enough[0]) if len(enough) else max(least, steps - 1)


def check_target_db(db: Any) -> float:
    if isinstance(db, bool) or not is_number(db) or not math.isfinite(db) or db <= 0:
        raise ValueError(f"target_db is a positive number of decibels, got {db!r}")
    return float(db)
