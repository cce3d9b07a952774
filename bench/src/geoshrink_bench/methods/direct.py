"""Direct step reduction: the same solver on a grid of fewer steps in the same spacing; and the
full run once more.
"""

from __future__ import annotations

from geoshrink.sampling import sample

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


class Again(Method):
    """The full run a second time: what the machine's own noise is, on any budget."""

    name = "full run, again"

    def run(self, case: Case, budget: int) -> Outcome:
        grid = case.grid()
        return Outcome(sample(case.velocity(), case.noise, grid), tuple(range(grid.steps)))
