"""The next four moves of a robot arm among six pillars by a transformer: the noise, 16 steps.

The arm knows where it was during the last five moments, and goes left or right around a pillar. The
network learnt 16 steps of a cosine schedule; between them it is told fractions.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..files import tensors
from ..recipe import Network, Recipe, Repository, register
from .embedding import waves

RUN = (
    "logs/avoiding/sweeps/ddpm_encdec/2025-12-04/11-04-52-5000/agent_name=ddpm_encdec,"
    "agents.model.n_timesteps=16,agents=ddpm_encdec_agent,group=avoiding_ddpm_encdec_seeds,seed=2,"
    "simulation.n_cores=15,simulation.n_trajectories=480,window_size=8"
)
WEIGHTS = f"{RUN}/eval_best_ddpm.pth"
STEPS, MOVES, SEEN, WIDTH, HEADS = 16, 4, 5, 64, 4


class Cosine:
    """α = cos(π/2·(u + s)/(1 + s)) / cos(π/2·s/(1 + s)); u = i/16 is what is told as i − 1."""

    offset = 0.008
    top = 0.98  # α is 0.03 there: at the very end noise alone says nothing

    def angle(self, u: float) -> float:
        return (u + self.offset) / (1 + self.offset) * math.pi / 2

    def sigma(self, u: float) -> float:
        alpha = math.cos(self.angle(self.top * u)) / math.cos(self.angle(0))
        return math.sqrt(max(0.0, 1 - alpha**2))

    def time(self, sigma: float) -> float:
        alpha = math.sqrt(1 - sigma**2) * math.cos(self.angle(0))
        u = math.acos(alpha) * 2 / math.pi * (1 + self.offset) - self.offset
        return STEPS * u - 1


SCHEDULE = Cosine()


class Attention(nn.Module):
    """Moves look at those before them, and at all that is known, with the same output."""

    def __init__(self, across: bool):
        super().__init__()
        self.key, self.query, self.value, self.proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.register_buffer("mask", torch.zeros(1, 1, 9, 9))
        self.across = across
        if across:
            self.cross_key, self.cross_query, self.cross_value = (
                nn.Linear(WIDTH, WIDTH) for _ in range(3)
            )

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        def heads(y: Tensor) -> Tensor:
            return y.unflatten(2, (HEADS, -1)).transpose(1, 2)

        look = functional.scaled_dot_product_attention
        query, key, value = (heads(layer(x)) for layer in (self.query, self.key, self.value))
        made = look(query, key, value, is_causal=True)
        if self.across:
            query = heads(self.cross_query(x))
            key, value = heads(self.cross_key(known)), heads(self.cross_value(known))
            made = made + look(query, key, value)
        return self.proj(made.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, across: bool):
        super().__init__()
        self.ln1, self.ln2 = (nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.attn = Attention(across)
        wide = 4 * WIDTH
        self.mlp = nn.Sequential(nn.Linear(WIDTH, wide), nn.GELU(), nn.Linear(wide, WIDTH))

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x), known)
        return x + self.mlp(self.ln2(x))


class Stack(nn.Module):
    def __init__(self, count: int, across: bool):
        super().__init__()
        self.blocks = nn.ModuleList([Block(across) for _ in range(count)])
        self.ln = nn.LayerNorm(WIDTH, bias=False)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, known)
        return self.ln(x)


#: Where the arm is told to be, its move in each moment, and how far the real arm is behind, in m.
SITUATIONS = {
    "straight on": ((0.522, -0.204), (0.000, 0.008), (0.009, 0.018)),
    "to the left": ((0.465, -0.162), (-0.007, 0.012), (0.014, 0.016)),
    "to the right": ((0.582, -0.167), (0.006, 0.012), (0.011, 0.034)),
}
#: Mean and standard deviation of places (told, then real) and of moves, in m. Those of moves follow
#: from their range in the training log; those of places were fitted to runs that the authors kept.
PLACES = ((0.511, 0.070, 0.506, 0.070), (0.123, 0.229, 0.126, 0.228))
MOVE = ((-0.000316, 0.009477), (0.006625, 0.004397))


class Avoiding(Network):
    """The time and what was seen are encoded; noisy moves look at that, and say their noise."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Stack(2, across=False), Stack(4, across=True)
        self.tok_emb, self.action_emb = nn.Linear(4, WIDTH), nn.Linear(2, WIDTH)
        self.pos_emb = nn.Parameter(torch.zeros(1, SEEN + MOVES - 1, WIDTH))
        self.time_emb = nn.Sequential(
            nn.Identity(), nn.Linear(WIDTH, 2 * WIDTH), nn.Mish(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.action_pred = nn.Linear(WIDTH, 2)

    def seen(self, label: Tensor) -> Tensor:
        """The last five moments of a steady motion, (batch, 5, 4), centred and scaled."""
        known = torch.tensor([*SITUATIONS.values()], device=label.device)[label]
        place, move, behind = known[:, None].unbind(2)
        ago = torch.arange(SEEN - 1, -1, -1, device=label.device)[:, None]
        told = place - ago * move
        middle, spread = torch.tensor(PLACES, device=label.device)
        return (torch.cat([told, told - behind], 2) - middle) / spread

    def when(self, x: Tensor, time: float) -> Tensor:
        return self.time_emb(waves(torch.full((len(x),), time, device=x.device), WIDTH))

    def moves(self, x: Tensor) -> Tensor:
        return self.action_emb(x) + self.pos_emb[:, SEEN - 1 :]

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        """The time's token and those of the moves, which meet in the decoder's first block."""
        return torch.cat([self.when(x, SCHEDULE.time(sigma))[:, None], self.moves(x)], 1)

    def noise_of(self, x: Tensor, time: float, seen: Tensor) -> Tensor:
        states = self.tok_emb(seen) + self.pos_emb[:, :SEEN]
        known = torch.cat([self.when(x, time)[:, None], states], 1)
        known = self.encoder(known, known)
        return self.action_pred(self.decoder(self.moves(x), known))

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        return self.noise_of(x, SCHEDULE.time(sigma), self.seen(label))

    def decode(self, x: Tensor) -> Tensor:
        """Moves in m."""
        middle, spread = torch.tensor(MOVE, device=x.device)
        return x * spread + middle


def build(folder: Path) -> Network:
    network = Avoiding()
    found = tensors(folder / WEIGHTS)
    network.load_state_dict({key.removeprefix("model."): value for key, value in found.items()})
    return network


AVOIDING = register(
    Recipe(
        name="avoiding",
        about="four moves of a robot arm among pillars, transformer, 0.4 M",
        source=Repository(
            "leochenly/Guided_diffusion_planning", "1e10e12d7ed97c49c5d7bf96801e18966ce6184b"
        ),
        licence="MIT",
        files={WEIGHTS: "7270bd238ef3ae9bea0070abeacc6ecee0e89343816ce69b23818d5ee9e54f08"},
        build=build,
        shape=(MOVES, 2),
        prediction="epsilon",
        alphas="vp",
        schedule=SCHEDULE,
        classes=tuple(SITUATIONS),
        looks=dict(mean=(0.003, 0.008), std=(0.004, 0.009), told=(0.4, 0.95)),
    )
)
