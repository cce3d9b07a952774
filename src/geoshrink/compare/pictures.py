"""Pictures and video, as floats in [0, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..page import Media, Picture
from ..page.media import Animation, png
from .kinds import Scores, register_kind
from .likeness import WINDOW, psnr, ssim
from .outcomes import PSNR, SSIM

CHANNELS = (1, 3, 4)
FPS, WIDEST = 16.0, 512  # of an animation, where nothing names its frame rate; pixels on the page


@dataclass(frozen=True)
class Pictures:
    """`values` are (samples, frames, channels, height, width) in [0, 1]; moving ones are video."""

    values: Tensor
    moving: bool = False
    fps: float = FPS

    title, metrics = "Look", (PSNR, SSIM)

    @property
    def noun(self) -> str:
        return "video" if self.moving else "picture"

    def __len__(self) -> int:
        return len(self.values)

    def is_finite(self) -> bool:
        return bool(self.values.isfinite().all())

    def score(self, reference: Pictures, skipped: set[str]) -> Scores:
        """PSNR and SSIM of each sample, mean over its frames."""
        device = "cuda" if torch.cuda.is_initialized() else "cpu"
        scores: Scores = [[], []]
        for sample, wanted in zip(self.values, reference.values, strict=True):
            pairs = [(a[None].to(device), b[None].to(device)) for a, b in zip(sample, wanted)]
            for metric, values in zip((psnr, ssim), scores):
                if metric is ssim and min(sample.shape[-2:]) < WINDOW:
                    skipped.add(f"SSIM skipped: it needs pictures of {WINDOW}×{WINDOW} or more.")
                    values.append(math.nan)
                    continue
                values.append(sum(float(metric(a, b)) for a, b in pairs) / len(pairs))
        return scores

    def medium(self, i: int, alt: str, reference: Any) -> Media:
        return self.picture(i, alt)

    def file(self, i: int) -> tuple[bytes, str]:
        """PNG; of a video an animated WEBP of its own size."""
        images = self.images(i)
        if not self.moving:
            return png(images[0], optimize=False), ".png"
        return Animation.of(images, "", self.fps).data, ".webp"

    def images(self, i: int) -> list[Any]:
        """The frames of sample i, as PIL has them."""
        from PIL import Image

        pixels = (255 * self.values[i].nan_to_num(0)).round().byte().movedim(1, -1).numpy()
        return [Image.fromarray(p.squeeze(-1) if p.shape[-1] == 1 else p) for p in pixels]

    def picture(self, i: int, alt: str) -> Picture:
        images = self.images(i)
        if not self.moving:
            return Picture(png(images[0], optimize=False), alt)
        for image in images:
            image.thumbnail((WIDEST, WIDEST))
        return Animation.of(images, alt, self.fps)


register_kind("Pictures", Pictures)


def floats(value: Any) -> Tensor | None:
    """Arrays, tensors, PIL pictures and lists of them as one tensor (…, channels, height, width).

    None if they are not pictures.
    """
    if isinstance(value, (list, tuple)):
        parts = [part for part in map(floats, value) if part is not None]
        same = len(parts) == len(value) and len({part.shape for part in parts}) == 1
        return torch.stack(parts) if same else None
    if hasattr(value, "convert") and hasattr(value, "mode"):
        mode = value.mode if value.mode in ("L", "RGB", "RGBA") else "RGB"
        pixels = np.array(value.convert(mode))
        return floats(pixels if pixels.ndim == 3 else pixels[..., None])
    last = isinstance(value, np.ndarray)
    if last:
        value = torch.from_numpy(np.ascontiguousarray(value))
    if not isinstance(value, Tensor) or value.ndim not in (3, 4, 5):
        return None
    value = value.detach().cpu()
    value = value.float() if value.is_floating_point() else value.float() / 255
    usual = (-1, -3) if last else (-3, -1)  # NumPy has channels last, torch before the pixels
    places = (*usual, -4) if value.ndim == 5 else usual
    at = next((at for at in places if value.shape[at] in CHANNELS), None)
    return None if at is None else value.movedim(at, -3)
