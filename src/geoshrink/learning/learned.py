"""Learned: what exact runs in one setting say about every choice of anchors. Numbers only.

The mean Gram matrix of the noise and the outputs, each run's over its energy, and how far the data
prediction moved along possible errors (growth.py). Its size does not grow with the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from .files import read, write
from .growth import movement, spread_of
from .setting import Setting

MOST = 64  # pictures that an old one counts among: what is new is never less than a 64th
CHANGED = 2.0  # times as large a first output, or as small: it is another model


@dataclass(frozen=True, eq=False)
class Learned:
    """What exact runs in one setting say about every choice of anchors.

    setting   model, grid, guidance, size: where it holds
    grams     one (T + 1, T + 1) per slot: of x_0, v_0 … v_{T−1}, over the run's energy
    spread    of the leading slot, as growth.py has it; None: unknown
    first     mean square of the first output's coordinates, for every slot
    pictures  how many were exact
    runs      how many exact runs they were made by
    """

    setting: Setting
    grams: tuple[Tensor, ...]
    spread: float | None
    first: tuple[float, ...]
    pictures: int
    runs: int = 1

    def __post_init__(self) -> None:
        steps, sizes = self.setting.grid.steps, self.setting.sizes
        if not len(self.grams) == len(self.first) == len(sizes) > 0:
            raise ValueError(f"{len(self.grams)} matrices for {len(sizes)} outputs")
        if not all(isinstance(n, int) and n > 0 for n in (*sizes, self.pictures, self.runs)):
            raise ValueError(f"sizes {sizes}, {self.pictures} pictures, {self.runs} runs")
        if self.spread is not None and not 0 < self.spread < float("inf"):
            raise ValueError(f"a spread of {self.spread!r}")
        if any(tuple(g.shape) != (steps + 1, steps + 1) for g in self.grams):
            raise ValueError(f"the matrices are not of {steps} stages")
        finite = all(bool(g.isfinite().all()) for g in self.grams)
        if not finite or not all(0 <= f < float("inf") for f in self.first):
            raise ValueError("a number is not finite")

    @classmethod
    def of(cls, setting: Setting, rows: Sequence[Tensor], pictures: int) -> Learned:
        """From the Gram matrices of one exact run, of x_0, v_0 … v_{T−1}, the first data prediction
        and the last, one per slot. A ValueError says why nothing can be learned.
        """
        grid, grams, spreads, first = setting.grid, [], [], []
        for slot, gram in enumerate(rows):
            if not bool(gram.isfinite().all()):
                raise ValueError("an output of the exact run is not finite")
            energy, own = float(gram[-1, -1]), gram[:-2, :-2]
            if energy <= 0:
                raise ValueError("the exact run ended in zeros")
            moved = movement(gram)[:-2]
            grams.append(own / energy)
            spreads.append(spread_of(grid, slot, own, moved, pictures))
            first.append(float(own[1, 1]) / (setting.sizes[slot] * pictures))
        return cls(setting, tuple(grams), spreads[grid.lead], tuple(first), pictures)

    def and_then(self, newer: Learned) -> Learned:
        """With the pictures of another run in the same setting."""
        if newer.differs(self.first):
            return newer
        old, new = min(self.pictures, MOST), min(newer.pictures, MOST)
        share = new / (old + new)
        grams = tuple(a + share * (b - a) for a, b in zip(self.grams, newer.grams))
        first = tuple(a + share * (b - a) for a, b in zip(self.first, newer.first))
        spread = newer.spread if self.spread is None else self.spread
        if self.spread is not None and newer.spread is not None:
            spread = ((1 - share) * self.spread**2 + share * newer.spread**2) ** 0.5
        return replace(
            self,
            grams=grams,
            first=first,
            spread=spread,
            pictures=self.pictures + newer.pictures,
            runs=self.runs + newer.runs,
        )

    def differs(self, first: Sequence[float]) -> bool:
        """Whether a first output of this mean square says that it is another model."""
        near = (b / CHANGED <= a <= b * CHANGED for a, b in zip(self.first, first))
        return len(first) != len(self.first) or not all(near)

    def save(self, file: str | Path) -> Path:
        """Writes it to a file as JSON, which Learned.load reads and learn=… takes."""
        return write(self, file)

    @classmethod
    def load(cls, file: str | Path) -> Learned:
        """What save() wrote to a file; a ValueError if it is something else, or damaged."""
        return read(cls, file)

    def __str__(self) -> str:
        many = "1 exact picture" if self.pictures == 1 else f"{self.pictures} exact pictures"
        grid = self.setting.grid
        words = f", {self.setting.words}" if self.setting.words else ""
        return f"learned from {many}: {grid.steps} stages{words}"


def mean_squares(leaves: Sequence[Tensor]) -> tuple[float, ...]:
    """Of every tensor. Waits for the device."""
    squares = [leaf.detach().float().square().mean() for leaf in leaves]
    return tuple(torch.stack([s.cpu() for s in squares]).tolist())
