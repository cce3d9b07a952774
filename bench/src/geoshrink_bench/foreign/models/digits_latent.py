"""Handwritten digits in a variational autoencoder's latents: the velocity of a flow, guided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..files import tensors
from ..recipe import Network, Recipe, Repository, register
from .embedding import Waves

FLOW, PICTURES = "notebooks/mnist/latent_unet.pt", "notebooks/mnist/vae.pt"
WIDTH, TOLD = 8, 64


class Residual(nn.Module):
    """Two convolutions; the time and the class each scale and shift what is in between."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))
        self.film_t, self.film_y = (nn.Linear(TOLD, 2 * WIDTH) for _ in range(2))

    def entry(self, x: Tensor, time: Tensor, kind: Tensor) -> Tensor:
        seen = self.conv1(x)
        for told in (self.film_t(time), self.film_y(kind)):
            scale, shift = told[:, :, None, None].chunk(2, 1)
            seen = scale * seen + shift
        return seen

    def forward(self, x: Tensor, time: Tensor, kind: Tensor) -> Tensor:
        return functional.relu(x + self.conv2(functional.relu(self.entry(x, time, kind))))


class Level(nn.Module):
    def __init__(self, joins: bool = False):
        super().__init__()
        if joins:
            self.reduce = nn.Conv2d(2 * WIDTH, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList([Residual() for _ in range(2)])

    def forward(self, x: Tensor, *told: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, *told)
        return x


def up(into: int, out: int, groups: int) -> list[nn.Module]:
    """Twice the resolution."""
    conv = nn.ConvTranspose2d(into, out, 4, stride=2, padding=1)
    return [conv, nn.GroupNorm(groups, out), nn.ReLU()]


class Pictures(nn.Module):
    """The decoder: 4 × 4 latents to 32 × 32 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Conv2d(WIDTH, 128, 3, padding=1), nn.GroupNorm(8, 128), nn.ReLU()),
            *up(128, 64, groups=8),
            *up(64, 32, groups=4),
            *up(32, 16, groups=4),
            nn.Conv2d(16, 1, 3, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Digits(Network):
    """A U-Net that stays at one resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.t_embedder, self.y_embedder = Waves(TOLD), nn.Embedding(11, TOLD)
        self.init_conv, self.out_conv = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))
        self.encoders = nn.ModuleList([Level() for _ in range(2)])
        self.midcoder = Level()
        self.decoders = nn.ModuleList([Level(joins=True) for _ in range(2)])
        self.decoder = Pictures()

    def told(self, x: Tensor, sigma: float, label: Tensor) -> tuple[Tensor, Tensor]:
        time = self.t_embedder(torch.full((len(x),), 1 - sigma, device=x.device))
        return time, self.y_embedder(label)

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        first: Any = self.encoders[0]
        return first.blocks[0].entry(self.init_conv(x), *self.told(x, sigma, label))

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        """dx/dσ: the network says dx/dt with t = 1 − σ."""
        told, x, seen = self.told(x, sigma, label), self.init_conv(x), []
        for level in self.encoders:
            x = level(x, *told)
            seen.append(x)
        x = self.midcoder(x, *told)
        for level in self.decoders:
            joined = torch.cat([x, seen.pop()], 1)
            x = level(level.reduce(joined), *told)  # type: ignore[operator]
        return -self.out_conv(x)

    def decode(self, x: Tensor) -> Tensor:
        return self.decoder(x)


def build(folder: Path) -> Network:
    network = Digits()
    pictures = tensors(folder / PICTURES)
    decoder = {key: value for key, value in pictures.items() if key.startswith("decoder.")}
    network.load_state_dict(tensors(folder / FLOW) | decoder)
    return network


DIGITS_LATENT = register(
    Recipe(
        name="digits-latent",
        about="MNIST digits in latents, U-Net, 0.04 M",
        source=Repository("chookcurry/flow-matching", "7e5e382c28a32de8e4263e29f0f32213db686da8"),
        licence="MIT",
        files={
            FLOW: "f208ee8d58f86f13385bf934452fbb39fca1b4deffc7d29a9b5213b14acd927a",
            PICTURES: "f991f30c928874aa316dd634466a14d6c70769247aab4b733a03129041d6049f",
        },
        build=build,
        shape=(WIDTH, 4, 4),
        prediction="flow",
        alphas="flow",
        classes=tuple("0123456789"),
        guided=True,
        judged_at=dict(steps=50, guidance=3.0, shift=1.0),
        looks=dict(mean=(0.05, 0.15), std=(0.15, 0.30), told=(0.4, 1.0)),
    )
)
