"""SeaCache (Chung et al., CVPR 2026): TeaCache's rule on an input from which noise is filtered.

    m = the input of the first block's attention, on the tokens' grid
    s = ifft(G·fft(m)),  G = Π over axes of a·S/(a²·S + b²), S = |f|^(−p), divided by its mean
    A ← A + mean|s_n − s_{n−1}| / mean|s_{n−1}|;  skip while A < threshold, else full and A ← 0

with signal a and noise b of the stage (1 − σ and σ in flows): a Wiener filter for pictures whose
power falls as |f|^(−p). Written from the authors' code (their filter, and HunyuanVideo) and from
diffusers 0.42's hook, which filters the latents and draws a line through two residuals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoshrink.outputs import flatten

from ..zoo.network import DiT, JointDiT
from .base import Case, Outcome
from .budcache import Extrapolated, checked_order
from .residual import relative_change
from .stack import Streams, intercepted
from .teacache import modulated
from .tuning import Thresholded

SMALL, EDGE = 1e-16, 1e-6
FILTERED = ("modulated", "latents")
#: diffusers' transformers: the timestep that they are given for σ = 1.
NOISE = {
    "FluxTransformer2DModel": 1.0,
    "SD3Transformer2DModel": 1000.0,
    "HunyuanVideoTransformer3DModel": 1000.0,
}


@dataclass(eq=False)
class SeaCache(Thresholded):
    """The authors' rule, and with other options that of diffusers.

    threshold   0.3 and 0.6 are theirs for FLUX (0.25 in diffusers)
    order       0: what the blocks added at the last full stage, as the authors; 1: the line through
                the last two in stages, as diffusers
    filtered    "modulated", as the authors, or "latents", as diffusers
    power       p; None: 2 for pictures and 3 where there are three axes, as the authors; diffusers
                takes 3
    warm_up     first stages that are full; the last is, too
    longest     skipped stages in a row at most; None: no limit, as the authors; 2 in diffusers

    Each part of a structured x has a filter of its own, and the distance is the mean over them.
    """

    name = "SeaCache"
    reach = 0.0, None
    threshold: float = 0.3
    order: int = 0
    filtered: str = "modulated"
    power: float | None = None
    warm_up: int = 1
    longest: int | None = None

    def run(self, case: Case, budget: int) -> Outcome:
        checked_order(self.order, 1, self.name)
        if self.filtered not in FILTERED:
            raise ValueError(f"SeaCache filters {' or '.join(FILTERED)}, not {self.filtered!r}")
        return Filtered(case, self).run()


class Filtered(Extrapolated):
    def __init__(self, case: Case, method: SeaCache):
        super().__init__(case, (), method.order)
        self.method, self.tracks = method, case.grid().tracks
        self.given: dict[str, Any] = {}  # what the network is called with at this stage
        self.seen: list[Tensor] = []  # s of the latest stage, part by part
        self.total, self.row = 0.0, 0

    def run(self) -> Outcome:
        with intercepted([self.case.network], self.enter):
            return super().run()

    def enter(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        self.given = kwargs | ({"hidden_states": args[0]} if args else {})
        return forward(*args, **kwargs)

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        before, self.seen = self.seen, self.indicator(args, kwargs)
        if not self.forced():
            changes = [relative_change(*pair) for pair in zip(self.seen, before)]
            self.total += sum(changes) / len(changes) if changes else math.nan
            self.row += 1
            if self.total < self.method.threshold:
                return False
        self.total, self.row = 0.0, 0
        return True

    def forced(self) -> bool:
        longest = self.method.longest
        ends = self.stage < self.method.warm_up or self.stage == self.steps - 1
        return ends or self.stage in self.regimes or (longest is not None and self.row >= longest)

    def observe(self, residual: Streams) -> None:
        super().observe(residual)
        self.keeps(self.seen, *(series.terms for series in self.series))

    def indicator(self, args: tuple, kwargs: dict) -> list[Tensor]:
        """s of every part, on its grid with the features last."""
        extents = token_grids(self.case.network, self.given)
        if self.method.filtered == "latents":
            parts = flatten(self.given["hidden_states"])[0]
        else:
            tokens = modulated(self.stack.blocks[0], args, kwargs)
            parts = tokens.split([math.prod(extent) for extent in extents], 1)
        packed = self.method.filtered != "latents" or "img_ids" in self.given
        spread = [
            part.reshape(len(part), *extent, -1) if packed else part.movedim(1, -1)
            for part, extent in zip(parts, extents, strict=True)
        ]
        power = self.method.power
        return [wiener(part, *self.levels(i), power) for i, part in enumerate(spread)]

    def levels(self, part: int) -> tuple[float, float]:
        """Signal and noise at this stage: the grid's, or what the network is told."""
        track = self.tracks[part if len(self.tracks) > 1 else 0]
        if track.levels is not None:
            return track.levels[self.stage]
        top = NOISE[type(self.case.network).__name__]
        sigma = float(self.given["timestep"].flatten()[0]) / top
        return 1 - sigma, sigma


def wiener(x: Tensor, signal: float, noise: float, power: float | None = None) -> Tensor:
    """x (batch, *extent, features), filtered along every axis of its extent."""
    axes = range(1, x.ndim - 1)
    power = power or (3.0 if len(axes) > 2 else 2.0)
    a, b = max(signal, EDGE), max(noise, EDGE)
    gain = torch.ones((), device=x.device)
    for axis in axes:
        frequency = torch.fft.fftfreq(x.shape[axis], device=x.device).abs()
        content = 1 / (frequency**power + SMALL)
        each = a * content / (a**2 * content + b**2 + SMALL)
        gain = gain * each.view([-1 if other == axis else 1 for other in range(x.ndim)])
    spectrum = torch.fft.fftn(x.float(), dim=tuple(axes))
    return torch.fft.ifftn(spectrum * (gain / gain.mean()), dim=tuple(axes)).real.to(x.dtype)


def token_grids(network: Any, given: dict[str, Any]) -> list[tuple[int, ...]]:
    """How the tokens of each part of x lie in space: of the zoo's networks, or of diffusers'."""
    if isinstance(network, DiT):
        return [network.patcher.counts]
    if isinstance(network, JointDiT):
        patchers: Any = network.patchers
        return [patcher.counts for patcher in patchers]
    x, kind = given["hidden_states"], type(network).__name__
    if kind == "FluxTransformer2DModel":
        rows, columns = given["img_ids"].reshape(-1, 3)[:, 1:].amax(0).tolist()
        return [(int(rows) + 1, int(columns) + 1)]
    patch = network.config.patch_size
    sides = tuple(side // patch for side in x.shape[-2:])
    if kind == "SD3Transformer2DModel":
        return [sides]
    if kind == "HunyuanVideoTransformer3DModel":
        return [(x.shape[2] // network.config.patch_size_t, *sides)]
    raise TypeError(f"SeaCache does not know how the tokens of a {kind} lie")
