"""GeoShrink, in every form: meshes, rules, spaces, the ablation, planned and learned anchors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from geoshrink.learning import Learning
from geoshrink.plan import METHODS, Plan
from geoshrink.planning import profile
from geoshrink.sampling import sample

from ..metrics.base import Skipped
from .base import Case, Method, Outcome


class Ours(Method):
    """v¹ + ω·Δv at the skipped stages; the options are those of Plan.of.

    With anchors=(0, 3, 9, …) the stages are the budget, and the one that is asked for is ignored.
    """

    def __init__(self, name: str = "GeoShrink", **options: Any):
        self.name, self.options = name, options

    def run(self, case: Case, budget: int) -> Outcome:
        explicit = not isinstance(self.options.get("anchors", ""), str)
        return case.accelerated(None if explicit else budget, **self.options)


class Planned(Method):
    """With anchors planned beforehand from a profile of other cases, at most ten full runs."""

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


class Learned(Method):
    """With anchors placed by one exact sample of another case, as learn=True has them."""

    name = "GeoShrink (learned)"
    calibrated = True

    def __init__(self, learning: Learning):
        self.learning = learning

    @classmethod
    def fit(cls, cases: Sequence[Case], budget: int) -> Learned:
        learning = Learning()
        cases[0].one().accelerated(budget, learn=learning)
        if learning.learned is None:
            raise Skipped(f"an exact run taught nothing: {'; '.join(sorted(learning.told))}")
        return cls(learning)

    def run(self, case: Case, budget: int) -> Outcome:
        return case.accelerated(budget, learn=self.learning)


RULES = ("chordal", "log", "exp", "time", "linear", "fixed(1)", "beta-kappa(1, 0.5)")


def forms() -> Iterator[Ours]:
    yield Ours("GeoShrink (published)", **METHODS["paper"])
    yield Ours("GeoShrink (corrected)", **METHODS["default"])
    yield Ours("GeoShrink (default)", **METHODS["uncorrected"])  # the default before it
    yield Ours("auto, signed chordal", anchors="auto", rule="signed chordal")
    yield Ours("auto, signed time, data space", anchors="auto", rule="signed time", space="data")
    yield Ours("geometric, signed chordal", anchors="geometric", rule="signed chordal")
    for space in ("output", "data"):
        more = "" if space == "output" else ", data space"
        yield Ours(f"σ, hold{more}", anchors="sigma", rule="hold", space=space)
        for rule in RULES:
            for kind in (rule, f"signed {rule}"):
                yield Ours(f"σ, {kind}{more}", anchors="sigma", rule=kind, space=space)
    for name, options in METHODS.items():
        if name not in ("paper", "geoshrink", "default", "uncorrected"):
            yield Ours(f"ablation: {name}", **options)


OURS: dict[str, Ours] = {method.name: method for method in forms()}
#: The names of our forms: with options of its own, with planned and with learned anchors.
FORMS = frozenset({*OURS, "GeoShrink", Planned.name, Learned.name})
