"""A double of HY-Motion: four joints that move as one, by torchdiffeq."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from .net import Net

try:
    from torchdiffeq import odeint
except ImportError:  # TINY says so before the double is used
    odeint: Any = None


class MotionFlowMatching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.motion_transformer, self.validation_steps = Net(3), 50
        self._noise_scheduler_cfg = {"method": "euler"}

    @torch.no_grad()
    def generate(self, text, seed_input, duration_slider, cfg_scale=1.0):
        frames = round(2 * duration_slider)
        x_mask_temporal = (torch.arange(12) < frames).expand(2 * len(seed_input), 12)

        def guided(t: Tensor, x: Tensor) -> Tensor:
            words = torch.tensor([0.0] * len(x) + [len(text) / 10] * len(x))[:, None, None]
            masked = torch.cat([x, x]) * x_mask_temporal[..., None]
            free, given = self.motion_transformer(masked, t, words).chunk(2)
            return free + cfg_scale * (given - free)

        noise = [torch.randn(12, 3, generator=torch.manual_seed(seed)) for seed in seed_input]
        times = torch.linspace(0, 1, self.validation_steps + 1)
        made = odeint(guided, torch.stack(noise), times, **self._noise_scheduler_cfg)[-1]
        return {"keypoints3d": made[:, :frames, None] + torch.arange(12.0).reshape(4, 3) / 10}


def T2MRuntime(ckpt_name: str, **how: Any) -> Any:
    pipe = MotionFlowMatching()
    pipe.load_state_dict(torch.load(ckpt_name))
    return SimpleNamespace(pipelines=[pipe])


def make(folder: Path) -> None:
    (folder / "config.yml").write_text("")
    torch.save(MotionFlowMatching().state_dict(), folder / "latest.ckpt")
