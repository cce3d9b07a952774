"""Metrics, one file per modality; zoo.py says which of them a model of the zoo is measured by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .base import Metric, SetMetric, Skipped


def values_of(model: Any, x: Any, lengths: Sequence[int] | None = None) -> list[Tensor]:
    """model.values(x) as a list."""
    return model.parts(x, lengths)
