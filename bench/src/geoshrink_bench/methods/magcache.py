"""MagCache (Ma et al., NeurIPS 2025): the residual's length tells how far it can be reused.

γ_i = mean ‖R_i‖ / ‖R_{i−1}‖ over the tokens, of full runs beforehand
P ← P·γ_i,  E ← E + |1 − P|;  skip while E ≤ threshold and no more than K in a row,
else run in full and P ← 1, E ← 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .base import Case, Method, Outcome
from .residual import LastResidual
from .stack import Streams
from .tuning import tuned

THEIRS = ((3, 0.2), (5, 0.1))  # K and retention: of diffusers, of the authors' script for FLUX


@dataclass(eq=False)
class MagCache(Method):
    """The rule and the settings of diffusers' MagCacheConfig; the last stage is not forced.

    ratios       γ of every stage, from `calibrate`; read at the nearest stage for other grids
    longest      K; with None it and the retention follow from the budget
    retention    the share of stages at the start that always run
    """

    name = "MagCache"
    calibrated = True
    ratios: Sequence[float]
    threshold: float = 0.06
    longest: int | None = 3
    retention: float = 0.2

    @classmethod
    def tune(
        cls,
        cases: Sequence[Case],
        budget: int,
        ratios: Sequence[float] | None = None,
        setting: tuple[int, float] | None = None,
        warm_up: int | None = None,
    ) -> MagCache:
        """With the threshold that keeps the budget on these cases.

        setting    K and retention, else those for the budget; a longer K leaves the threshold more
                   to say
        warm_up    the stages that always run, in place of the authors' retention
        """
        given = calibrate(cases) if ratios is None else ratios
        setting = setting or setting_for(budget, cases[0].grid().steps, warm_up)
        threshold = tuned(lambda t: cls(given, t, *setting), cases, budget, 0.0, 100.0)
        return cls(given, threshold, *setting)

    def run(self, case: Case, budget: int) -> Outcome:
        longest, retention = self.longest, self.retention
        if longest is None:
            longest, retention = setting_for(budget, case.grid().steps)
        return Magnitude(case, self.ratios, self.threshold, longest, retention).run()


class Magnitude(LastResidual):
    def __init__(
        self, case: Case, ratios: Sequence[float], threshold: float, longest: int, retention: float
    ):
        super().__init__(case)
        self.ratios = stretched(ratios, self.steps)
        self.threshold, self.longest = threshold, longest
        self.warm_up = int(retention * self.steps + 0.5)
        self.restart()

    def restart(self) -> None:
        self.product, self.error, self.row = 1.0, 0.0, 0

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        known = self.shapes == [s.shape for s in streams]
        if known and self.stage < self.warm_up:
            return True
        self.product *= self.ratios[self.stage]
        self.error += abs(1 - self.product)
        self.row += 1
        if known and self.error <= self.threshold and self.row <= self.longest:
            return False
        self.restart()
        return True


def setting_for(budget: int, steps: int, warm_up: int | None = None) -> tuple[int, float]:
    """K and retention: the first of the authors' with which the budget can be kept, or a longer K.

    >>> setting_for(25, 50), setting_for(12, 50), setting_for(10, 50), setting_for(10, 50, 2)
    ((3, 0.2), (5, 0.1), (7, 0.1), (5, 0.04))
    """
    for longest, retention in (*THEIRS, *((k, THEIRS[-1][1]) for k in range(6, steps))):
        retention = retention if warm_up is None else warm_up / steps
        first = int(retention * steps + 0.5)
        if first + (steps - first) // (longest + 1) <= budget:
            return longest, retention
    raise ValueError(f"MagCache runs more than {budget} of {steps} stages: its warm-up alone does")


def stretched(ratios: Sequence[float], steps: int) -> list[float]:
    """The ratios of the nearest stages on a grid of `steps`.

    >>> stretched([1.0, 1.2, 0.9], 5)
    [1.0, 1.0, 1.2, 0.9, 0.9]
    """
    if steps == 1:
        return [ratios[-1]]
    scale = (len(ratios) - 1) / (steps - 1)
    return [ratios[round(i * scale)] for i in range(steps)]


def calibrate(cases: Sequence[Case]) -> list[float]:
    """γ of every stage, the mean over full runs of the cases; 1 where there is none before."""
    runs = []
    for case in cases:
        session = Ratios(case)
        session.run()
        runs.append(session.ratios)
    return [sum(column) / len(runs) for column in zip(*runs, strict=True)]


class Ratios(LastResidual):
    """A full run that notes γ."""

    def __init__(self, case: Case):
        super().__init__(case, range(case.grid().steps))
        self.ratios: list[float] = []

    def observe(self, residual: Streams) -> None:
        before, now = self.probe, torch.linalg.vector_norm(residual[0].float(), dim=-1)
        if before is None or before.shape != now.shape:
            self.ratios.append(1.0)
        else:
            self.ratios.append((now / (before + 1e-8)).mean().item())
        self.probe = now
