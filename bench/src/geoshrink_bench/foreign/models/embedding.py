"""How several of these models are told the time."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def waves(time: Tensor, width: int) -> Tensor:
    """sin and cos of the time at width/2 frequencies from 1 down to 1/10000, as in transformers."""
    half = width // 2
    steps = torch.arange(half, device=time.device)
    angles = time[:, None] * torch.exp(-math.log(10_000) / (half - 1) * steps)
    return torch.cat([angles.sin(), angles.cos()], 1)
