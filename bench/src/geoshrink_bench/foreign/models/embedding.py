"""How several of these models are told the time."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def waves(time: Tensor, width: int) -> Tensor:
    """sin and cos of the time at width/2 frequencies from 1 down to 1/10000, as in transformers."""
    half = width // 2
    steps = torch.arange(half, device=time.device)
    angles = time[:, None] * torch.exp(-math.log(10_000) / (half - 1) * steps)
    return torch.cat([angles.sin(), angles.cos()], 1)


class Waves(nn.Module):
    """sin and cos of the time at frequencies that were drawn, or trained."""

    def __init__(self, width: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(1, width // 2))

    def forward(self, time: Tensor) -> Tensor:
        angles = 2 * math.pi * time[:, None] * self.weights
        return math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], 1)
