"""Conditioning and latents drawn from a seed, so that no text encoder and no VAE is needed."""

from __future__ import annotations

from typing import Any

import torch


def noise(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class TestConditioning:
    """Random embeddings of `tokens` × `width`, with a pooled vector unless `pooled` is 0."""

    RETURN_TYPES = ("CONDITIONING",)
    FUNCTION = "make"
    CATEGORY = "geoshrink/test"

    @classmethod
    def INPUT_TYPES(cls):
        whole = {"default": 0, "min": 0, "max": 1 << 30}
        return {
            "required": {
                "tokens": ("INT", whole),
                "width": ("INT", whole),
                "pooled": ("INT", whole),
                "draw": ("INT", whole),
            }
        }

    def make(self, tokens, width, pooled, draw):
        extra: dict[str, Any] = {"guidance": 3.5}
        if pooled:
            extra["pooled_output"] = noise((1, pooled), draw + 1000)
        return ([[noise((1, tokens, width), draw), extra]],)


class TestLatent:
    """A latent of a shape such as "1,16,16,16"; `mask`: only the left half is sampled.

    `tag` changes nothing but the node's signature: a new value makes the sampler run again.
    """

    RETURN_TYPES = ("LATENT",)
    FUNCTION = "make"
    CATEGORY = "geoshrink/test"

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "shape": ("STRING", {"default": "1,16,16,16"}),
                "kind": (["zeros", "noise"],),
                "mask": ("BOOLEAN", {"default": False}),
                "tag": ("INT", {"default": 0, "min": 0, "max": 1 << 30}),
            }
        }

    def make(self, shape, kind, mask, tag):
        size = tuple(int(length) for length in shape.split(","))
        latent = {"samples": noise(size, 7) if kind == "noise" else torch.zeros(size)}
        if mask:
            left = torch.zeros(size[0], size[-2] * 8, size[-1] * 8)
            left[..., : left.shape[-1] // 2] = 1
            latent["noise_mask"] = left
        return (latent,)
