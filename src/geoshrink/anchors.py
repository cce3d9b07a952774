"""Where to query: the geometric mesh, its integer projection, the σ-geometric mesh, and their
certificates.

Stages are counted forward (the paper's stage t is our T − t), so that every mesh starts at stage 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .checks import whole

#: A grid that is uniform up to this part of its length counts as uniform, so that float32 rounding
#: moves no anchor.
UNIFORM = 1e-6


def closure_root(total: float, budget: int) -> float:
    """The r ≥ 1 with 1 + Σ_{k=0}^{B−3} r^k = total (eq. gs-whole-mesh with d = 1, S = total).

    The left side is convex and increasing, and r^{B−3} ≤ total − 1, so Newton's method started at
    (total − 1)^{1/(B−3)} falls monotonically onto the root.

    >>> round(closure_root(49, 10), 6)
    1.49272
    """
    if budget < 4:
        raise ValueError(f"a geometric mesh needs a budget of at least 4, got {budget}")
    if not (total >= budget - 1 and math.isfinite(total)):
        raise ValueError(f"{budget} anchors do not fit into {total:g} first gaps: no root r >= 1")
    power = budget - 3
    r = max(1.0, (total - 1) ** (1 / power))
    while True:
        value, slope = 1.0, 0.0
        for _ in range(power):
            value, slope = value * r + 1, slope * r + value
        smaller = max(1.0, r - (value - (total - 1)) / slope)
        if not smaller < r:
            return r
        r = smaller


def continuous_mesh(total: float, budget: int) -> list[float]:
    """s̃_0 = 0, s̃_1 = 1, s̃_q = 1 + Σ_{k=0}^{q−2} r^k, in units of the first gap (eq. gs-whole-
    anchors).
    """
    r, mesh, gap = closure_root(total, budget), [0.0, 1.0], 1.0
    for _ in range(budget - 2):
        mesh.append(mesh[-1] + gap)
        gap *= r
    return mesh


def project(mesh: Sequence[float], steps: int) -> tuple[int, ...]:
    """Guarded, order-preserving, half-even rounding onto the stages (eq. gs-canonical-rounding)."""
    budget = len(mesh)
    anchors = [0, 1, 2]
    for q in range(3, budget - 1):
        anchors.append(min(steps - budget + q, max(anchors[-1] + 1, round(mesh[q]))))
    return (*anchors, steps - 1)


def geometric_anchors(steps: int, budget: int) -> tuple[int, ...]:
    """The paper's mesh: gaps 1, 1, r, r², … in stage index, closed at the last stage.

    >>> geometric_anchors(50, 10)
    (0, 1, 2, 3, 6, 9, 14, 21, 32, 49)
    """
    steps, budget = check_budget(steps, budget, minimum=4)
    if budget >= steps:
        return tuple(range(steps))
    return project(continuous_mesh(steps - 1, budget), steps)


def sigma_anchors(tau: Sequence[float], budget: int) -> tuple[int, ...] | None:
    """The same mesh with gaps measured in the progress coordinate τ_0 … τ_T (τ = σ on a flow grid).

    The first two gaps equal the first grid gap and the mesh closes at τ_{T−1}. None if the closure
    root is below 1 (the grid's first gap is too wide for the budget) or τ turns back; use the index
    mesh then.
    """
    steps, budget = check_budget(len(tau) - 1, budget, minimum=4)
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


def uniform_anchors(steps: int, budget: int) -> tuple[int, ...]:
    """Equal gaps in stage index from stage 0 to stage T − 1 (the ablation's "Fixed" anchors)."""
    steps, budget = check_budget(steps, budget, minimum=1)
    if budget >= steps:
        return tuple(range(steps))
    if budget == 1:
        return (0,)
    return tuple(round(i * (steps - 1) / (budget - 1)) for i in range(budget))


def certificate(anchors: Sequence[int]) -> float:
    """Γ̂ = max (s_{j+1} − s_j)/(s_j − s_{j−1}) over 2 ≤ j < B − 1 (eq. gs-realized-certificate).

    It bounds |ρ| at every skipped stage of a mesh 0, 1, 2, …, T − 1 on a uniform grid.
    """
    if len(anchors) < 4 or tuple(anchors[:3]) != (0, 1, 2):
        raise ValueError(
            f"the certificate is for meshes 0, 1, 2, ... of at least 4 anchors, got {anchors}"
        )
    gaps = np.diff(anchors)
    return float((gaps[2:] / gaps[1:-1]).max())


def retention_floor(horizon: float) -> float:
    """ω ≥ 1/(1 + Γ²) wherever |ρ| ≤ Γ (eq. gs-retention-certificate)."""
    return 1 / (1 + horizon**2)


def share_budget(anchors: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """How many anchors each regime gets: as many as a mesh of the whole grid has there, at least 1.

    A regime that would get none takes one from the regime that has most.

    >>> share_budget((0, 1, 2, 3, 5, 8, 11, 15, 20, 24), [(0, 4), (4, 19), (19, 25)])
    [4, 4, 2]
    """
    if len(anchors) < len(spans):
        raise ValueError(
            f"budget {len(anchors)} is smaller than the number of regimes, {len(spans)}: each is "
            "queried"
        )
    shares = [sum(first <= a < last for a in anchors) for first, last in spans]
    while 0 in shares:
        shares[shares.index(max(shares))] -= 1
        shares[shares.index(0)] = 1
    return shares


def check_budget(steps: int, budget: int, minimum: int) -> tuple[int, int]:
    """(steps, budget) as plain integers; the error says what would work."""
    steps = whole(steps, "the number of stages")
    budget = whole(budget, "budget")
    if steps < 1:
        raise ValueError(f"a grid needs at least 1 stage, got {steps}")
    if budget < min(minimum, steps):
        enough = f"at least {minimum} of the {steps}" if minimum < steps else f"all {steps}"
        raise ValueError(
            f"budget {budget} is too small: this mesh needs {enough} stages; explicit anchors, "
            "anchors='uniform' and rule='hold' work from 2"
        )
    return steps, budget
