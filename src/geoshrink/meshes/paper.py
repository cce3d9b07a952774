"""geometric: the paper's mesh. Gaps grow by one factor in stage index; its certificate.

Stages are counted forward (the paper's stage t is our T − t), so that every mesh starts at stage 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .placement import by_regime, check_budget
from .registry import Mesh, Placed
from .uniform import uniform_anchors

LEAST = 4  # anchors of a geometric mesh


def closure_root(total: float, budget: int) -> float:
    """The r ≥ 1 with 1 + Σ_{k=0}^{B−3} r^k = total (eq. gs-whole-mesh with d = 1, S = total).

    The left side is convex and increasing, and r^{B−3} ≤ total − 1, so Newton's method started at
    (total − 1)^{1/(B−3)} falls monotonically onto the root.

    >>> round(closure_root(49, 10), 6)
    1.49272
    """
    if budget < LEAST:
        raise ValueError(f"a geometric mesh needs a budget of at least {LEAST}, got {budget}")
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

    steps    T, the number of stages
    budget   how many anchors, 4 at least; T or more: every stage

    >>> geometric_anchors(50, 10)
    (0, 1, 2, 3, 6, 9, 14, 21, 32, 49)
    """
    steps, budget = check_budget(steps, budget, minimum=LEAST)
    if budget >= steps:
        return tuple(range(steps))
    return project(continuous_mesh(steps - 1, budget), steps)


def certificate(anchors: Sequence[int]) -> float:
    """Γ̂ = max (s_{j+1} − s_j)/(s_j − s_{j−1}) over 2 ≤ j < B − 1 (eq. gs-realized-certificate).

    It bounds |ρ| at every skipped stage of a mesh 0, 1, 2, …, T − 1 on a uniform grid.

    anchors   s_0, s_1 …: stage numbers that begin with 0, 1, 2; 4 at least
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


def place(tau: Sequence[float], budget: int) -> Placed:
    """The anchors of one regime; fewer than 4 form no geometric mesh and are spread evenly."""
    steps = len(tau) - 1
    if budget < LEAST:
        return uniform_anchors(steps, budget), "uniform"
    return geometric_anchors(steps, budget), "geometric"


MESH = Mesh("geometric", by_regime(place), least=LEAST)
