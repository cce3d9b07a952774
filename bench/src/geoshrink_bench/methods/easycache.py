"""EasyCache (Zhou et al., 2025) before guidance, and LazyCache (ComfyUI) after it.

Both reuse the difference v − x of the last full stage, v̂ = x + (v − x)_last, as long as an estimate
of how far v has moved since, in parts of itself, stays below a threshold:

    Σ k·|x − x'|/|v_last| < threshold,    k = |v_last − v_last'|/|x_last − x_last'|

with |·| the mean of absolute values. It is taken over the whole batch, which skips together: give
one sample at a time for the authors' decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from .base import Case, Outcome
from .output import OutputSession, Parts
from .tuning import Thresholded


@dataclass(eq=False)
class EasyCache(Thresholded):
    """On the network's output, each branch with its own difference; the conditional one decides.

    x' is x one stage before, skipped or not. Full in the first `warm_up` stages and the last. The
    defaults are the authors' for HunyuanVideo; for Wan2.1 they take 0.05 and 10.
    """

    name = "EasyCache"
    reach = 0.0, 10.0
    threshold: float = 0.025
    warm_up: int = 5

    def run(self, case: Case, budget: int) -> Outcome:
        return Easy(case, self.threshold, range(self.warm_up, case.grid().steps - 1)).run()


@dataclass(eq=False)
class LazyCache(Thresholded):
    """The same on the guided data prediction x̂₀, which is what ComfyUI's samplers see.

    x' is x at the last full stage. Full in the first `warm_up` stages, or before ComfyUI's 0.15 of
    the grid, and after `end` of it. We look at every value where ComfyUI takes every 8th in both
    directions of a picture; with space="output" the rule acts on the guided output instead.
    """

    name = "LazyCache"
    reach = 0.0, 100.0

    threshold: float = 0.2
    warm_up: int | None = None
    end: float = 0.95
    space: str = "data"

    def __post_init__(self) -> None:
        if self.space not in ("data", "output"):
            raise ValueError(f"unknown space {self.space!r}; choose data or output")

    def run(self, case: Case, budget: int) -> Outcome:
        steps = case.grid().steps
        start = 0.15 if self.warm_up is None else self.warm_up / steps
        skippable = [n for n in range(steps) if start <= n / steps < self.end]
        session = LazyData if self.space == "data" else Lazy
        return session(case, self.threshold, skippable).run()


class Easy(OutputSession):
    guided = False
    moving = True  # x' is that of the stage before, not of the last full one

    def __init__(self, case: Case, threshold: float, skippable: Sequence[int]):
        super().__init__(case)
        self.threshold, self.skippable = threshold, skippable

    def forget(self) -> None:
        self.full: tuple[Parts, Parts] | None = None  # x and output of the last full stage
        self.x: Parts = []  # x'
        self.rate: float | None = None
        self.total = 0.0

    def change(self, a: Parts, b: Parts | None = None) -> float:
        """The mean |a − b| (or |a|) over the conditional samples."""
        n = len(self.case.labels)
        moved = a if b is None else [one - other for one, other in zip(a, b)]
        values = [part[:n].abs() for part in moved]
        return float(sum(v.sum() for v in values)) / sum(v.numel() for v in values)

    def decide(self, x: Parts) -> bool:
        near = False
        if self.stage not in self.skippable:
            self.total = 0.0
        elif self.full is not None and self.rate is not None:
            self.total += self.rate * self.change(x, self.x) / self.change(self.full[1])
            near = self.total < self.threshold
            self.total = self.total if near else 0.0
        if self.moving:
            self.x = x
        if near and self.full is not None:
            self.keeps(*self.full, x if self.moving else None)
        return not near

    def observe(self, x: Parts, output: Parts) -> None:
        if self.full is not None:
            moved = self.change(x, self.full[0])
            self.rate = self.change(output, self.full[1]) / moved if moved else None
        self.full, self.x = (x, output), x
        self.keeps(x, output)

    def predict(self, x: Parts) -> Parts:
        assert self.full is not None
        return [now + (v - then) for now, then, v in zip(x, *self.full)]


class Lazy(Easy):
    guided = True
    moving = False


class LazyData(Lazy):
    """In the data prediction: a·x + b·v."""

    def observe(self, x: Parts, output: Parts) -> None:
        super().observe(x, [a * now + b * v for a, b, now, v in self.mapped(x, output)])

    def predict(self, x: Parts) -> Parts:
        return [(data - a * now) / b for a, b, now, data in self.mapped(x, super().predict(x))]

    def mapped(self, x: Parts, other: Parts) -> Iterator[tuple[float, float, Tensor, Tensor]]:
        maps = (self.track(i).data_map(self.stage) for i in range(len(x)))
        return ((a, b, now, then) for (a, b), now, then in zip(maps, x, other))
