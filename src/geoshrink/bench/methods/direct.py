"""Direct step reduction: the same solver on a grid of fewer steps in the same spacing."""

from __future__ import annotations

from ...sampling import sample
from .base import Case, Method, Outcome


class Direct(Method):
    """Euler (DDIM for noise and data predictions) with `budget` steps; the shift is kept.

    Its evaluated stages are those of its own, short grid.
    """

    name = "direct"

    def run(self, case: Case, budget: int) -> Outcome:
        grid = case.grid(budget)
        x = sample(case.velocity(), case.noise, grid)
        return Outcome(x, tuple(range(grid.steps)))
