"""Metrics, one file per modality; zoo.py says which of them a model of the zoo is measured by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .base import Metric, SetMetric, Skipped

if TYPE_CHECKING:
    from ..zoo.model import Model


def values_of(model: Model, x: Any, lengths: Sequence[int] | None = None) -> list[Tensor]:
    """model.values(x) as a list."""
    return model.parts(x, lengths)
