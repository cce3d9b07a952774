"""A double of TangoFlux: noise, guided in one batch, stepped by diffusers' scheduler."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .net import Net
from .pipelines import flow

RATE, LENGTH = 640, 1024


class TangoFlux(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer, self.noise_scheduler = Net(4), flow()

    @torch.no_grad()
    def inference_flow(
        self, prompt, num_inference_steps=50, guidance_scale=3, duration=10, disable_progress=True
    ):
        sigmas = torch.linspace(1, 1 / num_inference_steps, num_inference_steps).tolist()
        self.noise_scheduler.set_timesteps(sigmas=sigmas)
        latents = torch.randn(1, LENGTH, 4)
        words = torch.tensor([0.0, len(prompt) / 10])[:, None, None]
        for t in self.noise_scheduler.timesteps:
            both = self.transformer(torch.cat([latents, latents]), t / 1000, words)
            free, given = both.chunk(2)
            out = free + guidance_scale * (given - free)
            latents = self.noise_scheduler.step(out, t, latents).prev_sample
        return latents


class Sound:
    """The latents are the sound."""

    config = SimpleNamespace(sampling_rate=RATE)

    def decode(self, latents: Tensor) -> Any:
        return SimpleNamespace(sample=latents.flatten(1).tanh()[:, None].repeat(1, 2, 1))


class TangoFluxInference:
    def __init__(self, name: str, device: Any = "cpu"):
        self.model, self.vae = TangoFlux(), Sound()
        self.model.load_state_dict(load_file(Path(name, "tangoflux.safetensors")))


def make(folder: Path) -> None:
    """Its weights under the names that the host looks for."""
    save_file(TangoFlux().state_dict(), folder / "tangoflux.safetensors")
    for name in ("config.json", "vae.safetensors"):
        (folder / name).write_text("{}")
