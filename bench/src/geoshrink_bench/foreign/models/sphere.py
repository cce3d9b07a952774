"""Random fields on a sphere with a known spectrum by a neural operator: the velocity of a flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..files import tensors
from ..recipe import Network, Recipe, Repository, register

WEIGHTS = "checkpoints/benchmark_s2_standard_sobolev_fno.pth"
ROWS, COLUMNS, WIDTH, MODES = 20, 40, 32, 8


class Spectral(nn.Module):
    """Weights act on the coefficients of the lowest modes along each axis.

    All channels enter by their sum, as the authors wrote it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(WIDTH, WIDTH, MODES, MODES))
        self.register_buffer("phi_theta", torch.zeros(ROWS, MODES))
        self.register_buffer("phi_phi", torch.zeros(COLUMNS, MODES))
        self.register_buffer("encode_scale", torch.zeros(MODES, MODES))
        self.register_buffer("decode_scale", torch.zeros(MODES, MODES))

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self.get_buffer("phi_theta"), self.get_buffer("phi_phi")
        found = columns.mT @ x.sum(1, keepdim=True).mT @ rows  # (batch, 1, columns', rows')
        made = found * self.get_buffer("encode_scale") * self.weights.sum(0).mT
        return rows @ (made * self.get_buffer("decode_scale")).mT @ columns.mT


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spectral, self.bypass = Spectral(), nn.Conv2d(WIDTH, WIDTH, 1)
        self.norm = nn.GroupNorm(1, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.norm(self.spectral(x) + self.bypass(x)))


class Operator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lifting, self.projection = nn.Conv2d(4, WIDTH, 1), nn.Conv2d(WIDTH, 1, 1)
        self.fno_layers = nn.ModuleList([Layer() for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.lifting(x)
        for layer in self.fno_layers:
            x = layer(x)
        return self.projection(x)


class Sphere(Network):
    """The field, the time and the two angles as four channels."""

    def __init__(self) -> None:
        super().__init__()
        self.fno = Operator()
        self.register_buffer("coords", torch.zeros(1, ROWS, COLUMNS, 2))

    def channels(self, x: Tensor, sigma: float) -> Tensor:
        angles = self.get_buffer("coords").permute(0, 3, 1, 2).expand(len(x), -1, -1, -1)
        return torch.cat([x, torch.full_like(x, 1 - sigma), angles], 1)

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        return self.fno.lifting(self.channels(x, sigma))

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        """dx/dσ: the network says dx/dt with t = 1 − σ."""
        return -self.fno(self.channels(x, sigma))


def build(folder: Path) -> Network:
    network = Sphere()
    found: Any = tensors(folder / WEIGHTS)["model_state_dict"]
    network.load_state_dict(found)
    return network


SPHERE = register(
    Recipe(
        name="sphere",
        about="smooth random fields on a sphere, neural operator, 0.1 M",
        source=Repository(
            "KacperWyrwal/bayesian-spectral-flow-matching",
            "6f56e209dfb262139866e24d29f404c7f6af79e4",
        ),
        licence="Apache-2.0",
        files={WEIGHTS: "a05a539d6638ab4cba2f3777f2d39dca3f32aef91aca280af2004a2aed6dbdfa"},
        build=build,
        shape=(1, ROWS, COLUMNS),
        prediction="flow",
        alphas="flow",
        looks=dict(mean=(-0.3, 0.3), std=(0.25, 0.6), leading=(0.2, 1.0)),  # the data's std: 0.40
    )
)
