"""What a method is: it samples a case with a budget of model calls, and says what it did."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from geoshrink.checks import whole
from geoshrink.grid import Grid
from geoshrink.outputs import flatten
from geoshrink.report import Report

from .stack import intercepted

SLACK = 1.05  # who needs more evaluations than this times the budget does not compete


class Case(ABC):
    """What every method gets alike: a model, what to make, the noise, the full grid.

    A model of the zoo or a checkpoint in a pipeline (cases/). Where a pipeline is the solver, its
    velocity is out of reach: velocity() raises Skipped, and only methods inside the network run.
    """

    labels: Any  # a sequence: what each sample is to show
    noise: Any
    costs: dict[str, float]  # what methods took that were tuned on this case

    @property
    @abstractmethod
    def network(self) -> nn.Module: ...

    @abstractmethod
    def grid(self, steps: int | None = None) -> Grid:
        """The case's own grid, or one of fewer steps in the same spacing."""

    @abstractmethod
    def velocity(self) -> Callable[[Any, Any], Any]:
        """v(x, σ), as the solver sees it."""

    def one(self) -> Case:
        """Its first sample by itself; the case where it has no more than that."""
        return self

    def stepping(self) -> Callable[[Any, Any], Any]:
        """What a method inside the network calls at each stage."""
        return self.velocity()

    @abstractmethod
    def solve(self, velocity: Callable[[Any, Any], Any]) -> Any:
        """x at the end of the full grid, with this velocity in place of the model's own."""

    @cached_property
    def full(self) -> Any:
        """x at the end of the full run."""
        return self.solve(self.velocity())

    @abstractmethod
    def plain(self, steps: int | None = None) -> Outcome:
        """The model's own run, or one on a grid of fewer steps."""

    @abstractmethod
    def accelerated(self, budget: int | None, **options: Any) -> Outcome:
        """GeoShrink's run, with the options of Plan.of."""


@dataclass(frozen=True)
class Outcome:
    """A sampled case.

    evaluated   the stages in which the whole network ran
    partial     the share of the network's work that ran at the other stages, in whole runs
    held        bytes kept from one stage for later ones, at most
    steps       of the grid that `evaluated` counts in; None: the case's own
    forwards    of the network, one for every branch of guidance
    seconds     of the sampling loop alone, where it was timed
    reasons     why stages were queried that the plan had left out
    """

    x: Any
    evaluated: tuple[int, ...]
    partial: float = 0.0
    held: int = 0
    steps: int | None = None
    forwards: float | None = None
    seconds: float | None = None
    reasons: tuple[str, ...] = ()

    @property
    def evaluations(self) -> float:
        """Runs of the whole network, or as much work."""
        return len(self.evaluated) + self.partial

    def facts(self) -> dict[str, Any]:
        """All but x, as a cell keeps it; what is not known is left out."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "x"}
        found = {name: value for name, value in kept.items() if value is not None}
        return found | dict(
            evaluations=self.evaluations,
            evaluated=list(self.evaluated),
            reasons=list(self.reasons),
        )

    @classmethod
    def reported(cls, x: Any, report: Report) -> Outcome:
        """Of a run of GeoShrink."""
        return cls(
            x,
            tuple(sorted(report.queried + report.extra)),
            held=report.bytes_held,
            reasons=tuple(why for _, why in report.reasons),
        )


class Method:
    """run(case, budget) samples with `budget` runs of the network, or as near as it can.

    calibrated  whether it needs runs of this model beforehand
    adaptive    whether the data decide when the network runs
    """

    name: str
    calibrated = False
    adaptive = False

    def run(self, case: Case, budget: int) -> Outcome:
        raise NotImplementedError


@dataclass(eq=False)
class Scheduled(Method):
    """Full at the first `warm_up` stages and every interval-th after them; the last is not forced.

    interval    None: the shortest that the budget allows
    """

    interval: int | None = None
    warm_up: int = field(default=3, kw_only=True)

    def gap(self, case: Case, budget: int) -> int:
        return self.interval or interval_for(budget, case.grid().steps, self.warm_up)

    def stages(self, case: Case, budget: int) -> list[int]:
        return every(self.gap(case, budget), case.grid().steps, self.warm_up)


class Session:
    """One sampling by a method that decides at every stage of the full grid what runs.

    velocity() is the model's as the solver sees it; `stage` counts its calls. call() stands in for
    the forward of `modules`, of which subclasses say when they run, and what is said instead.

    inside      whether all that it does is done inside the network
    stages      those that run in full, where that is known beforehand
    """

    inside = False
    modules: Sequence[nn.Module] = ()

    def __init__(self, case: Case, stages: Iterable[int] = ()):
        self.case, self.steps, self.stages = case, case.grid().steps, frozenset(stages)
        self.inner = case.stepping() if self.inside else case.velocity()
        self.stage = -1
        self.evaluated: list[int] = []
        self.held = 0
        self.shapes: Any = None  # of what came in at the last full stage

    def velocity(self, x: Any, sigma: Any) -> Any:
        self.stage += 1
        return self.inner(x, sigma)

    def begins(self, wanted: bool, given: Iterable[Any]) -> bool:
        """Whether the stage runs in full: also where guidance switches, and so the batch."""
        shapes = [value.shape for value in given if isinstance(value, Tensor)]
        full = wanted or shapes != self.shapes
        if full:
            self.shapes = shapes
            self.evaluated.append(self.stage)
        return full

    def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        raise NotImplementedError

    def keeps(self, *values: Any) -> None:
        self.held = max(self.held, bytes_of(*values))

    def partial(self) -> float:
        """The share of the network's work that ran at skipped stages, in whole runs."""
        return 0.0

    def run(self) -> Outcome:
        with intercepted(self.modules, self.call):
            x = self.case.solve(self.velocity)
        return Outcome(x, tuple(self.evaluated), self.partial(), self.held)


def bytes_of(*values: Any) -> int:
    """Of all tensors in the values."""
    leaves = [t for value in values if value is not None for t in flatten(value)[0]]
    return sum(t.numel() * t.element_size() for t in leaves)


def every(interval: int, steps: int, warm_up: int = 1) -> list[int]:
    """The first `warm_up` stages, then every interval-th after the last of them.

    >>> every(6, 50, warm_up=3)
    [0, 1, 2, 8, 14, 20, 26, 32, 38, 44]
    """
    return [*range(min(warm_up, steps)), *range(warm_up - 1 + interval, steps, interval)]


def interval_for(budget: int, steps: int, warm_up: int = 1) -> int:
    """The shortest interval with which `every` makes at most `budget` runs.

    >>> interval_for(10, 50), interval_for(10, 50, warm_up=3)
    (5, 6)
    """
    if whole(budget, "budget") < min(steps, warm_up + (steps > warm_up)):
        raise ValueError(f"a budget of {budget} is less than the {warm_up} stages of the warm-up")
    return next(n for n in range(1, steps + 1) if len(every(n, steps, warm_up)) <= budget)


def rows(x: Tensor) -> Tensor:
    """A tensor with one row per sample."""
    return x.flatten(1)
