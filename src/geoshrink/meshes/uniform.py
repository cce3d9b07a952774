"""uniform: equal gaps in stage index."""

from __future__ import annotations

from collections.abc import Sequence

from .placement import by_regime, check_budget
from .registry import Mesh, Placed


def uniform_anchors(steps: int, budget: int) -> tuple[int, ...]:
    """Equal gaps in stage index from stage 0 to stage T − 1 (the ablation's "Fixed" anchors).

    steps    T, the number of stages
    budget   how many anchors; T or more: every stage
    """
    steps, budget = check_budget(steps, budget, minimum=1)
    if budget >= steps:
        return tuple(range(steps))
    if budget == 1:
        return (0,)
    return tuple(round(i * (steps - 1) / (budget - 1)) for i in range(budget))


def place(tau: Sequence[float], budget: int) -> Placed:
    return uniform_anchors(len(tau) - 1, budget), "uniform"


MESH = Mesh("uniform", by_regime(place), least=2)
