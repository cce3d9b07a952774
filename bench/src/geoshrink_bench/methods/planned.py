"""GeoShrink with anchors planned from a profile of the model (geoshrink.planning)."""

from __future__ import annotations

from collections.abc import Sequence

from geoshrink.plan import Plan
from geoshrink.planning import profile
from geoshrink.sampling import sample

from .base import Case, Method, Outcome


class Planned(Method):
    """A plan made beforehand from other cases, at most ten full runs of them."""

    name = "GeoShrink (planned)"
    calibrated = True

    def __init__(self, plan: Plan):
        self.plan = plan

    @classmethod
    def fit(cls, cases: Sequence[Case], budget: int) -> Planned:
        velocities, noises = [case.velocity() for case in cases], [case.noise for case in cases]
        grid = cases[0].grid()
        return cls(profile(velocities, noises, grid, budgets=[budget], quiet=True).plan(budget))

    def run(self, case: Case, budget: int) -> Outcome:
        x, report = sample(case.velocity(), case.noise, plan=self.plan, with_report=True)
        return Outcome.reported(x, report)
