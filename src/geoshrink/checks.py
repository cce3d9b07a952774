"""Small checks of what people pass in. Every error quotes the input."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .grid import Grid

MOST = 64  # times a grid is refined


def whole(value: object, what: str) -> int:
    """The value as a plain integer; True and 10.0 are refused."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be an integer, got {value!r}") from None


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "ndim") and value.ndim == 0)


def check_switch(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{what} is True or False, got {value!r}")


def check_coefficients(
    coefficients: Sequence[float | None], steps: int
) -> tuple[float | None, ...]:
    """One finite ω, or None, for each of so many stages."""
    if len(coefficients) != steps:
        raise ValueError(
            f"{len(coefficients)} coefficients for {steps} stages: give one per stage (None: the "
            "rule)"
        )
    for c in coefficients:
        if c is not None and not (is_number(c) and math.isfinite(c)):
            raise ValueError(f"coefficients must be finite, got {c!r}")
    return tuple(None if c is None else float(c) for c in coefficients)


def check_data_space(grid: Grid, anchors: Sequence[int]) -> None:
    for track in grid.tracks:
        for n in range(grid.steps):
            b = track.data_map(n)[1]
            if b == 0 and n not in anchors and track.moves(n):
                raise ValueError(
                    f"space='data' cannot predict stage {n}: it starts at σ = {track.sigmas[n]:g}, "
                    "where the data is"
                )


def check_refine(refine: Any, grid: Grid, space: str) -> None:
    if isinstance(refine, bool) or not isinstance(refine, int) or not 1 <= refine <= MOST:
        raise ValueError(f"refine is how many steps replace one, 1 to {MOST}, got {refine!r}")
    if refine > 1 and space == "output" and any(t.prediction == "v" for t in grid.tracks):
        raise ValueError("refine with v outputs needs the state: give space='data'")
