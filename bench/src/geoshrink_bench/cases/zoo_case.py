"""Samples of a model of the zoo, or of others, as every method gets them; and how far off a method
is, stage by stage.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from geoshrink.grid import Grid
from geoshrink.outputs import flatten
from geoshrink.sampling import sample

from ..foreign.model import Model as Foreign
from ..methods.base import Case, Method, Outcome
from ..models import recipes
from ..zoo.model import Model, within
from ..zoo.recipes import RECIPES

TRACED = 16  # samples over which a trace is the mean


@dataclass(frozen=True)
class ZooCase(Case):
    """Some samples of a model, in one batch."""

    model: Model | Foreign
    labels: Sequence[int | str]
    noise: Any
    guidance: float | None = None
    steps: int | None = None
    shift: Any = None
    interval: tuple[float, float] | None = None
    lengths: Sequence[int] | None = None
    costs: dict[str, float] = field(default_factory=dict, repr=False, compare=False)
    watch: Callable[[Any, Any], None] | None = field(default=None, repr=False)

    @property
    def network(self) -> nn.Module:
        return self.model.network

    def velocity(self) -> Callable[[Any, Any], Any]:
        """It shows `watch` every (x, σ) at which the model is asked."""
        own = self.model.velocity(
            self.labels, self.guidance, interval=self.interval, lengths=self.lengths
        )
        watch = self.watch
        if watch is None:
            return own

        def velocity(x: Any, sigma: Any) -> Any:
            watch(x, sigma)
            return own(x, sigma)

        return velocity

    def grid(self, steps: int | None = None) -> Grid:
        return self.model.grid(self.steps if steps is None else steps, self.shift, self.interval)

    def one(self) -> ZooCase:
        leaves, joined = flatten(self.noise)
        noise = joined([leaf[:1] for leaf in leaves])
        lengths = self.lengths and self.lengths[:1]
        return replace(self, labels=self.labels[:1], noise=noise, lengths=lengths, costs={})

    def solve(self, velocity: Callable[[Any, Any], Any]) -> Any:
        return sample(velocity, self.noise, self.grid())

    def plain(self, steps: int | None = None) -> Outcome:
        grid = self.grid(steps)
        x = sample(self.velocity(), self.noise, grid)
        return Outcome(x, tuple(range(grid.steps)), steps=grid.steps)

    def accelerated(self, budget: int | None, **options: Any) -> Outcome:
        grid = self.grid()
        made = sample(self.velocity(), self.noise, grid, budget, with_report=True, **options)
        return Outcome.reported(*made)


def forwards_of(
    setting: dict[str, Any], evaluated: Sequence[int], partial: float, steps: int
) -> float:
    """The evaluations, each counted once for every branch of guidance at its stage.

    Work done between the evaluated stages is counted as if spread evenly over them.
    """
    each = branches(setting, steps)
    between = [count for n, count in enumerate(each) if n not in evaluated] or each
    return sum(each[n] for n in evaluated) + partial * statistics.fmean(between)


def branches(setting: dict[str, Any], steps: int) -> list[int]:
    """Of every stage of a grid: two where guidance acts.

    >>> branches(dict(model="objects", guidance=3, shift=1, interval=[0.5, 0.9]), 5)
    [1, 2, 2, 1, 1]
    """
    if setting["guidance"] == 1:
        return [1] * steps
    if not setting["interval"]:
        return [2] * steps
    recipe: Any = recipes()[setting["model"]]
    foreign = setting["model"] not in RECIPES
    model: Any = Foreign(recipe, None) if foreign else Model(recipe, None, {}, "")  # type: ignore
    sigmas = model.sigmas(steps, setting["shift"])
    levels = list(zip(*sigmas)) if model.recipe.joint else sigmas
    return [1 + within(level, setting["interval"]) for level in levels[:-1]]


class Trace:
    """The states x_n of the full run, to which those of the methods are compared."""

    def __init__(self, case: ZooCase):
        self.case = case
        self.states: dict[tuple[float, ...], Tensor] = {}

        def watch(x: Any, sigma: Any) -> None:
            self.states[level(sigma)] = rows(x)

        self.end = rows(replace(case, watch=watch).plain().x)

    def run(self, method: Method, budget: int) -> tuple[Outcome, list[float | None]]:
        """The outcome, and for every stage and the end the mean of ‖x_n − x_n^full‖ / ‖x_n^full‖.

        None at stages where the model was not asked. A method on another grid has an error where
        its σ is one of the full grid's; where it asks twice at one σ, the later state counts.
        """
        errors: dict[tuple[float, ...], float] = {}

        def watch(x: Any, sigma: Any) -> None:
            full = self.states.get(level(sigma))
            if full is not None:
                errors[level(sigma)] = relative(rows(x), full)

        outcome = method.run(replace(self.case, watch=watch), budget)
        end = relative(rows(outcome.x), self.end)
        return outcome, [*map(errors.get, self.states), end]


def level(sigma: Any) -> tuple[float, ...]:
    """σ, or one for each part, up to rounding."""
    parts = sigma if isinstance(sigma, (tuple, list)) else [sigma]
    return tuple(round(float(part), 9) for part in parts)


def rows(x: Any) -> Tensor:
    """The first samples of x, a row each."""
    return torch.cat([part[:TRACED].float().flatten(1) for part in flatten(x)[0]], 1).clone()


def relative(x: Tensor, full: Tensor) -> float:
    return round(float(((x - full).norm(dim=1) / full.norm(dim=1)).mean()), 7)
