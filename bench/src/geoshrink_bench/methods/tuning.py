"""The threshold with which an adaptive method makes, on average, as many runs as it may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from geoshrink.checks import whole

from .base import Case, Method, Outcome

Kind = TypeVar("Kind", bound="Thresholded")


def full_runs(outcome: Outcome) -> float:
    return len(outcome.evaluated)


def tuned(
    make: Callable[[float], Method],
    cases: Sequence[Case],
    budget: int,
    low: float,
    high: float,
    cost: Callable[[Outcome], float] = full_runs,
    rounds: int = 20,
) -> float:
    """The threshold in [low, high] whose mean cost over the cases is nearest to the budget.

    More threshold means fewer runs: halve the range until a threshold meets the budget, or `rounds`
    times; of two equally near, the one within the budget. The cases must not be those compared;
    they remember what was run on them, for the next budget.
    """

    def mean(threshold: float) -> float:
        method = make(threshold)
        name = f"{type(method).__name__}, {vars(method)}, {cost.__qualname__}"
        for case in cases:
            if name not in case.costs:
                case.costs[name] = cost(method.run(case, budget))
        return sum(case.costs[name] for case in cases) / len(cases)

    whole(budget, "budget")
    if not cases:
        raise ValueError("no cases to tune the threshold on")
    seen = {low: mean(low), high: mean(high)}
    if not seen[high] <= budget <= seen[low]:
        raise ValueError(
            f"no threshold from {low:g} to {high:g} meets a budget of {budget}: "
            f"they make {seen[high]:g} to {seen[low]:g} runs on average"
        )
    a, b = low, high
    for _ in range(rounds):
        if budget in seen.values():
            break
        middle = (a + b) / 2
        seen[middle] = mean(middle)
        a, b = (middle, b) if seen[middle] > budget else (a, middle)
    return min(seen, key=lambda t: (abs(seen[t] - budget), seen[t], t))


class Thresholded(Method):
    """A method whose first argument is a threshold, somewhere within `reach`."""

    adaptive = True
    reach = 0.0, 1.0

    def __init__(self, threshold: float):
        self.threshold = threshold

    @classmethod
    def tune(
        cls: type[Kind],
        cases: Sequence[Case],
        budget: int,
        cost: Callable[[Outcome], float] = full_runs,
        **settings: Any,
    ) -> Kind:
        """With the threshold that keeps the budget on cases that are not compared."""
        make = partial(cls, **settings)
        return make(tuned(make, cases, budget, *cls.reach, cost))
