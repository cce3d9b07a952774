"""ResilPhase (2026): the stack's residual by Lagrange interpolation in a bounded phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod, tanh

from .base import Case, Outcome, Scheduled
from .weighted import Weighted


@dataclass(eq=False)
class ResilPhase(Scheduled):
    """The residual of the whole stack through the last `order` + 1 full stages.

    Defaults as in the authors' code for FLUX (N = 6 there), with its "balanced" phase.
    """

    name = "ResilPhase"
    order: int = 1
    alpha: float = 0.55

    def run(self, case: Case, budget: int) -> Outcome:
        weights = partial(phase_weights, alpha=self.alpha)
        return Weighted(case, self.stages(case, budget), weights, keep=self.order + 1).run()


def phase_weights(anchors: Sequence[int], n: int, alpha: float = 0.55) -> list[float]:
    """Barycentric Lagrange weights at s(n) for nodes s(i) = tanh(α·(i − mean)/max|i − mean|).

    >>> [round(w, 3) for w in phase_weights([0, 6], 7)]
    [-0.124, 1.124]
    """
    if len(anchors) == 1:
        return [1.0]
    mean = sum(anchors) / len(anchors)
    reach = max(abs(i - mean) for i in anchors)
    *nodes, s = (tanh(alpha * (i - mean) / reach) for i in [*anchors, n])
    terms = [1 / ((s - a) * prod(a - b for b in nodes if b != a)) for a in nodes]
    return [term / sum(terms) for term in terms]
