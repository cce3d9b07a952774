"""exp: ω = cos²(ρθ), the line carried on along its geodesic; 0 once ρθ reaches a right angle, after
which cos² would grow again.
"""

import math

import torch

from .rule import Form


def omega(rule, angle, energy, reach):
    return torch.where(angle < math.pi / 2, angle.cos().square(), torch.zeros_like(angle))


FORM = Form("exp", omega, sees="angle")
