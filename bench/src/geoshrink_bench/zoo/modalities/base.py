"""What every modality can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass
class Data:
    """A data set as it is stored on the training device."""

    parts: tuple[Tensor, ...]  # one per tensor of a sample, the first axis counts examples
    labels: Tensor
    classes: list[str]
    facts: dict[str, Any] = field(default_factory=dict)  # what values() needs to undo batch()

    def to(self, device: str | torch.device) -> Data:
        parts = tuple(part.to(device) for part in self.parts)
        return Data(parts, self.labels.to(device), self.classes, self.facts)


class Modality:
    """The three directions: file → data → what the network sees → values in natural units.

    values() is differentiable and vectorised: metrics are taken on it. decode() makes one thing
    per sample for people.
    """

    def read(self, path: Path) -> Data:
        raise NotImplementedError

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """(one tensor per part, the lengths of the samples or None) of the examples `pick`."""
        raise NotImplementedError

    def values(self, x: Any, facts: dict[str, Any], lengths: Sequence[int] | None = None) -> Any:
        raise NotImplementedError

    def decode(self, x: Any, facts: dict[str, Any], lengths: Sequence[int] | None) -> list[Any]:
        raise NotImplementedError


def mirrored(x: Tensor, axis: int) -> Tensor:
    """Each example flipped along an axis with probability one half."""
    flip = torch.rand(len(x), device=x.device) < 0.5
    return torch.where(flip.reshape(-1, *[1] * (x.ndim - 1)), x.flip(axis), x)


def column(statistic: Sequence[float], x: Tensor) -> Tensor:
    """A statistic per channel, shaped to act on x (batch, channels, …)."""
    return torch.tensor(statistic, device=x.device, dtype=torch.float32).reshape(
        -1, *[1] * (x.ndim - 2)
    )
