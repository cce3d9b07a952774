"""Pictures: (3, height, width) in [−1, 1]."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from geoshrink.compare.kinds import Made, kind_of
from geoshrink.page import Media, Picture
from geoshrink.page.media import png

from ...metrics.frechet import FID
from ...metrics.lpips import LPIPS_ALEX, LPIPS_VGG
from ...metrics.measured import Measured
from ...metrics.video import PSNR, SSIM
from .base import Data, Facts, Lengths, Modality, mirrored

TILE = (190, 190)  # pixels on a contact sheet


class Pictures(Modality):
    axes, count = 4, 16
    legend = "64×64 pixels, enlarged."

    def read(self, path: Path) -> Data:
        pictures, labels, classes, _ = read_packed(path)
        return Data((pictures,), labels, classes)

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], None]:
        return (mirrored(data.parts[0][pick].float() / 127.5 - 1, -1),), None

    def values(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Tensor:
        """Float pictures in [0, 1]."""
        return (x.float().clamp(-1, 1) + 1) / 2

    def decode(self, x: Tensor, facts: Facts, lengths: Lengths) -> list[Any]:
        """PIL images."""
        return [picture_of(pixels) for pixels in self.values(x, facts)]

    def made(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Made:
        return kind_of("Pictures")(self.values(x, facts).cpu()[:, None])

    def views(self, values: Tensor) -> Tensor:
        return (2 * values - 1)[:, None]

    def metrics(self) -> list[Measured]:
        return list(map(Measured, (PSNR, SSIM, LPIPS_ALEX, LPIPS_VGG, FID)))

    def draw(self, values: Sequence[Tensor], facts: Facts, length: int | None = None) -> Any:
        return picture_of(values[0]).resize(TILE, Image.Resampling.BICUBIC)

    def medium(self, values: Sequence[Tensor], facts: Facts, length: int | None, alt: str) -> Media:
        """Its own pixels, exact."""
        return Picture(png(picture_of(values[0])), alt)


def picture_of(pixels: Tensor) -> Any:
    """A PIL image from (channels, height, width) in [0, 1]."""
    array = (255 * pixels).round().byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)


def read_packed(path: Path) -> tuple[Tensor, Tensor, list[str], int]:
    """(pictures, labels, classes, frames per clip) of an .npz of packed WEBP files.

    The archive holds `data`, `off`, `labels`, `classes`, and `frames` where pictures form clips.
    """
    with np.load(path) as archive:
        data, off = archive["data"].tobytes(), archive["off"]
        labels, classes = archive["labels"].astype(np.int64), [str(c) for c in archive["classes"]]
        frames = int(archive["frames"]) if "frames" in archive else 1

    def decode(i: int) -> np.ndarray:
        with Image.open(io.BytesIO(data[off[i] : off[i + 1]])) as image:
            return np.asarray(image.convert("RGB"))

    with ThreadPoolExecutor() as pool:
        pictures = np.stack(list(pool.map(decode, range(len(off) - 1))))
    return (
        torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous(),
        torch.from_numpy(labels),
        classes,
        frames,
    )
