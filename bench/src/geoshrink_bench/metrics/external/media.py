"""Pictures (channels, height, width) as PNG and clips (channels, frames, height, width) as MP4.

Values are floats in [0, 1], channels one or three. A file is written as the model made it: a PNG
keeps 8 bits, an MP4 is H.264 at a constant rate factor of 10, which the eye cannot tell.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from ..base import library

CRF = 10
BEYOND = 0.5  # of [0, 1]: values further out are on another scale


def write_png(path: str | Path, picture: Tensor) -> None:
    if picture.ndim != 3:
        raise ValueError(f"a picture is (channels, height, width), got {tuple(picture.shape)}")
    Image.fromarray(pixels(picture)).save(path)


def write_mp4(path: str | Path, clip: Tensor, fps: float) -> None:
    av = library("av")
    if clip.ndim != 4:
        raise ValueError(f"a clip is (channels, frames, height, width), got {tuple(clip.shape)}")
    if not 0 < fps < 1000:
        raise ValueError(f"fps must be above 0, got {fps!r}")
    frames = pixels(clip)
    height, width = frames.shape[1:3]
    if height % 2 or width % 2:
        raise ValueError(f"H.264 needs even sides, got {height}×{width}: cut a line off")
    with av.open(str(path), "w") as container:
        rate = Fraction(fps).limit_denominator(1001)
        stream: Any = container.add_stream("libx264", rate=rate, options={"crf": str(CRF)})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def pixels(values: Tensor) -> np.ndarray:
    """(channels, …) in [0, 1] as bytes (…, 3)."""
    shape = tuple(values.shape)
    if shape[0] not in (1, 3) or not values.numel() or not values.is_floating_point():
        raise ValueError(
            f"pictures are floats in [0, 1] with one or three channels first, got {values.dtype} "
            f"{shape}"
        )
    low, high = float(values.min()), float(values.max())
    if not -BEYOND <= low <= high <= 1 + BEYOND:
        raise ValueError(f"pictures must be in [0, 1], got values from {low:g} to {high:g}")
    bytes_ = (values.detach().float().clamp(0, 1) * 255).round().byte().movedim(0, -1)
    return np.ascontiguousarray(bytes_.expand(*bytes_.shape[:-1], 3).cpu().numpy())
