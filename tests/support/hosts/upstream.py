"""Tiny random models inside the real loops of tangoflux, hy3dgen, ACE-Step 1.5 and MiniMax-H3.

``HOSTS[name]()`` gives a Host. What tangoflux and hy3dgen import but do not use in their loops
(datasets, cv2, pymeshlab, torchvision) is replaced for the time of the import.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

WIDTH = 32


@dataclass
class Host:
    """What accelerate() is given, its denoiser, its schedulers, and one run from fixed noise."""

    given: Any
    denoiser: nn.Module
    schedulers: list[Any]
    make: Callable[..., list[Tensor]]

    def __call__(self, steps: int = 12, **more: Any) -> list[Tensor]:
        torch.manual_seed(0)
        return self.make(steps, **more)


class Anything(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextlib.contextmanager
def pretended(*names: str) -> Iterator[None]:
    """Modules that are not installed, while something that imports them is imported."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    sys.modules.update({name: Anything(name) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


def upstream(package: str, name: str, *unused: str) -> Any:
    """A module of a package that must be installed without its pins, and does not use `unused`."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package}")
    names = {"diffusers": ["AutoencoderOobleck", "FluxTransformer2DModel", "training_utils"]}
    names |= {"transformers": ["CLIPVisionModelWithProjection", "Dinov2Model", "T5EncoderModel"]}
    for library in names:  # they look for torchvision, so they come before it is pretended
        for wanted in names[library]:
            getattr(importlib.import_module(library), wanted)
    with pretended(*unused):
        return importlib.import_module(name)


def awake(model: nn.Module) -> nn.Module:
    """The model with small random weights where it starts with zeros."""
    for weight in model.parameters():
        if weight.ndim > 1 and not weight.any():
            nn.init.normal_(weight, std=0.1)
    return model.eval()


class Saved:
    """A class whose from_pretrained gives what was made here."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def from_pretrained(self, name: str) -> Any:
        return self.made


def tangoflux() -> Host:
    from hosts import text

    module: Any = upstream("tangoflux", "tangoflux.model", "datasets")
    config = dict(num_layers=1, num_single_layers=1, num_attention_heads=1, audio_seq_len=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "T5EncoderModel", Saved(text.t5(WIDTH)))
        patch.setattr(module, "T5TokenizerFast", Saved(text.tokenizer()))
        torch.manual_seed(0)
        model = module.TangoFlux(config | {"joint_attention_dim": WIDTH})
    awake(model)

    def make(steps: int, **more: Any) -> list[Tensor]:
        call = {"guidance_scale": 3.0, "duration": 2, "disable_progress": True, **more}
        return [model.inference_flow("a dog", num_inference_steps=steps, **call)]

    return Host(model, model.transformer, [model.noise_scheduler], make)


class Conditioner(nn.Module):
    """An image as a few tokens; nothing as zeros."""

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {"main": image.reshape(len(image), -1, WIDTH)}

    def unconditional_embedding(self, count: int) -> dict[str, Tensor]:
        return {"main": torch.zeros(count, 3, WIDTH)}


def hunyuan3d(scheduler: str = "FlowMatchEulerDiscreteScheduler", **more: Any) -> Host:
    """The real pipeline, denoiser and scheduler, and a ShapeVAE that is asked for latents only."""
    unused = ("cv2", "pymeshlab", "torchvision")
    package, parts, schedulers = (
        upstream("hy3dgen", f"hy3dgen.shapegen{name}", *unused)
        for name in ("", ".models", ".schedulers")
    )
    torch.manual_seed(0)
    model = awake(
        parts.Hunyuan3DDiT(
            in_channels=8, context_in_dim=WIDTH, hidden_size=WIDTH, num_heads=2, depth=1,
            depth_single_blocks=1, axes_dim=[16], **more,
        )
    )  # fmt: skip
    vae = parts.ShapeVAE(num_latents=6, embed_dim=8, width=WIDTH, heads=2, num_decoder_layers=1)
    image = torch.randn(1, 3, WIDTH)
    pipe = package.Hunyuan3DDiTFlowMatchingPipeline(
        vae.eval(), model, getattr(schedulers, scheduler)(),
        Conditioner(), lambda given: {"image": image}, device="cpu", dtype=torch.float32,
    )  # fmt: skip

    def make(steps: int, **more: Any) -> list[Tensor]:
        call = {"enable_pbar": False, "output_type": "latent", **more}
        return [pipe(image, num_inference_steps=steps, **call).clone()]

    return Host(pipe, model, [pipe.scheduler], make)


def acestep() -> Host:
    """As the checkpoints have it: the scheduler takes the pipeline's own shifted times."""
    from hosts import video

    pipe, kwargs = video.PIPELINES["AceStepPipeline"]()
    pipe.scheduler = video.flow(num_train_timesteps=1, shift=1.0)

    def make(steps: int, **more: Any) -> list[Tensor]:
        noise = torch.Generator().manual_seed(0)
        return [pipe(num_inference_steps=steps, generator=noise, **{**kwargs, **more}).audios]

    return Host(pipe, pipe.transformer, [pipe.scheduler], make)


def minimax_h3(keyframes: int = 0) -> Host:
    """The denoising blocks; with keyframes, conditioning rows stand before the video's own."""
    from hosts import video

    pipe, kwargs = video.MODULAR["MiniMaxH3ModularPipeline"]()
    if keyframes:
        parts = {name: part for name, part in pipe.components.items() if part is not None}
        pipe = video.modular("minimax_h3", "MiniMaxH3FL2VACoreDenoiseStep", **parts)
        pipe.set_progress_bar_config(disable=True)
        shape = (1, pipe.transformer.config.in_channels, 1, 2, 2)
        kwargs |= {"condition_latents": [torch.randn(shape)] * keyframes}
        kwargs |= {"keyframe_anchors": ("first", "last")[:keyframes]}

    def make(stages: int, **more: Any) -> list[Tensor]:
        noise = torch.Generator().manual_seed(0)
        made = pipe(num_inference_steps=stages + 1, generator=noise, **{**kwargs, **more})
        return [made["latents"], made["audio_latents"]]

    return Host(pipe, pipe.transformer, [pipe.scheduler, pipe.audio_scheduler], make)


HOSTS: dict[str, Callable[[], Host]] = {
    "tangoflux": tangoflux,
    "hunyuan3d": hunyuan3d,
    "acestep": acestep,
    "minimax-h3": minimax_h3,
    "minimax-h3 with keyframes": functools.partial(minimax_h3, 2),
}
