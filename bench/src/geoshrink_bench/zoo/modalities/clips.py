"""Clips: (3, frames, height, width) in [−1, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from .base import Data, Modality, mirrored
from .pictures import picture_of, read_packed


class Clips(Modality):
    def read(self, path: Path) -> Data:
        pictures, labels, classes, frames = read_packed(path)
        clips = pictures.unflatten(0, (-1, frames)).transpose(1, 2).contiguous()
        return Data((clips,), labels, classes)

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], None]:
        """A turning fruit mirrored, or seen backwards, is a turning fruit."""
        x = data.parts[0][pick].float() / 127.5 - 1
        return (mirrored(mirrored(x, -1), 2),), None

    def values(
        self, x: Tensor, facts: dict[str, Any], lengths: Sequence[int] | None = None
    ) -> Tensor:
        """Float frames in [0, 1]."""
        return (x.float().clamp(-1, 1) + 1) / 2

    def decode(self, x: Tensor, facts: dict[str, Any], lengths: Sequence[int] | None) -> list[Any]:
        """A list of PIL images per sample."""
        clips = self.values(x, facts).transpose(1, 2)
        return [[picture_of(frame) for frame in clip] for clip in clips]
