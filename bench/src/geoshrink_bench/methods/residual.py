"""What caches of the whole stack share: the residual of the last full stage, and a probe."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor

from .base import Case
from .caching import StackSession
from .stack import Streams


class LastResidual(StackSession):
    """At a skipped stage the blocks add what they added at the last full one.

    `probe` is what a later stage is compared with to decide whether it runs.
    """

    def __init__(self, case: Case, stages: Iterable[int] = ()):
        super().__init__(case, stages)
        self.kept: Streams = ()
        self.probe: Tensor | None = None

    def observe(self, residual: Streams) -> None:
        self.kept = residual
        self.keeps(self.kept, self.probe)

    def predict(self) -> Streams:
        return self.kept


def relative_change(new: Tensor, old: Tensor | None) -> float:
    """mean|new − old| / mean|old|, over the whole batch.

    It is nan, which is below no threshold, without an old one or with one of another batch.
    """
    if old is None or old.shape != new.shape:
        return math.nan
    return ((new - old).abs().mean() / old.abs().mean()).item()
