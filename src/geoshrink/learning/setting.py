"""Setting: which runs are alike, so that what one teaches holds for the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..grid import Grid

EXACT = ("model", "name", "words", "solver", "dtype")  # what must be the same
NEAR = 0.02  # of τ
LARGER = 1.5  # times as many coordinates are still of the same size


@dataclass(frozen=True)
class Setting:
    """The model, the solver, the stages, the guidance and the size.

    model    the fingerprint of its weights; "" if nobody knows it
    name     that you gave it
    words    what the host says of the rest: guidance …
    solver   what the outputs go to
    dtype    of the outputs
    sizes    the coordinates of one picture, for every slot
    """

    grid: Grid
    sizes: tuple[int, ...]
    dtype: str = "float32"
    solver: str = ""
    model: str = ""
    name: str = ""
    words: str = ""

    def difference(self, other: Setting) -> str | None:
        """What is not alike, in words, or None."""
        for name in EXACT:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {mine!r}, not {theirs!r}"
        if len(self.sizes) != len(other.sizes) or not all(map(alike, self.sizes, other.sizes)):
            return f"outputs of {self.sizes} coordinates, not {other.sizes}"
        return stages_apart(self.grid, other.grid)


def alike(one: int, other: int) -> bool:
    return max(one, other) <= LARGER * min(one, other)


def stages_apart(mine: Grid, theirs: Grid) -> str | None:
    if (mine.steps, mine.regimes) != (theirs.steps, theirs.regimes):
        return f"{mine.steps} stages, not {theirs.steps}, or other regimes"
    kinds = [[track.prediction for track in grid.tracks] for grid in (mine, theirs)]
    if kinds[0] != kinds[1]:
        return f"{', '.join(kinds[0])} outputs, not {', '.join(kinds[1])}"
    for own, other in zip(mine.tracks, theirs.tracks):
        if own.noise is None or other.noise is None or far(own.noise, other.noise):
            return "other noise levels"
    return None


def far(some: Sequence[float], others: Sequence[float]) -> bool:
    return max(abs(a - b) for a, b in zip(some, others)) > NEAR
