"""What a method leaves open is tuned on cases that are not compared, for every method alike.

A threshold is the one with which an adaptive method makes, on average, as many runs as it may. A
warm-up, and every other option that is given as "tuned", is the one of CHOICES that comes nearest
to the full runs. GeoShrink has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar, TypeVar

import torch

from geoshrink.checks import whole
from geoshrink.outputs import flatten

from .base import SLACK, Case, Method, rows

Kind = TypeVar("Kind", bound="Thresholded")
TUNED = "tuned"  # in the place of an option
WARM_UPS = (1, 2, 3, 5, 8)  # stages
#: What is tried for an option, the same for every method that has it.
CHOICES: dict[str, tuple[Any, ...]] = {
    "warm_up": WARM_UPS,
    "tail": (0, 1, 2),  # full stages at the end
    "fresh": (1, 2),  # full stages in a row
    "most": (2, 3, 4, 6, 8, 12),  # skipped stages in a row
    "rounds": (0, 2, 8),  # of learning
    "order": (1, 2, 3),
    "clock": ("sigma", "stage"),
    "corrector": (0.0, 0.5, 1.0),
    "rollback": (True, False),
    "balance": (0.5, 1.0, 2.0),
    "gain": (0.0, 0.25, 0.5, 0.75, 1.0),
}
ROUNDS = 20


def tuned(
    make: Callable[[float], Method],
    cases: Sequence[Case],
    budget: int,
    low: float,
    high: float,
) -> float:
    """The threshold in [low, high] that makes, on average over the cases, the runs nearest to the
    budget.

    More threshold means fewer runs: halve the range until a threshold meets the budget, or ROUNDS
    times; of two equally near, the one within the budget. The cases must not be those compared;
    they remember what was run on them, for the next budget.
    """

    def mean(threshold: float) -> float:
        method = make(threshold)
        name = f"{type(method).__name__}, {vars(method)}"
        for case in cases:
            if name not in case.costs:
                case.costs[name] = len(method.run(case, budget).evaluated)
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
    for _ in range(ROUNDS):
        if budget in seen.values():
            break
        middle = (a + b) / 2
        seen[middle] = mean(middle)
        a, b = (middle, b) if seen[middle] > budget else (a, middle)
    return min(seen, key=lambda t: (abs(seen[t] - budget), seen[t], t))


def with_best(
    make: Callable[[dict[str, Any]], Method],
    names: Sequence[str],
    cases: Sequence[Case],
    budget: int,
) -> Method:
    """The method with those of the CHOICES of these options whose samples are nearest to the full
    runs of the cases.

    A choice that the budget leaves no room for is not tried; one that keeps to the budget comes
    before one that does not.
    """
    found: list[tuple[bool, float, Method]] = []
    refused: list[tuple[dict[str, Any], ValueError]] = []
    for values in product(*(CHOICES[name] for name in names)):
        setting = dict(zip(names, values))
        try:
            method = make(setting)
            outcomes = [method.run(case, budget) for case in cases]
        except ValueError as error:
            refused.append((setting, error))
            continue
        runs = sum(outcome.evaluations for outcome in outcomes) / len(cases)
        off = sum(distance(o.x, case.full) for o, case in zip(outcomes, cases)) / len(cases)
        found.append((runs > SLACK * budget, off, method))
    if not found:
        setting, error = refused[0]
        tried = " with a ".join(said(name, CHOICES[name]) for name in names)
        first = ", ".join(f"{value}" for value in setting.values())
        raise ValueError(f"no {tried} fits a budget of {budget}: with {first}, {error}")
    return min(found, key=lambda each: each[:2])[-1]


def said(name: str, values: Sequence[Any]) -> str:
    """
    >>> said("warm_up", (1, 2)), said("order", (1, 2))
    ('warm-up of 1, 2 stages', 'order of 1, 2')
    """
    unit = " stages" if name in ("warm_up", "tail", "fresh") else ""
    return f"{name.replace('_', '-')} of {', '.join(map(str, values))}{unit}"


def check_tuned(method: str, options: Mapping[str, Any]) -> None:
    """Refuses "tuned" for an option that has no choices."""
    for name, value in options.items():
        if value == TUNED and name not in CHOICES:
            hint = "leave it out, and it is tuned" if name == "threshold" else "give a value"
            raise ValueError(f"{method}: there are no choices to tune {name!r} by; {hint}")


def distance(x: Any, full: Any) -> float:
    """log(‖x − full‖ / ‖full‖), the mean over samples and parts; infinite where x is no number."""
    pairs = zip(flatten(x)[0], flatten(full)[0])
    ratios = [rows(a - b).norm(dim=1) / rows(b).norm(dim=1) for a, b in pairs]
    logs = torch.stack([r.clamp_min(torch.finfo(r.dtype).tiny).log().mean() for r in ratios])
    return float(logs.mean().nan_to_num(torch.inf))


@dataclass(eq=False)
class Thresholded(Method):
    """A method with a threshold, somewhere within `reach`; None is the number of stages."""

    adaptive = True
    reach: ClassVar[tuple[float, float | None]] = 0.0, 1.0
    threshold: float

    @classmethod
    def tune(cls: type[Kind], cases: Sequence[Case], budget: int, **settings: Any) -> Kind:
        """With the threshold that keeps the budget on cases that are not compared."""
        low, high = cls.reach
        most = float(cases[0].grid().steps) if high is None else high
        make = partial(cls, **settings)
        found = tuned(lambda t: make(threshold=t), cases, budget, low, most)
        return make(threshold=found)
