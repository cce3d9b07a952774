"""First Block Cache (ParaAttention, 2025; in diffusers): the first block tells whether others run.

    r = what the first block adds to the tokens;  skip while  mean|r − r_k| / mean|r_k| ≤ threshold

with r_k of the last full stage k, and add what the other blocks added there.
"""

from __future__ import annotations

from dataclasses import dataclass

from .base import Case, Outcome
from .residual import LastResidual, relative_change
from .stack import Streams
from .tuning import Thresholded


@dataclass(eq=False)
class FirstBlockCache(Thresholded):
    """The rule of diffusers' FirstBlockCacheConfig, with its threshold.

    There is no warm-up, and the last stage is not forced. Guidance runs both its branches in one
    batch here, hence one decision for the two; diffusers' pipelines let each decide for itself.
    """

    name = "FirstBlockCache"
    reach = 0.0, 16.0
    threshold: float = 0.05

    def run(self, case: Case, budget: int) -> Outcome:
        return FirstBlock(case, self.threshold).run()


class FirstBlock(LastResidual):
    head = 1

    def __init__(self, case: Case, threshold: float):
        super().__init__(case)
        self.threshold = threshold

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        r = streams[0] - self.entry[0]
        if relative_change(r, self.probe) <= self.threshold:
            return False
        self.probe = r
        return True

    def partial(self) -> float:
        return (self.steps - len(self.evaluated)) * self.head / len(self.modules)
