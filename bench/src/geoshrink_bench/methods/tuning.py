"""What a method leaves open is tuned on cases that are not compared, for every method alike.

A threshold is the one with which an adaptive method makes, on average, as many runs as it may. A
warm-up is the one of WARM_UPS that comes nearest to the full runs. GeoShrink has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

from geoshrink.checks import whole
from geoshrink.outputs import flatten

from .base import SLACK, Case, Method, Outcome, rows

Kind = TypeVar("Kind", bound="Thresholded")
TUNED = "tuned"  # in the place of a warm-up
WARM_UPS = (1, 2, 3, 5, 8)  # stages


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


def with_warm_up(make: Callable[[int], Method], cases: Sequence[Case], budget: int) -> Method:
    """The method with the warm-up whose samples are nearest to the full runs of the cases.

    A warm-up that the budget leaves no room for is not tried; one that keeps to the budget comes
    before one that does not.
    """
    found: list[tuple[bool, float, Method]] = []
    refused: dict[int, ValueError] = {}
    for warm_up in WARM_UPS:
        try:
            method = make(warm_up)
            outcomes = [method.run(case, budget) for case in cases]
        except ValueError as error:
            refused[warm_up] = error
            continue
        runs = sum(outcome.evaluations for outcome in outcomes) / len(cases)
        off = sum(distance(o.x, case.full) for o, case in zip(outcomes, cases)) / len(cases)
        found.append((runs > SLACK * budget, off, method))
    if not found:
        warm_up, error = next(iter(refused.items()))
        raise ValueError(
            f"no warm-up of {', '.join(map(str, WARM_UPS))} stages fits a budget of {budget}: "
            f"with {warm_up}, {error}"
        )
    return min(found, key=lambda each: each[:2])[-1]


def distance(x: Any, full: Any) -> float:
    """log(‖x − full‖ / ‖full‖), the mean over samples and parts; infinite where x is no number."""
    pairs = zip(flatten(x)[0], flatten(full)[0])
    ratios = [rows(a - b).norm(dim=1) / rows(b).norm(dim=1) for a, b in pairs]
    logs = torch.stack([r.clamp_min(torch.finfo(r.dtype).tiny).log().mean() for r in ratios])
    return float(logs.mean().nan_to_num(torch.inf))


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
