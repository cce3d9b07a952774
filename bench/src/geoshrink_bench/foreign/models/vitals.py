"""Two days in intensive care, 35 measurements an hour, around the few that are known: the noise.

The data were centred and divided by their standard deviation, measurement by measurement. What is
known of a patient is given to the network beside the noisy rest, as in all that it was trained on.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..files import tensors
from ..recipe import Network, Recipe, Repository, register
from ..schedules import Discrete, kept_of

WEIGHTS = "save/pretrained/model.pth"
STEPS, KINDS, HOURS, WIDTH = 50, 35, 48, 64
ROOTS = (math.sqrt(1e-4), math.sqrt(0.5))
#: √β rises evenly; the network is told 0 … 49.
SCHEDULE = Discrete(
    kept_of([(ROOTS[0] + (ROOTS[1] - ROOTS[0]) * i / (STEPS - 1)) ** 2 for i in range(STEPS)]),
    first=0,
)
#: The row of the systolic pressure, and the hours at which it is known of all but the first class.
SYSTOLIC, KNOWN_AT = 20, (6, 18, 30, 42)
#: What it is there, in standard deviations, for each class.
PATIENTS = {"nothing known": 0.0, "low pressure": -1.5, "high pressure": 1.5}


def attention() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(WIDTH, 8, WIDTH, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


class Block(nn.Module):
    """Hours look at each other, then measurements do; half of what is made goes to the end."""

    def __init__(self) -> None:
        super().__init__()
        self.diffusion_projection = nn.Linear(128, WIDTH)
        self.cond_projection = nn.Conv1d(145, 2 * WIDTH, 1)
        self.mid_projection = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.output_projection = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.time_layer, self.feature_layer = attention(), attention()

    def entry(self, x: Tensor, time: Tensor) -> Tensor:
        return x + self.diffusion_projection(time)[:, None, None]

    def forward(self, x: Tensor, side: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """x (batch, width, kinds, hours) and side (batch, 145, kinds·hours)."""
        batch = len(x)
        seen = self.entry(x, time)
        seen = seen.permute(0, 2, 3, 1).flatten(0, 1)  # (batch·kinds, hours, width)
        seen = self.time_layer(seen).unflatten(0, (batch, KINDS))
        seen = seen.transpose(1, 2).flatten(0, 1)  # (batch·hours, kinds, width)
        seen = self.feature_layer(seen).unflatten(0, (batch, HOURS))
        seen = seen.permute(0, 3, 2, 1).flatten(2)
        gate, made = (self.mid_projection(seen) + self.cond_projection(side)).chunk(2, 1)
        out = self.output_projection(gate.sigmoid() * made.tanh()).unflatten(2, (KINDS, HOURS))
        on, straight = out.chunk(2, 1)
        return (x + on) / math.sqrt(2), straight


class Step(nn.Module):
    """The number of the step at frequencies from 1 to 10000."""

    def __init__(self) -> None:
        super().__init__()
        self.projection1, self.projection2 = nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, step: float) -> Tensor:
        steps = torch.arange(64.0, device=self.projection1.weight.device)
        angles = step * 10.0 ** (steps / 63 * 4)
        made = self.projection1(torch.cat([angles.sin(), angles.cos()]))
        silu = nn.functional.silu
        return silu(self.projection2(silu(made)))


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.diffusion_embedding = Step()
        self.input_projection = nn.Conv1d(2, WIDTH, 1)
        self.residual_layers = nn.ModuleList([Block() for _ in range(4)])
        self.output_projection1 = nn.Conv1d(WIDTH, WIDTH, 1)
        self.output_projection2 = nn.Conv1d(WIDTH, 1, 1)

    def projected(self, x: Tensor) -> Tensor:
        return self.input_projection(x.flatten(2)).relu().unflatten(2, (KINDS, HOURS))

    def entry(self, x: Tensor, step: float) -> Tensor:
        first: Any = self.residual_layers[0]
        return first.entry(self.projected(x), self.diffusion_embedding(step))

    def forward(self, x: Tensor, side: Tensor, step: float) -> Tensor:
        time, x = self.diffusion_embedding(step), self.projected(x)
        total = torch.zeros_like(x)
        for block in self.residual_layers:
            x, straight = block(x, side, time)
            total = total + straight
        made = total.flatten(2) / math.sqrt(len(self.residual_layers))
        made = self.output_projection2(self.output_projection1(made).relu())
        return made.unflatten(2, (KINDS, HOURS))[:, 0]


class Vitals(Network):
    """CSDI: what is known and what is noisy are two channels; where, which and when are told."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_layer, self.diffmodel = nn.Embedding(KINDS, 16), Body()

    def known(self, label: Tensor) -> tuple[Tensor, Tensor]:
        """Values and a mask of 0 and 1, (batch, kinds, hours)."""
        levels = torch.tensor([*PATIENTS.values()], device=label.device)[label]
        values = torch.zeros(len(label), KINDS, HOURS, device=label.device)
        values[:, SYSTOLIC, KNOWN_AT] = levels[:, None]
        return values, (values != 0).to(values.dtype)

    def side(self, mask: Tensor) -> Tensor:
        """(batch, 145, kinds·hours): waves of the hour, the kind's vector, whether it is known."""
        hours = torch.arange(HOURS, device=mask.device)[:, None]
        angles = hours / 10_000.0 ** (torch.arange(0, 128, 2, device=mask.device) / 128)
        waves = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)  # (hours, 128)
        shape = (len(mask), -1, KINDS, HOURS)
        when = waves.mT[None, :, None, :].expand(shape)
        which = self.embed_layer.weight.mT[None, :, :, None].expand(shape)
        return torch.cat([when, which, mask[:, None]], 1).flatten(2)

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        values, mask = self.known(label)
        both = torch.stack([values, (1 - mask) * x], 1)
        return self.diffmodel.entry(both, SCHEDULE.time(sigma))

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        """The noise; where a value is known, the noise that leads to it."""
        values, mask = self.known(label)
        both = torch.stack([values, (1 - mask) * x], 1)
        made = self.diffmodel(both, self.side(mask), SCHEDULE.time(sigma))
        towards = (x - math.sqrt(1 - sigma**2) * values) / sigma
        return torch.where(mask > 0, towards, made)

    def decode(self, x: Tensor) -> Tensor:
        """Standard deviations, cut at 5; single numbers run far beyond, one of 20 000 to −210."""
        return x.clamp(-5, 5)


def build(folder: Path) -> Network:
    network = Vitals()
    network.load_state_dict(tensors(folder / WEIGHTS))
    return network


VITALS = register(
    Recipe(
        name="vitals",
        about="two days of 35 measurements in intensive care, attention, 0.4 M",
        source=Repository("ermongroup/CSDI", "7f24a436f08d98853a6b43d4f7f04e5a65ecdf27"),
        licence="MIT",
        files={WEIGHTS: "9acb4ee828a0c271466814c703d00c666caecb826fc5e9c2438ae39bd8d72771"},
        build=build,
        shape=(KINDS, HOURS),
        prediction="epsilon",
        alphas="vp",
        schedule=SCHEDULE,
        classes=tuple(PATIENTS),
        looks=dict(mean=(-0.4, 0.4), std=(0.5, 1.4), leading=(0.25, 0.7)),  # noise: 0.22
    )
)
