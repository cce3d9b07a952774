"""First Block Cache (ParaAttention, 2025; in diffusers): the first block tells whether others run.

    r = what the first block adds to the tokens;  skip while  mean|r − r_k| / mean|r_k| ≤ threshold

with r_k of the last full stage k, and add what the other blocks added there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .base import Case, Outcome
from .residual import LastResidual, relative_change
from .stack import Streams
from .tuning import Thresholded


class FirstBlockCache(Thresholded):
    """The rule of diffusers' FirstBlockCacheConfig, with its threshold.

    There is no warm-up, and the last stage is not forced. Guidance runs both its branches in one
    batch here, hence one decision for the two; diffusers' pipelines let each decide for itself.
    """

    name = "FirstBlockCache"
    reach = 0.0, 16.0

    def __init__(self, threshold: float = 0.05):
        self.threshold = threshold

    def run(self, case: Case, budget: int) -> Outcome:
        return FirstBlock(case, self.threshold).run()


class FirstBlock(LastResidual):
    head = 1

    def __init__(self, case: Case, threshold: float):
        super().__init__(case)
        self.threshold = threshold
        self.entry: Streams = ()

    def block(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if i == 0:
            self.entry = self.stack.take(0, args, kwargs)
        return super().block(i, forward, args, kwargs)

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        r = streams[0] - self.entry[0]
        if relative_change(r, self.probe) <= self.threshold:
            return False
        self.probe = r
        return True

    def run(self) -> Outcome:
        outcome = super().run()
        skipped = self.steps - len(outcome.evaluated)
        return replace(outcome, partial=skipped * self.head / len(self.stack.blocks))
