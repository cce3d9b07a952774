"""Doubles of two hosts on torchdiffeq: HY-Motion's MotionFlowMatching and F5-TTS's CFM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchdiffeq import odeint

FRAMES, CHANNELS = 12, 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.weight = torch.randn(CHANNELS, CHANNELS, generator=generator)

    def forward(self, x: Tensor, t: Tensor, text: Tensor, mask: Tensor | None) -> Tensor:
        mixed = x if mask is None else x * mask[..., None]
        return torch.tanh(mixed @ self.weight + 3 * t + text) - x


class MotionFlowMatching(nn.Module):
    """All of FRAMES are integrated, `length` of them are kept; uncond first, both in one batch."""

    def __init__(self, steps: int, **scheduler: Any):
        super().__init__()
        self.motion_transformer, self.validation_steps = Net(), steps
        self._noise_scheduler_cfg = scheduler or {"method": "euler"}

    @torch.no_grad()
    def generate(self, seeds: list[int], length: int, scale: float = 3.0) -> Tensor:
        x_mask_temporal = (torch.arange(FRAMES) < length).expand(2 * len(seeds), FRAMES)

        def fn(t: Tensor, x: Tensor) -> Tensor:
            text = torch.tensor([0.0] * len(x) + [0.7] * len(x))[:, None, None]
            both = self.motion_transformer(torch.cat([x, x]), t, text, x_mask_temporal)
            free, given = both.chunk(2)
            return free + scale * (given - free)

        t = torch.linspace(0, 1, self.validation_steps + 1)
        noise = [
            torch.randn(1, FRAMES, CHANNELS, generator=torch.Generator().manual_seed(seed))
            for seed in seeds
        ]
        trajectory: Any = odeint(fn, torch.cat(noise), t, **self._noise_scheduler_cfg)
        return trajectory[-1][:, :length]


class CFM(nn.Module):
    """The first `known` frames are given and put back at the end; t is not uniform."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = Net()
        self.odeint_kwargs: dict[str, Any] = {"method": "euler"}

    @torch.no_grad()
    def sample(self, lengths: list[int], known: int, steps: int = 16) -> tuple[Tensor, Tensor]:
        frames = torch.arange(max(lengths))
        mask = frames < torch.tensor(lengths)[:, None] if len(lengths) > 1 else None
        cond_mask = (frames < known).expand(len(lengths), -1)[..., None]

        def fn(t: Tensor, x: Tensor) -> Tensor:
            return self.transformer(x, t, torch.tensor(0.4), mask)

        noise = torch.randn(
            len(lengths), len(frames), CHANNELS, generator=torch.Generator().manual_seed(1)
        )
        t = torch.linspace(0, 1, steps + 1)
        t = t - (torch.cos(torch.pi / 2 * t) - 1 + t)
        trajectory: Any = odeint(fn, noise, t, **self.odeint_kwargs)
        return torch.where(cond_mask, torch.zeros(()), trajectory[-1]), trajectory
