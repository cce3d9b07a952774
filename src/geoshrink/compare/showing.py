"""What a pipeline made, as float pictures: scored, and as media for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..bench.metrics.image import psnr, ssim
from ..comparing import png
from ..page import Picture
from ..page.media import Animation, Media

#: Where diffusers' outputs hold what they show; the first three are video.
SHOWN = ("frames", "videos", "video", "images", "image")
CHANNELS = (1, 3, 4)
Scores = tuple[list[float], list[float]]  # PSNR and SSIM of each sample
FPS, WIDEST = 16.0, 512  # of an animation, where the call names no frame rate; pixels on the page


def shown(output: Any, kind: str) -> tuple[Tensor, bool]:
    """(float pictures in [0, 1] as (samples, frames, channels, height, width), whether video)."""
    name = next((n for n in SHOWN if getattr(output, n, None) is not None), None)
    found = floats(output if name is None else getattr(output, name))
    moving = found is not None and (found.ndim == 5 or name in SHOWN[:3])
    if found is None or found.ndim not in (4, 5):
        fields = [*output] if isinstance(output, Mapping) else [type(output).__name__]
        raise TypeError(
            f"{kind} returns {', '.join(map(str, fields))}: compare shows pictures and video only, "
            "not that yet"
        )
    if found.ndim == 4:
        found = found[None] if moving else found[:, None]
    return found.clamp(0, 1), moving


def floats(value: Any) -> Tensor | None:
    """Arrays, tensors, PIL pictures and lists of them as one tensor (…, channels, height, width).

    None where they are no pictures.
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
    at = channels_at(value.shape, last)
    return None if at is None else value.movedim(at, -3)


def channels_at(shape: Sequence[int], last: bool) -> int | None:
    """Which dimension the channels are: NumPy has them last, torch before the pixels."""
    usual = (-1, -3) if last else (-3, -1)
    places = (*usual, -4) if len(shape) == 5 else usual
    return next((at for at in places if shape[at] in CHANNELS), None)


def score(pictures: Tensor, reference: Tensor) -> Scores:
    """PSNR and SSIM of each sample, mean over its frames."""
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    scores: Scores = [], []
    for sample, wanted in zip(pictures, reference, strict=True):
        pairs = [(a[None].to(device), b[None].to(device)) for a, b in zip(sample, wanted)]
        for metric, values in zip((psnr, ssim), scores):
            values.append(sum(float(metric(a, b)) for a, b in pairs) / len(pairs))
    return scores


def medium(sample: Tensor, moving: bool, alt: str, fps: float) -> Media:
    """A sample's frames as something the page shows."""
    from PIL import Image

    pixels = (255 * sample.nan_to_num(0)).round().byte().movedim(1, -1).numpy()
    images = [Image.fromarray(p.squeeze(-1) if p.shape[-1] == 1 else p) for p in pixels]
    if not moving:
        return Picture(png(images[0], optimize=False), alt)
    for image in images:
        image.thumbnail((WIDEST, WIDEST))
    return Animation.of(images, alt, fps)
