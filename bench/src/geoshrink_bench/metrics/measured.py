"""A metric of samples in parts: which part it looks at, and as what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .base import Metric, SetMetric, Skipped
from .weights import there

Scores = list[float] | float | str


def plain(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True)
class Measured:
    """A metric, the tensor of a sample that it looks at, and as what."""

    metric: Metric | SetMetric
    part: int = 0
    view: Callable[[Tensor], Any] = plain
    of_classes: bool = False  # compared with the classes asked for, not with the reference

    @property
    def name(self) -> str:
        return self.metric.name

    def possible(self) -> bool:
        """Whether it needs weights, and all of them are there."""
        return bool(self.metric.needs) and all(map(there, self.metric.needs))

    def of(
        self, values: Sequence[Tensor], reference: Sequence[Tensor], lengths: Any, classes: Any
    ) -> Scores:
        """One number per sample, or one for all; or "skipped: reason".

        JSON has no infinity: equal samples score 999. NaN is an error.
        """
        own = self.view(values[self.part])
        other = classes if self.of_classes else self.view(reference[self.part])
        try:
            if isinstance(self.metric, SetMetric):
                return float(self.metric.of(own, other))
            return rounded(self.metric.of(own, other, lengths))
        except Skipped as reason:
            return f"skipped: {reason}"


def rounded(each: Tensor) -> list[float]:
    if each.isnan().any():
        raise ValueError(f"{int(each.isnan().sum())} of {len(each)} scores are NaN")
    return [999.0 if v == float("inf") else round(v, 5) for v in each.double().tolist()]
