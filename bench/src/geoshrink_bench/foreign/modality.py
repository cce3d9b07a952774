"""Samples of foreign models in suites: decoded numbers, measured in dB and drawn in grey."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from geoshrink.planning.tournament import decibels

from ..metrics.base import Metric
from ..metrics.measured import Measured
from ..zoo.modalities.base import Data, Facts, Modality

#: 10·log10 of the reference's energy over the error's, in decoded samples.
DB = Metric("dB", "dB", True, lambda x, reference, _: decibels(x, reference))


class Numbers(Modality):
    """Whatever a network decodes to."""

    axes = 2

    def read(self, path: Path) -> Data:
        raise NotImplementedError("models of others are not trained here")

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], Tensor | None]:
        raise NotImplementedError("models of others are not trained here")

    def values(self, x: Any, facts: Facts, lengths: Sequence[int] | None = None) -> Any:
        return x

    def decode(self, x: Any, facts: Facts, lengths: Sequence[int] | None) -> list[Any]:
        return list(x)

    def metrics(self) -> list[Measured]:
        return [Measured(DB)]

    def draw(
        self, values: Sequence[Tensor], facts: Facts, length: int | None = None
    ) -> Image.Image:
        """From the least number, black, to the greatest, white."""
        x = values[0].float()
        x = x.reshape(-1, x.shape[-1])
        grey = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-12)
        return Image.fromarray((255 * grey).to(torch.uint8).numpy()).convert("RGB")
