"""What each model of the zoo is: its data, its network, the settings it is judged at."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Recipe:
    name: str
    network: dict[str, Any]  # arguments of network.DiT, but for the number of classes
    read: Callable[
        [Path], tuple[Tensor, Tensor, list[str]]
    ]  # data as it is stored, labels, class names
    normalise: Callable[[Tensor], Tensor]  # stored data → what the network sees
    flips: tuple[int, ...] = ()  # axes along which a mirror image is as good
    training: dict[str, float] = field(default_factory=dict)
    judged_at: dict[str, float] = field(default_factory=dict)


def read_images(path: Path) -> tuple[Tensor, Tensor, list[str]]:
    """An .npz of packed WEBP files (`data`, `off`, `labels`, `classes`) as uint8 (n, 3, h, w)."""
    from PIL import Image

    with np.load(path) as archive:
        data, off = archive["data"].tobytes(), archive["off"]
        labels, classes = archive["labels"].astype(np.int64), [str(c) for c in archive["classes"]]

    def decode(i: int) -> np.ndarray:
        with Image.open(io.BytesIO(data[off[i] : off[i + 1]])) as image:
            return np.asarray(image.convert("RGB"))

    with ThreadPoolExecutor() as pool:
        pictures = np.stack(list(pool.map(decode, range(len(labels)))))
    return (
        torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous(),
        torch.from_numpy(labels),
        classes,
    )


FRUIT = Recipe(
    name="fruit",
    network=dict(shape=(3, 64, 64), patch=(4, 4), width=256, depth=6, heads=4, condition=96),
    read=read_images,
    normalise=lambda pictures: pictures.float() / 127.5 - 1,
    flips=(-1,),
    training=dict(batch=512, rate=5e-4, label_drop=0.1, ema=0.9995),
    judged_at=dict(steps=50, guidance=3.0, shift=3.0),
)

RECIPES = {recipe.name: recipe for recipe in (FRUIT,)}
