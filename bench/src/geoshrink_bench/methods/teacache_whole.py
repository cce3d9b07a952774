"""TeaCache on a network of any kind: its rule, with the whole network as what is skipped.

    m_i = what the network's first layer makes of x and the time  (foreign.Network.entry)

The rest is as in teacache.py: the sum of p(d_i), the first and the last stage full. Its authors
reuse what a list of transformer blocks adds to the tokens. That is done here where the network is
such a list (foreign.Network.stack); elsewhere its output is reused, or what it differs by from x.
p is evaluated within the d_i that it was fitted to: of degree 4, it is anything beyond. The work
of the first layer at skipped stages is not counted, as its authors do not count it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from .base import SLACK, Case, Outcome, Session
from .residual import relative_change
from .tuning import Thresholded, distance

REUSES = ("stack", "input", "output")
DEGREE = 4


@dataclass(frozen=True)
class Rescaling:
    """p: from a change of m to one of the output. Without coefficients p(d) = d."""

    coefficients: tuple[float, ...] = (1.0, 0.0)  # highest power first
    least: float = -math.inf
    most: float = math.inf

    def __call__(self, change: float) -> float:
        if math.isnan(change):
            return change
        return float(np.polyval(self.coefficients, min(max(change, self.least), self.most)))

    @classmethod
    def fitted(cls, cases: Sequence[Case]) -> Rescaling:
        """By least squares, to all stages of full runs of the cases."""
        x, y = np.array([pair for case in cases for pair in changes(case)]).T
        found = np.polyfit(x, y, DEGREE)
        return cls(tuple(float(c) for c in found), float(x.min()), float(x.max()))


PLAIN = Rescaling()


@dataclass(eq=False)
class TeaCacheWhole(Thresholded):
    """reuse   "stack": what the blocks add; "input": output − x; "output": the output"""

    name = "TeaCache (whole network)"
    calibrated = True
    reach = 0.0, None
    threshold: float = 0.6
    reuse: str = "output"
    rescaling: Rescaling = PLAIN

    def __post_init__(self) -> None:
        if self.reuse not in REUSES:
            raise ValueError(f"reuse is one of {', '.join(REUSES)}; got {self.reuse!r}")

    def run(self, case: Case, budget: int) -> Outcome:
        return Whole(case, self.threshold, self.reuse, self.rescaling).run()

    @classmethod
    def fit(cls, cases: Sequence[Case], budget: int) -> TeaCacheWhole:
        """Of every kind of reuse, and of p fitted and p(d) = d, the pair whose samples are nearest
        to the full runs of these cases; one that keeps to the budget comes before one that does
        not. Each has the threshold that makes the runs nearest to the budget.
        """
        reuses = REUSES if network_of(cases[0]).stack else REUSES[1:]
        found: list[tuple[bool, float, TeaCacheWhole]] = []
        refused: list[ValueError] = []
        for reuse, rescaling in product(reuses, (Rescaling.fitted(cases), PLAIN)):
            try:
                method = cls.tune(cases, budget, reuse=reuse, rescaling=rescaling)
            except ValueError as error:
                refused.append(error)
                continue
            outcomes = [method.run(case, budget) for case in cases]
            runs = sum(outcome.evaluations for outcome in outcomes) / len(cases)
            off = sum(distance(o.x, case.full) for o, case in zip(outcomes, cases))
            found.append((runs > SLACK * budget, off, method))
        if not found:
            raise refused[0]
        return min(found, key=lambda each: each[:2])[-1]


class Whole(Session):
    """The network comes first among the modules, then its blocks where these are skipped."""

    inside = True

    def __init__(self, case: Case, threshold: float, reuse: str, rescaling: Rescaling = PLAIN):
        super().__init__(case)
        self.network = network_of(case)
        blocks = tuple(self.network.stack) if reuse == "stack" else ()
        if reuse == "stack" and not blocks:
            raise ValueError(f"a {type(self.network).__name__} has no stack of blocks to skip")
        self.modules = (self.network, *blocks)
        self.threshold, self.reuse, self.rescaling = threshold, reuse, rescaling
        self.full, self.sum, self.change = True, 0.0, math.nan
        self.probe: Tensor | None = None
        self.begin: Tensor | None = None  # what goes into the first block
        self.kept: Tensor | None = None

    def decide(self, seen: Tensor) -> bool:
        before, self.probe = self.probe, seen
        self.change = relative_change(seen, before)
        self.sum += self.rescaling(self.change)
        if self.sum < self.threshold and self.stage < self.steps - 1:
            return False
        self.sum = 0.0
        return True

    def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if i > 0:
            return self.block(i, forward, args, kwargs)
        x = args[0]
        self.full = self.begins(self.decide(self.network.entry(*args, **kwargs)), args)
        if len(self.modules) > 1:  # the blocks are skipped, not the rest
            return forward(*args, **kwargs)
        if self.full:
            output = forward(*args, **kwargs)
            self.keep(output - x if self.reuse == "input" else output)
            return output
        assert self.kept is not None
        return x + self.kept if self.reuse == "input" else self.kept.clone()

    def block(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        stream, last = args[0], len(self.modules) - 1
        if i == 1:
            self.begin = stream
        if not self.full:
            assert self.kept is not None
            return stream + self.kept if i == last else stream
        output = forward(*args, **kwargs)
        if i == last:
            self.keep(output - self.begin)
        return output

    def keep(self, value: Tensor) -> None:
        self.kept = value
        self.keeps(value, self.probe)


def network_of(case: Case) -> Any:
    """The network, if it says what its first layer sees."""
    if not hasattr(case.network, "entry"):
        kind = type(case.network).__name__
        raise TypeError(f"a {kind} does not say what its first layer sees (entry); use TeaCache")
    return case.network


def changes(case: Case) -> Iterator[tuple[float, float]]:
    """Of every stage of a full run: d_i, and the relative change of the network's output."""
    noted: list[tuple[float, float]] = []

    class Noting(Whole):
        last: Tensor | None = None

        def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
            output = super().call(i, forward, args, kwargs)
            moved = relative_change(output, self.last)
            if not math.isnan(self.change + moved):
                noted.append((self.change, moved))
            self.last = output
            return output

    Noting(case, 0.0, "output").run()
    yield from noted
