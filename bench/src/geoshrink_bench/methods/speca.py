"""SpeCa (Liu et al., ACM MM 2025): drafts by TaylorSeer, until the last block disagrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .base import Case, Outcome
from .stack import intercepted
from .taylorseer import Forecast, TaylorSeer
from .tuning import Thresholded


@dataclass(eq=False)
class SpeCa(Thresholded):
    """As in the authors' code for FLUX, in stages i of T (not in σ):

    After a full stage come drafts: every branch is its Taylor sum of the given order. From draft
    `least` + 1 on, the last block also runs for real on what the draft put into it, and

        e = mean(|R̂ − R| / (|R| + 1e-10)),   R = what the block adds to the stream.

    Stage i is full if e > max(threshold · decay^(i/T), 0.1) at the stage before it, after `most`
    drafts, or if i < 3 and a draft came before: so 0, 2, then 4 to `most` + 1 stages apart. A
    rejected draft is not taken back, and the last stage is not forced.

    FLUX's block has one gated output, of which e is taken; with two (attention, MLP), R is their
    sum with the gates, which for one branch is the same.
    """

    name = "SpeCa"
    reach = 0.0, 1000.0
    threshold: float = 7.0
    decay: float = 0.3
    least: int = 2
    most: int = 8
    order: int = 2

    def run(self, case: Case, budget: int) -> Outcome:
        return Draft(case, self).run()


class Draft(Forecast):
    def __init__(self, case: Case, method: SpeCa):
        super().__init__(case, [], TaylorSeer(order=method.order).series)
        self.method = method
        self.drafts, self.verified, self.error = 0, 0, 0.0
        self.real = False

    def decide(self) -> bool:
        method = self.method
        limit = max(method.threshold * method.decay ** (self.stage / self.steps), 0.1)
        rejected = self.stage < 3 or self.error > limit
        return self.stage == 0 or self.drafts >= method.most or (self.drafts > 0 and rejected)

    def observe(self, branch: int, output: Tensor) -> None:
        super().observe(branch, output)
        self.drafts, self.error = 0, 0.0

    def predict(self, branch: int, args: tuple) -> Tensor:
        self.drafts += branch == 0
        return super().predict(branch, args)

    def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if self.real:
            return forward(*args, **kwargs)
        return super().call(i, forward, args, kwargs)

    def last(self, _: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """The last block: as drafted, and to verify it also for real."""
        output = forward(*args, **kwargs)
        if not self.full and self.drafts > self.method.least:
            self.real = True
            real = forward(*args, **kwargs)
            self.real = False
            self.verified += 1
            i = len(self.stack.blocks) - 1
            x, draft = self.stack.take(i, args, kwargs)[0], self.stack.read(i, output)[0]
            truth = self.stack.read(i, real)[0]
            self.error = float(((draft - truth).abs() / ((truth - x).abs() + 1e-10)).mean())
        return output

    def partial(self) -> float:
        return self.verified / len(self.stack.blocks)

    def run(self) -> Outcome:
        with intercepted([self.stack.blocks[-1]], self.last):
            return super().run()
