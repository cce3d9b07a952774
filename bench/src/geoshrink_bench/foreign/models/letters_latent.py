"""Handwritten letters and digits in an autoencoder's latents: the velocity of a flow, guided."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..files import tensors
from ..recipe import Network, Recipe, Repository, register

FLOW, PICTURES = "parameters/EMNIST/Diffusion.pth", "parameters/EMNIST/AutoEncoder.pth"
CLASSES = 47  # of the balanced split of EMNIST


class Attention(nn.Module):
    """Every position of the picture looks at all others."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, 8 * heads) for _ in range(3))
        self.out_proj = nn.Linear(8 * heads, width)

    def forward(self, x: Tensor) -> Tensor:
        seen = x.flatten(2).mT
        parts = (
            layer(seen).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        made = functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        return x + self.out_proj(made).mT.reshape(x.shape)


class Bottleneck(nn.Module):
    """Wide in channels, each with a filter of its own, and narrow again: MobileNetV2."""

    def __init__(self, width: int):
        super().__init__()
        wide = 5 * width
        each = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, padding_mode="reflect")
        self.network = nn.Sequential(
            nn.Conv2d(width, wide, 1), nn.GELU(), each, nn.GELU(), nn.Conv2d(wide, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.network(x)


class Conformer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attn, self.conv = Attention(width, heads), Bottleneck(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.attn(x))


class Letters(Network):
    """The latent, the time and the class as three channels of 7 × 7."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 32, 5, padding=2),
            nn.GELU(),
            Conformer(32, heads=3),
            nn.GELU(),
            nn.Conv2d(32, 1, 5, padding=2),
        )
        self.yemb, self.temb = nn.Linear(CLASSES, 49, bias=False), nn.Linear(CLASSES, 49)
        self.nums = nn.Parameter(torch.zeros(CLASSES))
        self.log_scalar = nn.Parameter(torch.zeros(1))
        wide = nn.Conv2d(48, 32, 3, padding=1, padding_mode="reflect")
        self.decoder = nn.Sequential(
            nn.Conv2d(1, 48, 1),
            *(Conformer(48, heads=4) for _ in range(3)),
            nn.Upsample(scale_factor=2),
            wide,
            nn.Upsample(scale_factor=2),
            nn.Conv2d(32, 1, 5, padding=2),
        )

    def channels(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        distance = (1 - sigma - self.nums).square()
        time = self.temb(torch.exp(distance / self.log_scalar.exp())).expand(len(x), -1)
        kind = self.yemb(functional.one_hot(label, CLASSES + 1)[:, :CLASSES].to(x.dtype))
        told = [part.view(-1, 1, 7, 7) for part in (time, kind)]
        return torch.cat([x, *told], 1)

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        return self.network[0](self.channels(x, sigma, label))

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        """dx/dσ: the network says dx/dt with t = 1 − σ."""
        return -self.network(self.channels(x, sigma, label))

    def decode(self, x: Tensor) -> Tensor:
        return self.decoder(x)


def build(folder: Path) -> Network:
    network = Letters()
    pictures = tensors(folder / PICTURES)
    decoder = {key: value for key, value in pictures.items() if key.startswith("decoder.")}
    network.load_state_dict(tensors(folder / FLOW) | decoder)
    return network


LETTERS_LATENT = register(
    Recipe(
        name="letters-latent",
        about="EMNIST letters and digits in latents, convolutions and attention, 0.02 M",
        source=Repository(
            "sofia-dominguezc/MNIST-diffusion", "88bc05803c987e40be4eacb48cf4bb14d7c58c5e"
        ),
        licence="MIT",
        files={
            FLOW: "0b3722217dd0545d416be876c303dca3bd08daace39e2fa8142408ee9c50731b",
            PICTURES: "3006912c325fa1712c5ded81ac82d32d08e45e3470ec26a6ef2db83c2f14a372",
        },
        build=build,
        shape=(1, 7, 7),
        prediction="flow",
        alphas="flow",
        classes=tuple(f"class {i}" for i in range(CLASSES)),
        guided=True,
        judged_at=dict(steps=50, guidance=4.0, shift=1.0),
        looks=dict(mean=(0.10, 0.26), std=(0.26, 0.42)),  # EMNIST, balanced: 0.175 and 0.333
    )
)
