"""Clips: (3, frames, height, width) in [−1, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from geoshrink.compare.kinds import Made, kind_of
from geoshrink.page import Animation, Media

from ...metrics.measured import Measured
from ...metrics.video import FLICKERING, FRAME_LPIPS, FRAME_SSIM, FVD, PSNR
from ..drawing import contact_sheet, draw_clip, save_animation
from .base import Data, Facts, Lengths, mirrored
from .pictures import Pictures, picture_of, read_packed

FPS = 8.0


class Clips(Pictures):
    axes, count, columns = 5, 8, 1
    legend = "Every second of 16 frames."

    def read(self, path: Path) -> Data:
        pictures, labels, classes, frames = read_packed(path)
        clips = pictures.unflatten(0, (-1, frames)).transpose(1, 2).contiguous()
        return Data((clips,), labels, classes)

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], None]:
        """A turning fruit mirrored, or seen backwards, is a turning fruit."""
        x = data.parts[0][pick].float() / 127.5 - 1
        return (mirrored(mirrored(x, -1), 2),), None

    def decode(self, x: Tensor, facts: Facts, lengths: Lengths) -> list[Any]:
        """A list of PIL images per sample."""
        return [frames_of(clip) for clip in self.values(x, facts)]

    def made(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Made:
        return kind_of("Pictures")(self.values(x, facts).cpu().transpose(1, 2), True, FPS)

    def views(self, values: Tensor) -> Tensor:
        """Every frame."""
        return (2 * values - 1).transpose(1, 2)

    def metrics(self) -> list[Measured]:
        return list(map(Measured, (PSNR, FRAME_SSIM, FRAME_LPIPS, FVD, FLICKERING)))

    def draw(self, values: Sequence[Tensor], facts: Facts, length: int | None = None) -> Any:
        return draw_clip(frames_of(values[0]))

    def medium(self, values: Sequence[Tensor], facts: Facts, length: int | None, alt: str) -> Media:
        return Animation.of(frames_of(values[0]), alt, FPS)

    def write_beside(self, made: list[Any], facts: Facts, path: Path) -> None:
        """NAME-moving.webp: every clip, to and fro."""
        turns = [[f.resize((96, 96), Image.Resampling.BICUBIC) for f in clip] for clip in made]
        frames = [contact_sheet(each, [""] * len(turns), 4) for each in zip(*turns)]
        save_animation([*frames, *frames[-2:0:-1]], path.with_name(f"{path.stem}-moving.webp"))


def frames_of(clip: Tensor) -> list[Any]:
    """PIL images of (channels, frames, height, width)."""
    return [picture_of(frame) for frame in clip.transpose(0, 1)]
