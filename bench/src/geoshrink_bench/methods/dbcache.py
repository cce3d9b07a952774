"""DBCache (cache-dit): the first blocks tell whether those in the middle may be left out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from .base import Case, Outcome
from .caching import StackSession
from .residual import relative_change
from .stack import Streams
from .taylorseer import Series, TaylorSeer
from .tuning import Thresholded


@dataclass(eq=False)
class DBCache(Thresholded):
    """F8B0, warm-up 8, threshold 0.08, as cache-dit has them.

    The first F blocks always run, and add r to the stream. If |r − r′| / |r′| < threshold (mean
    absolute values, r′ of the last full stage), what the blocks in the middle add is that of the
    last full stage, and the last B blocks run on it; otherwise all run. The first `warm_up` stages
    are full; after `most` stages in a row without (none by default), one is; the last is not
    forced. With an order, what the middle adds is a Taylor sum over the full stages, in stages,
    whose differences begin with the fourth stage.

    cache-dit's 8 blocks are meant for FLUX's 57: without `front`, F is as large a part of the
    network's depth, and at least 1. A `front` given is cut to leave one block in the middle.
    """

    name = "DBCache"
    threshold: float = 0.08
    front: int | None = None
    back: int = 0
    warm_up: int = 8
    most: int | None = None
    order: int = 0

    def run(self, case: Case, budget: int) -> Outcome:
        return Middle(case, self).run()


class Middle(StackSession):
    def __init__(self, case: Case, method: DBCache):
        super().__init__(case)
        self.method, self.depth = method, len(self.stack.blocks)
        if not 0 <= method.back < self.depth - 1:
            raise ValueError(f"{method.back} blocks at the back of {self.depth} leave no middle")
        front = round(8 / 57 * self.depth) if method.front is None else method.front
        self.head = min(max(1, front), self.depth - method.back - 1)
        self.modules = self.stack.blocks[: self.depth - method.back]
        self.change: Tensor | None = None  # what the front added at the last full stage
        self.series: list[Series] = []  # for each stream, of what the middle added

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        change = streams[0] - self.entry[0]
        full = self.stage < self.method.warm_up or self.too_far(change)
        if full:
            self.change = change
        return full

    def too_far(self, change: Tensor) -> bool:
        threshold, most = self.method.threshold, self.method.most
        distance = relative_change(change, self.change)
        if math.isnan(distance) or (most is not None and self.stage - self.evaluated[-1] > most):
            return True
        return threshold < 1 and not distance < threshold  # from 1 on, all are alike

    def observe(self, residual: Streams) -> None:
        make = TaylorSeer(order=self.method.order, warm_up=4).series
        self.series = self.series or [make() for _ in residual]
        for series, part in zip(self.series, residual):
            series.add(self.stage, part)
        self.keeps(self.change, *(s.terms for s in self.series))

    def predict(self) -> Streams:
        return tuple(series.at(self.stage) for series in self.series)

    def partial(self) -> float:
        share = (self.head + self.method.back) / self.depth
        return (self.steps - len(self.evaluated)) * share
