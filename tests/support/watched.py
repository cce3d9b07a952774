"""A run of which every state and output is kept: what its cells missed, by stepping them again.

Nothing here reads what the run wrote down about itself, and no dot product is taken of anything but
the difference in question: the estimate's numbers follow from the kept tensors alone, literally.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from geoshrink import Run

A, B, C = 0.0272, 0.0125, 0.2725  # of y(τ) = log(1 − τ + A) − C·log(τ + B)


def linear(steps: int) -> list[float]:
    return [1 - i / steps for i in range(steps + 1)]


def flow_levels(sigmas: list[float]) -> list[tuple[float, float]]:
    return [(1 - s, s) for s in sigmas]


def sphere_levels(sigmas: list[float]) -> list[tuple[float, float]]:
    return [(math.sqrt(1 - s * s), s) for s in sigmas]


def data_of(kind: str, level: tuple[float, float], x: Any, output: Any) -> Any:
    """x̂₀, from what the output is."""
    alpha, sigma = level
    if kind == "flow":
        return x - sigma * output
    if kind == "epsilon":
        return (x - sigma * output) / alpha
    return alpha * x - sigma * output if kind == "v" else output


def output_of(kind: str, level: tuple[float, float], x: Any, data: Any) -> Any:
    """The output that says this x̂₀."""
    alpha, sigma = level
    if kind in ("flow", "epsilon"):
        return (x - (alpha if kind == "epsilon" else 1) * data) / sigma
    return (alpha * x - data) / sigma if kind == "v" else data


class Seen(NamedTuple):
    """Of one slot at one stage."""

    x: Tensor  # as the loop came to it
    evaluated: Tensor | None  # the model's output; None at a skipped stage
    moved: Tensor  # x after the correction
    output: Tensor  # what the solver received


@dataclass
class Watched:
    """kind, levels: of every slot, what its output is and (α, σ) of every grid point."""

    run: Run
    fields: list[Callable[[Tensor, float], Tensor]]
    kinds: list[str]
    levels: list[list[tuple[float, float]]]

    def go(self, *start: Tensor) -> Watched:
        """An Euler loop of one's own, each slot on its own grid."""
        self.seen: list[list[Seen]] = [[] for _ in start]
        x = list(start)
        for n in range(self.run.steps):
            asked: list[Tensor] = []

            def evaluate(n=n, x=x, asked=asked):
                pairs = zip(self.fields, x, self.levels)
                asked += [f(t, level[n][1]) for f, t, level in pairs]
                return asked[0] if len(asked) == 1 else tuple(t.clone() for t in asked)

            given = x[0] if len(x) == 1 else tuple(x)
            found, after = self.run.with_state(n, evaluate, given)
            outputs, states = ([t] if len(x) == 1 else [*t] for t in (found, after))
            for i, seen in enumerate(self.seen):
                seen.append(Seen(x[i], asked[i] if asked else None, states[i], outputs[i]))
            x = [self.step(i, n, states[i], outputs[i]) for i in range(len(x))]
        self.end = x
        return self

    def step(self, i: int, n: int, x: Tensor, output: Tensor) -> Tensor:
        (alpha, sigma), (after, less) = self.levels[i][n : n + 2]
        data = data_of(self.kinds[i], self.levels[i][n], x, output)
        return after * data + less * (x - alpha * data) / sigma

    @property
    def anchors(self) -> list[int]:
        return [n for n, seen in enumerate(self.seen[0]) if seen.evaluated is not None]

    # -- what a cell between anchors k and l was

    def z(self, i: int, n: int, x: Tensor, output: Any) -> Tensor:
        """What is predicted: the output, or the data."""
        if self.run.plan.space == "output":
            return output
        return data_of(self.kinds[i], self.levels[i][n], x, output)

    def evaluated(self, i: int, n: int) -> Tensor:
        return self.z(i, n, self.seen[i][n].x, self.seen[i][n].evaluated)

    def kept(self, i: int, n: int) -> Tensor:
        return self.z(i, n, self.seen[i][n].moved, self.seen[i][n].output)

    def noise(self, i: int) -> np.ndarray:
        return np.array([s / (a + s) for a, s in self.levels[i]])

    def y(self, i: int) -> np.ndarray:
        tau = self.noise(i)
        return np.log(1 - tau + A) - C * np.log(tau + B)

    def missed(self, i: int, k: int, end: int) -> Tensor:
        """The state at l under interpolated outputs, less the state that there was; over α + σ."""
        z_k, z_l, kind = self.kept(i, k), self.evaluated(i, end), self.kinds[i]
        times = self.y(i) if self.run.plan.clock == "mesh" else [s for _, s in self.levels[i]]
        x = self.step(i, k, self.seen[i][k].moved, self.seen[i][k].output)
        for n in range(k + 1, end):
            z = z_k + (times[n] - times[k]) / (times[end] - times[k]) * (z_l - z_k)
            data = self.run.plan.space == "data"
            x = self.step(i, n, x, output_of(kind, self.levels[i][n], x, z) if data else z)
        return (x - self.seen[i][end].x) / sum(self.levels[i][end])

    def bent(self, i: int, j: int | None, k: int, end: int) -> Tensor:
        """c, half the second derivative in y of the parabola through three outputs; without a third
        the line's change over a distance of 1 more.
        """
        y, change = self.y(i), self.evaluated(i, end) - self.kept(i, k)
        if j is None:
            return change / ((y[end] - y[k]) * (y[end] - y[k] + 1))
        before = (self.kept(i, k) - self.kept(i, j)) / (y[k] - y[j])
        return (change / (y[end] - y[k]) - before) / (y[end] - y[j])

    def slope(self, i: int, k: int, end: int) -> Tensor:
        y = self.y(i)
        return (self.evaluated(i, end) - self.kept(i, k)) / (y[end] - y[k])

    def owed(self, i: int, k: int, end: int) -> list[float]:
        """What the state at l owes to z of the stages from k + 1 on, over α + σ: by impulses."""
        found, data = [], self.run.plan.space == "data"
        for at in range(k + 1, end):
            x = torch.zeros((), dtype=torch.float64)
            for n in range(k + 1, end):
                z, kind, level = x.new_tensor(float(n == at)), self.kinds[i], self.levels[i][n]
                x = self.step(i, n, x, output_of(kind, level, x, z) if data else z)
            found.append(float(x) / sum(self.levels[i][end]))
        return found

    def size(self, i: int) -> Tensor:
        """x̂₀ of the last anchor, as evaluated."""
        n = self.anchors[-1]
        seen = self.seen[i][n]
        return data_of(self.kinds[i], self.levels[i][n], seen.x, seen.evaluated)


def norms(t: Tensor, mask: Tensor | None = None) -> np.ndarray:
    """Of each sample, over the mask."""
    t = t if mask is None else t * mask
    return t.flatten(1).norm(dim=1).numpy()
