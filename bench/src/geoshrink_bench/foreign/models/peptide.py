"""Shapes of a molecule, alanine dipeptide, by an MLP: the velocity of a flow."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..files import tensors
from ..recipe import Network, Recipe, Repository, register

WEIGHTS = "checkpoints/benchmark_molecule_standard.pth"
ATOMS, WIDTH = 22, 141


class Peptide(Network):
    """Three coordinates of 22 atoms and the time, through four hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        size = 3 * ATOMS
        widths = [size + 1, 2 * WIDTH, WIDTH, WIDTH, 2 * WIDTH, size]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(widths)])

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        return self.layers[0](
            torch.cat([x, torch.full((len(x), 1), 1 - sigma, device=x.device)], 1)
        )

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        """dx/dσ: the network says dx/dt with t = 1 − σ."""
        seen = torch.selu(self.entry(x, sigma, label))
        for layer in self.layers[1:-1]:
            seen = torch.selu(layer(seen))
        return -self.layers[-1](seen)

    def decode(self, x: Tensor) -> Tensor:
        """Positions around the middle of the molecule, in nm."""
        return x.unflatten(1, (ATOMS, 3))


def build(folder: Path) -> Network:
    network = Peptide()
    found: Any = tensors(folder / WEIGHTS)["model_state_dict"]
    named = {key.replace("linear", ""): value for key, value in found.items()}
    own = {
        f"layers.{int(number) - 1}.{kind}": value
        for (number, kind), value in ((key.split("."), value) for key, value in named.items())
    }
    network.load_state_dict(own)
    return network


PEPTIDE = register(
    Recipe(
        name="peptide",
        about="coarse shapes of alanine dipeptide in nm, MLP, 0.1 M",
        source=Repository(
            "KacperWyrwal/bayesian-spectral-flow-matching",
            "6f56e209dfb262139866e24d29f404c7f6af79e4",
        ),
        licence="Apache-2.0",
        files={WEIGHTS: "816fb05d6fdf31e49d4201d7a4e2dfae8b254355609c1aa8657c187526cbd263"},
        build=build,
        shape=(3 * ATOMS,),
        prediction="flow",
        alphas="flow",
        looks=dict(mean=(-0.02, 0.02), std=(0.14, 0.25)),
    )
)
