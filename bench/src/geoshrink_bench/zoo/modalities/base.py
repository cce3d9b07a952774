"""What every modality does: read, encode, decode, measure, judge, draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from geoshrink.compare.kinds import Made
from geoshrink.page import Media, Picture

from ...metrics.measured import Measured
from ..drawing.canvas import encoded
from .judging import Finding, Samples, recognition

Facts = dict[str, Any]
Lengths = Sequence[int] | None


@dataclass
class Data:
    """A data set as it is stored on the training device."""

    parts: tuple[Tensor, ...]  # one per tensor of a sample, the first axis counts examples
    labels: Tensor
    classes: list[str]
    facts: Facts = field(default_factory=dict)  # what values() needs to undo batch()

    def to(self, device: str | torch.device) -> Data:
        parts = tuple(part.to(device) for part in self.parts)
        return Data(parts, self.labels.to(device), self.classes, self.facts)


class Modality(ABC):
    """One kind of data: file → data → what the network sees → values in natural units, and how
    values are measured, judged and shown.

    values() is differentiable and vectorised: metrics are taken on it. decode() makes one thing
    per sample for people. What takes `values` of one sample takes a list of its parts.
    """

    axes: int  # of a batch of values
    varies = False  # whether samples have lengths
    heard = False  # whether there is something to listen to
    count, columns = 12, 4  # of a contact sheet: samples, and columns of them
    legend = ""
    sheet_lengths: Lengths = None
    drawn_with: tuple[str, ...] = ()  # facts that draw() needs

    @abstractmethod
    def read(self, path: Path) -> Data: ...

    @abstractmethod
    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """(one tensor per part, the lengths of the samples or None) of the examples `pick`."""

    @abstractmethod
    def values(self, x: Any, facts: Facts, lengths: Lengths = None) -> Any: ...

    @abstractmethod
    def decode(self, x: Any, facts: Facts, lengths: Lengths) -> list[Any]: ...

    def made(self, x: Any, facts: Facts, lengths: Lengths = None) -> Made:
        """What geoshrink.compare can score and show."""
        raise NotImplementedError(f"compare cannot show {type(self).__name__}")

    @abstractmethod
    def metrics(self) -> list[Measured]:
        """What samples are measured by; the first of each part is its plain one, which needs no
        weights.
        """

    @abstractmethod
    def draw(self, values: Sequence[Tensor], facts: Facts, length: int | None = None) -> Image: ...

    def medium(self, values: Sequence[Tensor], facts: Facts, length: int | None, alt: str) -> Media:
        """A sample on a page."""
        return Picture(encoded(self.draw(values, facts, length)), alt)

    def views(self, values: Tensor) -> Tensor:
        """What a classifier looks at: (batch, views, channels, height, width)."""
        raise NotImplementedError(f"there is no classifier of {type(self).__name__}")

    def judge(self, samples: Samples) -> list[Finding]:
        """Whether samples are what was asked for."""
        return recognition(samples)

    def sheet_classes(self, classes: list[str]) -> list[str]:
        """Those of a contact sheet: evenly spaced in the list."""
        return [classes[i * len(classes) // self.count] for i in range(self.count)]

    def write_beside(  # noqa: B027, most write nothing
        self, made: list[Any], facts: Facts, path: Path
    ) -> None:
        """Files that go with a contact sheet at `path`, of what decode() made."""


def mirrored(x: Tensor, axis: int) -> Tensor:
    """Each example flipped along an axis with probability one half."""
    flip = torch.rand(len(x), device=x.device) < 0.5
    return torch.where(flip.reshape(-1, *[1] * (x.ndim - 1)), x.flip(axis), x)


def column(statistic: Sequence[float], x: Tensor) -> Tensor:
    """A statistic per channel, shaped to act on x (batch, channels, …)."""
    return torch.tensor(statistic, device=x.device, dtype=torch.float32).reshape(
        -1, *[1] * (x.ndim - 2)
    )
