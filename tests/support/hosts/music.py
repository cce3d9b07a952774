"""A double of ACE-Step v1's loop: separate decode() calls, APG with momentum, an interval in step
index, a scheduler made inside, repainting without it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn


class Scheduler:
    """Flow matching by Euler; step() keeps the mean of the update apart."""

    def __init__(self, shift: float = 3.0):
        self.shift = shift

    def set_timesteps(self, steps: int) -> None:
        u = torch.linspace(1, 0.01, steps)
        sigmas = self.shift * u / (1 + (self.shift - 1) * u)
        self.timesteps, self.index = 1000 * sigmas, 0
        self.sigmas = torch.cat([sigmas, torch.zeros(1)])

    def step(self, model_output: Tensor, sample: Tensor, omega: float) -> Tensor:
        dx = (self.sigmas[self.index + 1] - self.sigmas[self.index]) * model_output
        self.index += 1
        return sample + (dx - dx.mean()) * omega + dx.mean()


class Doubled(Scheduler):
    """Every step but the first has two rounds, as Heun's."""

    def set_timesteps(self, steps: int) -> None:
        super().set_timesteps(steps)
        self.timesteps = torch.cat([self.timesteps[:1], self.timesteps[1:].repeat_interleave(2)])
        self.sigmas = torch.cat([self.timesteps / 1000, torch.zeros(1)])


class Output:
    """As diffusers' outputs: the tensor in .sample, and more beside it."""

    def __init__(self, sample: Tensor):
        self.sample, self.losses = sample, []


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.weight = torch.randn(4, 4, generator=generator)
        self.probe = nn.Identity()

    def encode(self, text: Tensor) -> Tensor:
        return text.sin()

    def decode(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor, timestep: Tensor
    ) -> Output:
        self.probe(hidden_states)
        time = (timestep / 400).cos()[:, None, None]
        mixed = self.weight @ hidden_states + time + encoder_hidden_states
        return Output(sample=torch.tanh(mixed) - hidden_states)


class Momentum:
    def __init__(self) -> None:
        self.running_average: Any = 0

    def update(self, difference: Tensor) -> Tensor:
        self.running_average = difference - 0.75 * self.running_average
        return self.running_average


def offloaded(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    return wrapper


class ACEStepPipeline:
    def __init__(self, model: nn.Module | None = None) -> None:
        self.ace_step_transformer: Any = model or Transformer()

    def noise(self, length: int, seed: int) -> Tensor:
        return torch.randn(2, 4, length, generator=torch.Generator().manual_seed(seed))

    def prompts(self) -> list[Tensor]:
        return [self.ace_step_transformer.encode(torch.full((2, 4, 1), c)) for c in (0.8, 0.0, 1.0)]

    @offloaded
    @torch.no_grad()
    def text2music_diffusion_process(
        self,
        length: int = 10,
        infer_steps: int = 20,
        guidance_scale: float = 4.0,
        omega_scale: float = 1.02,
        scheduler_type: str = "euler",
        guidance_interval: float = 0.5,
        lyrics: bool = False,
        retake_variance: float = 1.0,
        repaint: tuple[int, int] | None = None,
    ) -> Tensor:
        model = self.ace_step_transformer
        do_classifier_free_guidance = guidance_scale != 1
        scheduler = Scheduler() if scheduler_type == "euler" else Doubled()
        scheduler.set_timesteps(infer_steps)
        timesteps = scheduler.timesteps
        target_latents = self.noise(length, 0)
        is_repaint, n_min = repaint is not None, 0
        x0, z0 = self.noise(length, 1), target_latents
        repaint_mask = torch.zeros_like(x0)
        if repaint is not None:
            n_min = int(infer_steps * (1 - retake_variance))
            repaint_mask[..., slice(*repaint)] = 1.0
        start_idx = int(len(timesteps) * (1 - guidance_interval) / 2)
        end_idx = int(len(timesteps) * (guidance_interval / 2 + 0.5))
        prompt, nothing, text_only = self.prompts()
        momentum = Momentum()
        for i, t in enumerate(timesteps):
            if is_repaint and i < n_min:
                continue
            if is_repaint and i == n_min:
                target_latents = (1 - t / 1000) * x0 + t / 1000 * z0
            arguments = dict(hidden_states=target_latents, timestep=t.expand(len(x0)))
            noise_pred = model.decode(encoder_hidden_states=prompt, **arguments).sample
            if start_idx <= i < end_idx and do_classifier_free_guidance:
                if lyrics:
                    between = model.decode(encoder_hidden_states=text_only, **arguments).sample
                    noise_pred = 0.5 * (noise_pred + between)
                free = model.decode(encoder_hidden_states=nothing, **arguments).sample
                update = momentum.update(noise_pred - free)
                noise_pred = noise_pred + (guidance_scale - 1) * update
            if is_repaint:
                then = timesteps[i + 1] / 1000 if i + 1 < len(timesteps) else torch.zeros(())
                target_latents = target_latents + (then - t / 1000) * noise_pred
                known = (1 - then) * x0 + then * z0
                target_latents = torch.where(repaint_mask.bool(), target_latents, known)
            else:
                target_latents = scheduler.step(noise_pred, target_latents, omega_scale)
        return target_latents

    def flowedit_diffusion_process(self, length: int = 10) -> Tensor:
        return torch.zeros(2, 4, length)

    def __call__(self, **arguments: Any) -> Tensor:
        return self.text2music_diffusion_process(**arguments)
