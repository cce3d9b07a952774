"""FORA (Selvaraju et al., 2024): every N-th stage in full; between, each branch is reused."""

from __future__ import annotations

from torch import Tensor

from .base import Case, Method, Outcome, bytes_of, every, interval_for
from .caching import BranchSession


class Fora(Method):
    """The branches' outputs of the last full stage, gated anew, as in the authors' code.

    Full at stage 0 and every N-th after it; the last stage is not forced.
    """

    name = "FORA"

    def __init__(self, interval: int | None = None):
        self.interval = interval

    def run(self, case: Case, budget: int) -> Outcome:
        steps = case.grid().steps
        interval = self.interval or interval_for(budget, steps)
        return Reuse(case, every(interval, steps)).run()


class Reuse(BranchSession):
    def __init__(self, case: Case, stages: list[int]):
        super().__init__(case)
        self.stages = frozenset(stages)
        self.kept: dict[int, Tensor] = {}

    def decide(self) -> bool:
        return self.stage in self.stages

    def observe(self, branch: int, output: Tensor) -> None:
        self.kept[branch] = output
        self.held = max(self.held, bytes_of(*self.kept.values()))

    def predict(self, branch: int, args: tuple) -> Tensor:
        return self.kept[branch]
