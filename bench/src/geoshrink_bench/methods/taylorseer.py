"""TaylorSeer (Liu et al., 2025): features forecast by a Taylor series in the number of stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import factorial

from torch import Tensor

from .base import Case, Outcome, Scheduled, Session
from .caching import BranchSession
from .output import OutputSession, Parts
from .switching import fitting, switching

Weight = Callable[[int, int], float]


@dataclass(eq=False)
class TaylorSeer(Scheduled):
    """Every branch's output k stages after the last full one is Σ_j D_j·k^j/j!, gated anew.

    Order 1 and three stages of warm-up as in the authors' code for FLUX (N = 6 there).
    """

    name = "TaylorSeer"
    order: int = 1

    def weight(self, j: int, k: int) -> float:
        return k**j / factorial(j)

    def series(self) -> Series:
        return Series(self.order, self.warm_up - 1, self.weight)

    def session(self, case: Case, stages: list[int]) -> Session:
        return Forecast(case, stages, self.series)

    def run(self, case: Case, budget: int) -> Outcome:
        return self.session(case, self.stages(case, budget)).run()


@dataclass(eq=False)
class TaylorSeerLite(TaylorSeer):
    """The same series on the network's output alone, both branches of guidance in it.

    The authors speak of the last block's output; their code (HunyuanImage-2.1 in Cache4Diffusion)
    forecasts what comes out of the final layer, and so do we. Order 2 is theirs (N = 5 there).
    """

    name = "TaylorSeer-Lite"
    order: int = 2

    def stages(self, case: Case, budget: int) -> list[int]:
        """Those where guidance switches run, too, and count."""
        room = [] if self.interval else fitting(budget, switching(case), self.warm_up)
        return room or super().stages(case, budget)

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

    def __init__(self, case: Case, stages: Iterable[int], series: Callable[[], Series]):
        super().__init__(case, stages)
        self.series = defaultdict[int, Series](series)

    def observe(self, branch: int, output: Tensor) -> None:
        self.series[branch].add(self.stage, output)
        if branch == len(self.modules) - 1:
            self.keeps(*(s.terms for s in self.series.values()))

    def predict(self, branch: int, args: tuple) -> Tensor:
        return self.series[branch].at(self.stage)


class OutputForecast(OutputSession):
    """One series for every part of the network's output; at a skipped stage nothing runs."""

    guided = False

    def __init__(self, case: Case, stages: Iterable[int], series: Callable[[], Series]):
        super().__init__(case, stages)
        self.make, self.regimes = series, frozenset()  # the authors force no stage

    def forget(self) -> None:
        self.series = defaultdict[int, Series](self.make)

    def observe(self, x: Parts, output: Parts) -> None:
        for i, part in enumerate(output):
            self.series[i].add(self.stage, part)
        self.keeps(*(s.terms for s in self.series.values()))

    def predict(self, x: Parts) -> Parts:
        return [s.at(self.stage) for s in self.series.values()]
