"""Pictures of our own: the bar of anchors, and sheets with a label above every column."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any

import folder_paths
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

EXACT, PREDICTED, PAPER, INK = (38, 98, 188), (214, 222, 234), (255, 255, 255), (30, 34, 42)
WIDTH, HEIGHT, GAP = 640, 40, 4


def bar_of(anchors: Sequence[int], steps: int) -> Tensor:
    """One block for every step, dark where the model was queried; as IMAGE."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    draw = ImageDraw.Draw(picture)
    for n in range(steps):
        left, right = (round(4 + (WIDTH - 8) * at / steps) for at in (n, n + 1))
        colour = EXACT if n in anchors else PREDICTED
        draw.rectangle((left, 6, max(left, right - 2), HEIGHT - 7), fill=colour)
    return as_image([picture])


def sheet_of(columns: Sequence[tuple[str, Tensor]], rows: int = 2) -> Tensor:
    """IMAGE batches side by side, a label above each; the first `rows` pictures of a batch."""
    widths = [frames(batch).shape[2] for _, batch in columns]
    scale = max(1, 256 // max(1, min(widths)))  # tiny pictures are enlarged, so that labels fit
    parts = [[as_picture(one, scale) for one in frames(batch)[:rows]] for _, batch in columns]
    wide, high = parts[0][0].size
    letters = max(14, wide // 20)
    band = 2 * letters
    size = len(columns) * (wide + GAP) - GAP, band + len(parts[0]) * (high + GAP) - GAP
    sheet = Image.new("RGB", size, PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(letters)
    for i, ((label, _), pictures) in enumerate(zip(columns, parts)):
        draw.text((i * (wide + GAP) + 4, letters // 3), label, fill=INK, font=font)
        for j, picture in enumerate(pictures):
            sheet.paste(picture, (i * (wide + GAP), band + j * (high + GAP)))
    return as_image([sheet])


def frames(batch: Tensor) -> Tensor:
    """Pictures of a batch; of films, the frame in the middle of each."""
    return batch if batch.ndim == 4 else batch[:, batch.shape[1] // 2]


def as_picture(one: Tensor, scale: int) -> Image.Image:
    values = (one.detach().float().clamp(0, 1) * 255).round().byte().cpu().numpy()
    picture = Image.fromarray(values[..., :3])
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)


def as_image(pictures: Sequence[Image.Image]) -> Tensor:
    return torch.stack([torch.from_numpy(np.array(p)).float() / 255 for p in pictures])


def shown(image: Tensor) -> dict[str, Any]:
    """A picture as a node shows it: written to ComfyUI's folder for previews."""
    folder, name = folder_paths.get_temp_directory(), f"geoshrink_{uuid.uuid4().hex[:12]}.png"
    os.makedirs(folder, exist_ok=True)
    as_picture(image[0], 1).save(os.path.join(folder, name), compress_level=1)
    return {"images": [{"filename": name, "subfolder": "", "type": "temp"}]}
