"""Direct step reduction: the same solver on a grid of fewer steps in the same spacing; and the
full run once more.
"""

from __future__ import annotations

from .base import Case, Method, Outcome


class Direct(Method):
    """The solver with `budget` steps; the shift is kept.

    Its evaluated stages are those of its own, short grid.
    """

    name = "direct"

    def run(self, case: Case, budget: int) -> Outcome:
        return case.plain(budget)


class Again(Method):
    """The full run a second time: what the machine's own noise is, on any budget."""

    name = "full run, again"

    def run(self, case: Case, budget: int) -> Outcome:
        return case.plain()
