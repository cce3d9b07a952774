"""Clips: a strip of frames on paper, and several that move in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from .canvas import PAPER


def draw_clip(
    frames: Sequence[Image.Image], size: tuple[int, int] = (780, 96), shown: int = 8
) -> Image.Image:
    """Evenly spaced frames of a clip from left to right, as large as they fit."""
    picked = [frames[i * len(frames) // shown] for i in range(shown)]
    side = min(size[0] // shown, size[1])
    strip = Image.new("RGB", size, PAPER)
    for i, frame in enumerate(picked):
        x = i * (size[0] - side) // max(1, shown - 1)
        strip.paste(frame.resize((side, side), Image.Resampling.BICUBIC), (x, 0))
    return strip


def save_animation(
    frames: Sequence[Image.Image], path: Path, fps: float = 8, limit: int = 300_000
) -> None:
    """A looping WEBP of at most `limit` bytes, at the best quality that fits."""
    first, *rest = frames
    for quality in (90, 80, 65, 50, 30):
        first.save(
            path, save_all=True, append_images=rest, duration=round(1000 / fps), loop=0,
            quality=quality, method=6,
        )  # fmt: skip
        if path.stat().st_size <= limit:
            return
    raise ValueError(f"{path.name} does not fit into {limit} bytes; show less")
