"""Handwritten digits by a plain convolutional network: the noise, variance preserving."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from ..files import tensors
from ..recipe import Network, Recipe, Repository, register
from ..schedules import Discrete, kept_of, linear_betas

WEIGHTS = "contents_all/ddpm_mnist.pth"
STEPS = 1000
#: ᾱ_0 … ᾱ_1000; the model was trained on steps 1 … 1000.
SCHEDULE = Discrete(kept_of(linear_betas(1e-4, 0.02, STEPS + 1))[1:])


class Block(nn.Module):
    def __init__(self, into: int, out: int):
        super().__init__()
        conv = nn.Conv2d(into, out, 7, padding=3)
        self.net = nn.Sequential(conv, nn.LayerNorm([out, 28, 28]), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Digits(Network):
    """Four convolutions over the whole picture; the time is added after the first."""

    def __init__(self) -> None:
        super().__init__()
        widths = [1, 16, 32, 32, 16]
        blocks: list[nn.Module] = [Block(a, b) for a, b in pairwise(widths)]
        self.blocks = nn.ModuleList([*blocks, nn.Conv2d(16, 1, 3, padding=1)])
        sizes = [32, 128, 128, 128, 16]
        pairs = list(pairwise(sizes))
        layers = [layer for a, b in pairs for layer in (nn.Linear(a, b), nn.GELU())]
        self.time_embed = nn.Sequential(*layers[:-1])
        self.register_buffer("frequencies", torch.zeros(16))

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        angles = SCHEDULE.time(sigma) / STEPS * self.get_buffer("frequencies")
        time = self.time_embed(torch.cat([angles.sin(), angles.cos() - 1]))
        return self.blocks[0](x) + time[:, None, None]

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        x = self.entry(x, sigma, label)
        for block in self.blocks[1:]:
            x = block(x)
        return x

    def decode(self, x: Tensor) -> Tensor:
        return x + 0.5


def build(folder: Path) -> Network:
    network = Digits()
    found = {k[3:]: v for k, v in tensors(folder / WEIGHTS).items() if k.startswith("gt.")}
    network.load_state_dict(found)
    return network


DIGITS_CNN = register(
    Recipe(
        name="digits-cnn",
        about="MNIST digits, convolutions without resampling, 0.3 M",
        source=Repository(
            "sdaloglu/diffusion_with_entropy", "6d0b2c70ad36df39ba2c4111375e0e06ce77ed17"
        ),
        licence="MIT",
        files={WEIGHTS: "1995214f56c5bb6f37204e38d9f239227ce13a2c64734c27441fbf04defc6e6a"},
        build=build,
        shape=(1, 28, 28),
        prediction="epsilon",
        alphas="vp",
        schedule=SCHEDULE,
        looks=dict(mean=(0.08, 0.20), std=(0.24, 0.36)),  # MNIST: 0.131 and 0.308
    )
)
