"""How a surface is looked at, in drawings and in pictures for metrics: colours, light, the eye."""

from __future__ import annotations

import math

import torch
from torch import Tensor

CLAY, PAPER = "#c9a27e", "#fdfdfc"
FINER = 2  # rays per pixel and axis
REACH = 1.3  # half the width of the view, in half sizes of the cube
LIGHT = (-0.35, 0.8, 0.5)  # to the right, up, towards us


def axes(azimuth: float, elevation: float) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors to the right, up and towards us, of an eye that looks at the origin."""
    ca, sa, ce, se = (f(a) for a in (azimuth, elevation) for f in (math.cos, math.sin))
    right = torch.tensor([ca, sa, 0.0])
    towards = torch.tensor([sa * ce, -ca * ce, se])
    return right, torch.linalg.cross(towards, right), towards
