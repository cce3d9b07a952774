"""Whether a profile fits a run: the same model and grid, guidance within what was profiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..grid import Grid

if TYPE_CHECKING:
    from .profiles import Profile


def misfit(
    profile: Profile, grid: Grid | None, guidance: float | None, model: str | None
) -> str | None:
    """Why a run is not what was profiled; None where it is, as far as both are known."""
    if model and profile.model and model != profile.model:
        return f"it is of the model {profile.model!r}, not {model!r}"
    if grid is not None and not alike(grid, profile.grid):
        return f"its σ-grid is another one ({profile.grid.given} stages, this run {grid.given})"
    if guidance is not None and profile.guidance is not None:
        low, high = pair(profile.guidance)
        if not low - 1e-6 <= guidance <= high + 1e-6:
            seen = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            return f"it was made at guidance {seen}, this run has {guidance:g}"
    return None


def alike(a: Grid, b: Grid) -> bool:
    """The same stages, up to rounding, and the same regimes."""
    if a.steps != b.steps or len(a.tracks) != len(b.tracks) or a.regimes != b.regimes:
        return False
    pairs = [(s.prediction == t.prediction, s.sigmas, t.sigmas) for s, t in zip(a.tracks, b.tracks)]
    return all(same and np.allclose(s, t, rtol=1e-4, atol=1e-5) for same, s, t in pairs)


def pair(guidance: float | Sequence[float]) -> tuple[float, float]:
    if isinstance(guidance, (int, float)):
        return float(guidance), float(guidance)
    low, high = guidance
    return float(low), float(high)


def check_guidance(guidance: Any) -> float | tuple[float, float] | None:
    if guidance is None:
        return None
    try:
        low, high = pair(guidance)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and low <= high < math.inf):
        raise ValueError(f"guidance is a number or a range (low, high), got {guidance!r}")
    return low if low == high else (low, high)
