"""TaylorSeer (Liu et al., 2025): features forecast by a Taylor series in the number of stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import factorial
from typing import Any

from torch import Tensor

from geoshrink.outputs import flatten

from .base import Case, Method, Outcome, Session, bytes_of, every, interval_for
from .caching import BranchSession
from .stack import intercepted

Weight = Callable[[int, int], float]


class TaylorSeer(Method):
    """Every branch's output k stages after the last full one is Σ_j D_j·k^j/j!, gated anew.

    Full at the first `warm_up` stages and every N-th after them; the last is not forced. Order 1
    and three stages of warm-up as in the authors' code for FLUX (N = 6 there).
    """

    name = "TaylorSeer"

    def __init__(self, interval: int | None = None, order: int = 1, warm_up: int = 3):
        self.interval, self.order, self.warm_up = interval, order, warm_up

    def weight(self, j: int, k: int) -> float:
        return k**j / factorial(j)

    def series(self) -> Series:
        return Series(self.order, self.warm_up - 1, self.weight)

    def session(self, case: Case, stages: list[int]) -> Session:
        return Forecast(case, stages, self.series)

    def run(self, case: Case, budget: int) -> Outcome:
        steps = case.grid().steps
        interval = self.interval or interval_for(budget, steps, self.warm_up)
        return self.session(case, every(interval, steps, self.warm_up)).run()


class TaylorSeerLite(TaylorSeer):
    """The same series on the network's output alone, both branches of guidance in it.

    The authors speak of the last block's output; their code (HunyuanImage-2.1 in Cache4Diffusion)
    forecasts what comes out of the final layer, and so do we. Order 2 is theirs (N = 5 there).
    """

    name = "TaylorSeer-Lite"

    def __init__(self, interval: int | None = None, order: int = 2, warm_up: int = 3):
        super().__init__(interval, order, warm_up)

    def session(self, case: Case, stages: list[int]) -> Session:
        return OutputForecast(case, stages, self.series)


class Series:
    """D_0 = F, D_{j+1} = (D_j − D_j of the full stage before) / gap, from stage `first` on.

    The authors divide by the last gap alone: on unequal gaps (0, 1, 2, 8 …) D_2 and higher are no
    divided differences. Features of another batch begin a new series.
    """

    def __init__(self, order: int, first: int, weight: Weight):
        self.order, self.first, self.weight = order, first, weight
        self.stage, self.terms = -1, list[Tensor]()

    def add(self, stage: int, feature: Tensor) -> None:
        fits = stage >= self.first and self.terms and self.terms[0].shape == feature.shape
        terms = [feature]
        for before in self.terms[: self.order] if fits else ():
            terms.append((terms[-1] - before) / (stage - self.stage))
        self.stage, self.terms = stage, terms

    def at(self, stage: int) -> Tensor:
        value, *rest = self.terms
        for j, term in enumerate(rest, 1):
            value = value + self.weight(j, stage - self.stage) * term
        return value


class Forecast(BranchSession):
    """One series for every branch."""

    def __init__(self, case: Case, stages: list[int], series: Callable[[], Series]):
        super().__init__(case)
        self.stages = frozenset(stages)
        self.series = defaultdict[int, Series](series)

    def decide(self) -> bool:
        return self.stage in self.stages

    def observe(self, branch: int, output: Tensor) -> None:
        self.series[branch].add(self.stage, output)
        if branch == len(self.modules) - 1:
            self.held = max(self.held, bytes_of(*(s.terms for s in self.series.values())))

    def predict(self, branch: int, args: tuple) -> Tensor:
        return self.series[branch].at(self.stage)


class OutputForecast(Session):
    """One series for every part of the network's output; at a skipped stage nothing runs."""

    def __init__(self, case: Case, stages: list[int], series: Callable[[], Series]):
        super().__init__(case)
        self.stages, self.make = frozenset(stages), series
        self.series, self.shapes = list[Series](), list[Any]()

    def call(self, _: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        shapes = [x.shape for x in flatten(args[0])[0]]
        if self.stage not in self.stages and shapes == self.shapes:
            return self.unflatten([s.at(self.stage) for s in self.series])
        output = forward(*args, **kwargs)
        parts, self.unflatten = flatten(output)
        self.series = self.series or [self.make() for _ in parts]
        for series, part in zip(self.series, parts):
            series.add(self.stage, part)
        self.shapes = shapes
        self.evaluated.append(self.stage)
        self.held = max(self.held, bytes_of(*(s.terms for s in self.series)))
        return output

    def run(self) -> Outcome:
        with intercepted([self.case.network], self.call):
            return super().run()
