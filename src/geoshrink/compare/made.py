"""What one call made, of any kind: scored against the full run, and shown on the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ..page import Column, Media

Scores = list[list[float]]  # of each metric, of each sample


class Skipped(Exception):
    """Why a metric has no number for these data: shown as "skipped: reason", never counted."""


@runtime_checkable
class Made(Protocol):
    """Samples of one kind.

    noun     what one sample is called
    title    what people do with it on the page
    metrics  the distances to the full run; the first decides who is ahead
    """

    @property
    def noun(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def metrics(self) -> tuple[Column, ...]: ...

    def __len__(self) -> int: ...

    def is_finite(self) -> bool: ...

    def score(self, reference: Any, skipped: set[str]) -> Scores:
        """One number for each metric and sample; why there is none goes to `skipped`."""
        ...

    def medium(self, i: int, alt: str, reference: Any) -> Media: ...


def measured(
    metric: Column, count: int, of: Callable[[], Tensor | Sequence[float]], skipped: set[str]
) -> list[float]:
    """The numbers of a metric, or NaN where it cannot be had."""
    try:
        return [float(value) for value in of()]
    except (ImportError, Skipped, ValueError) as reason:
        skipped.add(f"{metric.name} skipped: {reason}.")
        return [math.nan] * count
