"""sigma: the geometric mesh in the progress coordinate τ in place of the stage index."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import paper
from .paper import LEAST, continuous_mesh, geometric_anchors, project
from .placement import by_regime, check_budget
from .registry import Mesh, Placed

#: A grid that is uniform up to this part of its length counts as uniform, so that float32 rounding
#: moves no anchor.
UNIFORM = 1e-6


def sigma_anchors(tau: Sequence[float], budget: int) -> tuple[int, ...] | None:
    """The paper's mesh with gaps measured in the progress coordinate τ (τ = σ on a flow grid).

    tau      τ_0 … τ_T
    budget   how many anchors, 4 at least; T or more: every stage

    The first two gaps equal the first grid gap and the mesh closes at τ_{T−1}. None if the closure
    root is below 1 (the grid's first gap is too wide for the budget) or τ turns back; use the index
    mesh then.
    """
    steps, budget = check_budget(len(tau) - 1, budget, minimum=LEAST)
    if budget >= steps:
        return tuple(range(steps))
    progress = np.abs(np.asarray(tau[:-1], dtype=np.float64) - tau[0])
    if (np.diff(progress) < 0).any():
        return None
    first, total = float(progress[1]), float(progress[-1])
    if np.abs(progress - np.linspace(0, total, steps)).max() <= UNIFORM * total:
        return geometric_anchors(steps, budget)
    if not (first > 0 and total >= first * (budget - 1) and math.isfinite(total / first)):
        return None
    mesh = np.array(continuous_mesh(max(total / first, budget - 1), budget)) * first
    return project(np.interp(mesh, progress, np.arange(steps)).tolist(), steps)


def place(tau: Sequence[float], budget: int) -> Placed:
    """The anchors of one regime; the geometric mesh where there is no σ-mesh."""
    found = sigma_anchors(tau, budget) if budget >= LEAST else None
    if found is not None:
        return found, "sigma"
    found, words = paper.place(tau, budget)
    if budget >= LEAST:
        words += " (no σ-mesh: closure root below 1 or τ not monotone)"
    return found, words


MESH = Mesh("sigma", by_regime(place), least=LEAST)
