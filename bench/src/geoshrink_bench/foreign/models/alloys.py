"""Thirteen properties of high-entropy alloys of four phases by an MLP: the noise, cosine schedule.

The data were mapped to normal quantiles, column by column; what the model knows is how the columns
hang together.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..files import tensors
from ..recipe import Network, Recipe, Repository, register
from ..schedules import Discrete, cosine_betas, kept_of

WEIGHTS = "checkpoints/model_ema.pt"
WIDTH, HIDDEN, COLUMNS = 128, 256, 13
#: α is 0.03 at step 980 of 1000 and 5e-5 at the last: noise alone says nothing there.
SCHEDULE = Discrete(kept_of(cosine_betas(1000)), first=0, top=980)


class Layer(nn.Module):
    def __init__(self, into: int, out: int):
        super().__init__()
        self.linear = nn.Linear(into, out)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.linear(x))


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Layer(WIDTH, HIDDEN), Layer(HIDDEN, HIDDEN)])
        self.head = nn.Linear(HIDDEN, COLUMNS)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Alloys(Network):
    """TabDDPM: the row, the time and the class are added, and an MLP says the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.label_emb = Body(), nn.Embedding(4, WIDTH)
        self.proj = nn.Linear(COLUMNS, WIDTH)
        self.time_embed = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        half = WIDTH // 2
        steps = torch.arange(half, device=x.device)
        angles = SCHEDULE.time(sigma) * torch.exp(-math.log(10_000) / half * steps)
        time = self.time_embed(torch.cat([angles.cos(), angles.sin()]))
        return self.proj(x) + time + functional.silu(self.label_emb(label))

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        return self.mlp(self.entry(x, sigma, label))


def build(folder: Path) -> Network:
    network = Alloys()
    network.load_state_dict(tensors(folder / WEIGHTS))
    return network


ALLOYS = register(
    Recipe(
        name="alloys",
        about="rows of a table of high-entropy alloys, MLP, 0.1 M",
        source=Repository(
            "priyansh-iitd26/HEA-TabDDPM", "d493bab8a3663149d01255660ca099a9af9f95cc"
        ),
        licence="MIT",
        files={WEIGHTS: "490b3651cfd6ce2ff1a9932e07b625df5f86e16587d3281e931b9aed0c2501d5"},
        build=build,
        shape=(COLUMNS,),
        prediction="epsilon",
        alphas="vp",
        schedule=SCHEDULE,
        classes=("intermetallic", "BCC", "FCC", "FCC and BCC"),
        looks=dict(mean=(-0.4, 0.4), std=(0.6, 1.5), told=(0.15, 0.8)),
    )
)
