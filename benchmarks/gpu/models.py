"""The four full-size models through their own pipelines: random weights, no text encoder, no VAE.

Random weights make the time of a run, and nothing of its quality. `tiny` builds the same pipelines
with one or two narrow blocks, to try a script on a CPU.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Built = tuple[Any, dict[str, Any], dict[str, Any]]  # pipeline, its call, a call on a small latent


@dataclass(frozen=True)
class Model:
    title: str
    steps: int
    budget: int
    seconds: float  # its share of a session's time
    repeats: int  # runs of direct and ours, in turn
    make: Callable[[bool], Built]


def diffusers() -> Any:
    return importlib.import_module("diffusers")


def pipeline(name: str, transformer: nn.Module, solver: Any) -> Any:
    """The pipeline over a transformer and a scheduler; every other part it asks for is None."""
    cls = getattr(diffusers(), name)
    needs = [
        key
        for key, p in inspect.signature(cls.__init__).parameters.items()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and key != "self"
    ]
    transformer.eval().requires_grad_(False)
    pipe = cls(**{**dict.fromkeys(needs), "transformer": transformer, "scheduler": solver})
    pipe.set_progress_bar_config(disable=True)
    return pipe


def scheduler(name: str, **config: Any) -> Any:
    """A scheduler's numbers are float32 on the CPU, wherever the weights are."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            return getattr(diffusers(), name)(**config)
    finally:
        torch.set_default_dtype(before)


def flow(shift: float, **more: Any) -> Any:
    return scheduler("FlowMatchEulerDiscreteScheduler", shift=shift, **more)


def flux(tiny: bool) -> Built:
    """FLUX.1-dev, 11.9 B: 19 double and 38 single blocks, guidance embedded."""
    config: dict[str, Any] = {"guidance_embeds": True}
    if tiny:
        config |= {
            "num_layers": 1, "num_single_layers": 2, "attention_head_dim": 16,
            "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 16,
            "axes_dims_rope": (4, 6, 6),
        }  # fmt: skip
    pipe = pipeline(
        "FluxPipeline",
        diffusers().FluxTransformer2DModel(**config),
        flow(3.0, use_dynamic_shifting=True),
    )
    text, pooled = (32, 16) if tiny else (4096, 768)
    call = {
        "prompt_embeds": torch.randn(1, 512, text),
        "pooled_prompt_embeds": torch.randn(1, pooled),
        "guidance_scale": 3.5,
    }
    size = 64 if tiny else 1024
    return pipe, {**call, "height": size, "width": size}, {**call, "height": 64, "width": 64}


def sd3(tiny: bool) -> Built:
    """SD3.5 Medium, 2.2 B: 24 joint blocks, 13 of them with a second attention; batched CFG."""
    config: dict[str, Any] = {
        "sample_size": 128, "num_layers": 24, "num_attention_heads": 24,
        "caption_projection_dim": 1536, "pos_embed_max_size": 384, "qk_norm": "rms_norm",
        "dual_attention_layers": tuple(range(13)),
    }  # fmt: skip
    if tiny:
        config |= {
            "num_layers": 4, "attention_head_dim": 16, "num_attention_heads": 2,
            "caption_projection_dim": 32, "joint_attention_dim": 32, "pooled_projection_dim": 16,
            "dual_attention_layers": (0,), "pos_embed_max_size": 96,
        }  # fmt: skip
    pipe = pipeline(
        "StableDiffusion3Pipeline", diffusers().SD3Transformer2DModel(**config), flow(3.0)
    )
    text, pooled = (32, 16) if tiny else (4096, 2048)
    call = {
        "prompt_embeds": torch.randn(1, 333, text),
        "negative_prompt_embeds": torch.randn(1, 333, text),
        "pooled_prompt_embeds": torch.randn(1, pooled),
        "negative_pooled_prompt_embeds": torch.randn(1, pooled),
        "guidance_scale": 4.5,
    }
    size = 64 if tiny else 1024
    return pipe, {**call, "height": size, "width": size}, {**call, "height": 64, "width": 64}


def hunyuan(tiny: bool) -> Built:
    """HunyuanVideo, 12.8 B: 20 double and 40 single blocks, guidance embedded."""
    config: dict[str, Any] = {}
    if tiny:
        config = {
            "num_layers": 1, "num_single_layers": 2, "num_refiner_layers": 1,
            "attention_head_dim": 16, "num_attention_heads": 2, "text_embed_dim": 32,
            "pooled_projection_dim": 16, "rope_axes_dim": (4, 6, 6),
        }  # fmt: skip
    pipe = pipeline(
        "HunyuanVideoPipeline", diffusers().HunyuanVideoTransformer3DModel(**config), flow(7.0)
    )
    text, pooled = (32, 16) if tiny else (4096, 768)
    call = {
        "prompt_embeds": torch.randn(1, 256, text),
        "pooled_prompt_embeds": torch.randn(1, pooled),
        "prompt_attention_mask": torch.ones(1, 256, dtype=torch.long),
    }
    small = {**call, "height": 64, "width": 64, "num_frames": 5}
    size = {"height": 480, "width": 640, "num_frames": 65}
    return pipe, small if tiny else {**call, **size}, small


def wan(tiny: bool) -> Built:
    """Wan 2.1 14B, 480p: 40 blocks, sequential CFG, UniPC; 25 frames instead of 81."""
    config: dict[str, Any] = {}
    if tiny:
        config = {
            "num_layers": 2, "attention_head_dim": 12, "num_attention_heads": 2, "text_dim": 32,
            "ffn_dim": 32, "freq_dim": 32, "rope_max_seq_len": 32,
        }  # fmt: skip
    unipc = scheduler(
        "UniPCMultistepScheduler",
        prediction_type="flow_prediction",
        use_flow_sigmas=True,
        flow_shift=3.0,
    )
    pipe = pipeline("WanPipeline", diffusers().WanTransformer3DModel(**config), unipc)
    text = 32 if tiny else 4096
    call = {
        "prompt_embeds": torch.randn(1, 512, text),
        "negative_prompt_embeds": torch.randn(1, 512, text),
        "guidance_scale": 5.0,
    }
    small = {**call, "height": 64, "width": 64, "num_frames": 5}
    size = {"height": 480, "width": 832, "num_frames": 25}
    return pipe, small if tiny else {**call, **size}, small


MODELS = {
    "flux": Model("FLUX.1-dev, 1024²", 50, 10, 80, 5, flux),
    "sd3": Model("SD3.5 Medium, 1024², CFG", 28, 10, 45, 9, sd3),
    "wan": Model("Wan 2.1 14B, 832×480×25, CFG", 50, 10, 260, 1, wan),
    "hunyuan": Model("HunyuanVideo, 640×480×65", 50, 10, 280, 2, hunyuan),
}


def build(name: str, tiny: bool, device: str) -> Built:
    """The pipeline with every weight made on the device, in bfloat16 (float32 on a CPU)."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if device == "cpu" else torch.bfloat16)
    try:
        with torch.device(device):
            return MODELS[name].make(tiny)
    finally:
        torch.set_default_dtype(before)
