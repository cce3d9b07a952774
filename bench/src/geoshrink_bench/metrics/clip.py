"""CLIP scores (Radford et al., 2021) of RGB pictures in [0, 1], shape (n, 3, height, width).

The numbers of two checkpoints do not compare: name the checkpoint in every table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .base import Metric, Skipped, pretrained

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def clip_score(pictures: Tensor, prompts: Sequence[str], folder: str | Path) -> Tensor:
    """100·max(cos(picture, text), 0) (Hessel et al., 2021), higher is better.

    Prompts longer than the model's context (77 tokens) are cut there.

    folder   a CLIPModel with its tokenizer, as transformers saves it
    """
    if isinstance(prompts, str) or len(prompts) != len(pictures) or not len(prompts):
        given = repr(prompts) if isinstance(prompts, str) else len(prompts)
        raise ValueError(f"{len(pictures)} pictures need a list of as many prompts, got {given}")
    model, tokenizer = load(str(folder), pictures.device)
    return similarity(of_pictures(model, pictures), of_texts(model, tokenizer, prompts))


def clip_similarity(pictures: Tensor, reference: Tensor, folder: str | Path) -> Tensor:
    """100·max(cos(picture, reference picture), 0), higher is better; sizes may differ."""
    if len(pictures) != len(reference) or not len(pictures):
        raise ValueError(f"{len(pictures)} pictures need as many references, got {len(reference)}")
    model, _ = load(str(folder), pictures.device)
    return similarity(of_pictures(model, pictures), of_pictures(model, reference))


def similarity(a: Tensor, b: Tensor) -> Tensor:
    return 100 * F.cosine_similarity(a.double(), b.double()).clamp(min=0)


@torch.no_grad()
def of_pictures(model: Any, pictures: Tensor) -> Tensor:
    """Embeddings (n, d)."""
    size = model.config.vision_config.image_size
    pixels = (prepared(part, size) for part in pictures.split(32))
    pooled = [model.vision_model(pixel_values=part).pooler_output for part in pixels]
    return model.visual_projection(torch.cat(pooled))


@torch.no_grad()
def of_texts(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Embeddings (n, d)."""
    longest = model.config.text_config.max_position_embeddings
    parts = []
    for start in range(0, len(texts), 32):
        some = list(texts[start : start + 32])
        tokens = tokenizer(
            some, padding=True, truncation=True, max_length=longest, return_tensors="pt"
        ).to(model.device)
        parts.append(model.text_projection(model.text_model(**tokens).pooler_output))
    return torch.cat(parts)


def prepared(pictures: Tensor, size: int) -> Tensor:
    """In 8 bits, the shorter side resized to `size` (bicubic), the middle cut out, normalised."""
    if pictures.ndim != 4 or pictures.shape[1] != 3:
        raise ValueError(f"CLIP needs RGB pictures (n, 3, h, w), got {tuple(pictures.shape)}")
    if not pictures.isfinite().all():
        raise ValueError("some pictures have pixels that are infinite or no number")
    sides = [int(size * side / min(pictures.shape[2:])) for side in pictures.shape[2:]]
    pixels = (255 * pictures.float().clamp(0, 1)).round().byte().cpu()  # there is no CUDA kernel
    pixels = F.interpolate(pixels, sides, mode="bicubic", antialias=True)
    top, left = ((side - size) // 2 for side in sides)
    pixels = pixels[..., top : top + size, left : left + size].to(pictures.device)
    mean, std = (torch.tensor(c, device=pictures.device)[:, None, None] for c in (MEAN, STD))
    return (pixels / 255 - mean) / std


def load(folder: str, device: torch.device) -> tuple[Any, ...]:
    """(model, tokenizer) of a local folder."""
    if not (Path(folder) / "config.json").is_file():
        raise Skipped(missing(f"a config.json in {folder}"))
    return pretrained(folder, device, "CLIPModel", "AutoTokenizer")


def missing(what: str) -> str:
    return f"CLIP needs {what}: hf download openai/clip-vit-large-patch14 --local-dir DIR, name DIR"


def clip_metrics(folder: str | Path | None) -> tuple[Metric, Metric]:
    """(text–image of(pictures, prompts, None), image–image of(pictures, reference, None))."""

    def named() -> str | Path:
        if folder is None:
            raise Skipped(missing("a checkpoint's folder"))
        return folder

    version = "1" if folder is None else f"1: {Path(folder).resolve().name}"

    def metric(other: str, of: Callable[..., Tensor]) -> Metric:
        def measured(pictures: Tensor, compared: Any, _: object) -> Tensor:
            return of(pictures, compared, named())

        return Metric(f"CLIP {other}–image", "", True, measured, version, ("clip",))

    return metric("text", clip_score), metric("image", clip_similarity)
