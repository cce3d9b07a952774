"""Objects: the zero set of a signed distance, met by parallel rays and lit from the upper left."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image, ImageColor
from torch import Tensor
from torch.nn import functional as F

from ...metrics.view import CLAY, FINER, LIGHT, PAPER, REACH, axes

SHARE, STEP = 0.6, (0.006, 0.08)  # of the distance a ray advances at once, and its bounds


def draw_object(field: np.ndarray, size: tuple[int, int] = (190, 190)) -> Image.Image:
    """The surface field = 0 in [−1, 1]³ (x, y, z up; negative inside), seen in three quarters."""
    distance = torch.from_numpy(np.pad(field, 1, constant_values=float(np.abs(field).max()) or 1.0))
    side = field.shape[0]
    cells = side / (side + 2)  # the padding closes what would leave the cube
    right, up, towards = axes(math.radians(35), math.radians(25))
    width, height = FINER * size[0], FINER * size[1]
    unit = 2 * REACH / min(width, height)
    across = (torch.arange(width) + 0.5 - width / 2) * unit
    upward = (height / 2 - torch.arange(height) - 0.5) * unit
    screen = across[None, :, None] * right + upward[:, None, None] * up
    depth = first_hit(distance.float()[None], (screen * cells).float(), (towards * cells).float())
    points = (screen + depth[..., None] * towards) * cells
    slope = torch.stack(torch.gradient(distance.float()))
    normal = F.normalize(looked_up(slope, points.float()), dim=0)
    light = F.normalize(torch.tensor(LIGHT), dim=0)
    lamp = light[0] * right + light[1] * up + light[2] * towards
    diffuse = torch.einsum("chw,c->hw", normal, lamp.float())
    shade = 0.3 + 0.85 * (0.5 + 0.5 * diffuse)
    rgb = shade[..., None] * torch.tensor(ImageColor.getrgb(CLAY))
    paper = torch.tensor(ImageColor.getrgb(PAPER)).float()
    rgb = torch.where(depth.isfinite()[..., None], rgb.clamp(0, 255), paper)
    image = Image.fromarray(rgb.round().byte().numpy())
    return image.resize(size, Image.Resampling.BOX)


def looked_up(grid: Tensor, points: Tensor) -> Tensor:
    """(channels, height, width): the grid (channels, x, y, z) at points (height, width, 3)."""
    at = points.flip(-1)[None, None]  # grid_sample wants the last axis first
    return F.grid_sample(grid[None], at, padding_mode="border", align_corners=False)[0, :, 0]


def first_hit(grid: Tensor, screen: Tensor, towards: Tensor) -> Tensor:
    """How far towards us each ray first meets the surface; −∞ where it never does.

    A ray advances by a share of the distance at hand (sphere tracing), so it meets thin walls.
    """
    rays = screen.flatten(0, 1)
    slope = torch.where(towards.abs() < 1e-6, 1e-6, towards)
    ends = torch.stack([(side - rays) / slope for side in (-1.0, 1.0)])
    depth, leave = ends.amax(0).amin(-1), ends.amin(0).amax(-1)  # within the cube
    hit = torch.full_like(depth, -math.inf)
    alive = (depth > leave).nonzero()[:, 0]
    while len(alive):
        now = looked_up(grid, (rays[alive] + depth[alive, None] * towards)[None])[0, 0]
        met, alive, now = alive[now < 0], alive[now >= 0], now[now >= 0]
        hit[met] = depth[met]
        depth[alive] -= (SHARE * now).clamp(*STEP)
        alive = alive[depth[alive] > leave[alive]]
    return hit.reshape(screen.shape[:2])
