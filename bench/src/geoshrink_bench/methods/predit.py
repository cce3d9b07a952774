"""PrediT (Cui et al., 2026): the output by a linear multistep method, as far as it changes slowly.

Predictor: Adams–Bashforth of order p for F' = f, where f at a full stage is the slope to it from
the full stage before:

    F̂(t) = F_n + ∫ Σ_j ℓ_j(s)·f_j ds from t_n to t      (p = 2, equal steps: F + h·(3f − f')/2)

Horizon: after a full stage the next J stages are skipped,

    J = ⌊threshold / δ^(1/(p+1))⌋,   δ = ‖F_n − F_m‖/‖F_m‖ per stage between the last two full ones

Corrector: at the next full stage x is put right as if the skipped outputs had been on the line
between its two ends (Adams–Moulton of order 2).

Written from the abstract, and J from a third party's note. The abstract has a corrector where the
output changes fast and does not say what it corrects; on outputs alone it costs no run, so it may
act everywhere here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from geoshrink.outputs import flatten

from .base import Case, Outcome, rows
from .output import OutputSession, Parts
from .tuning import Thresholded

TINY = 1e-12  # added to δ, which may be zero


@dataclass(eq=False)
class PrediT(Thresholded):
    """After guidance, each part of a structured x for itself; any prediction; one J for a batch.

    order       p; less while fewer than p + 1 full stages are known
    corrector   the share of the correction that is made, 0 to 1; it is for Euler and DDIM steps
    clock       "sigma" (τ where the model is no flow) or "stage": what t is
    warm_up     full stages at the start
    tail        full stages at the end

    δ is the mean over samples and parts. The note has J up to 8; here only the end is a limit. At
    10 runs of 50 order 1 without the corrector came nearest on `fruit` and `motion`, so these are
    the defaults; the note has order 2.
    """

    name = "PrediT"
    reach = 0.0, 100.0
    threshold: float = 1.0
    order: int = 1
    corrector: float = 0.0
    clock: str = "sigma"
    warm_up: int = 3
    tail: int = 1

    def __post_init__(self) -> None:
        if self.clock not in ("sigma", "stage"):
            raise ValueError(f"unknown clock {self.clock!r}; choose sigma or stage")
        if self.order < 1:
            raise ValueError(f"order is at least 1, got {self.order}")

    def run(self, case: Case, budget: int) -> Outcome:
        return Adams(case, self).run()


class Adams(OutputSession):
    def __init__(self, case: Case, method: PrediT):
        super().__init__(case)
        self.method, self.until = method, 0
        self.shift: Parts = []  # what is still to be added to x

    def forget(self) -> None:
        self.full: list[tuple[int, Parts]] = []  # the last order + 1

    def times(self, part: int) -> Sequence[float]:
        track = self.track(part)
        return track.tau if self.method.clock == "sigma" else range(track.steps + 1)

    def decide(self, x: Parts) -> bool:
        method = self.method
        ends = self.stage < method.warm_up or self.stage >= self.steps - method.tail
        return ends or self.stage >= self.until

    def observe(self, x: Parts, output: Parts) -> None:
        self.shift = self.correction(output) if self.method.corrector else []
        self.full = [*self.full, (self.stage, output)][-self.method.order - 1 :]
        self.until = self.stage + 1 + self.horizon()
        self.keeps(*(parts for _, parts in self.full))

    def horizon(self) -> int:
        if len(self.full) < 2:
            return 0
        (m, before), (n, last) = self.full[-2:]
        rate = sum(map(relative, last, before)) / len(last) / (n - m)
        reach = self.method.threshold / (rate + TINY) ** (1 / (self.method.order + 1))
        return math.floor(min(reach, self.steps))

    def predict(self, x: Parts) -> Parts:
        parts = zip(*(parts for _, parts in self.full))
        return [combined(self.weights(i, self.stage), part) for i, part in enumerate(parts)]

    def weights(self, part: int, stage: int) -> list[float]:
        """Of every kept output, oldest first."""
        times = self.times(part)
        return bashforth([times[n] for n, _ in self.full], times[stage])

    def correction(self, output: Parts) -> Parts:
        """Of x at this full stage, for the skipped stages since the last."""
        if not self.full or self.full[-1][0] == self.stage - 1:
            return []
        held = zip(*(parts for _, parts in self.full))
        return [self.shift_of(i, [*part, new]) for i, (part, new) in enumerate(zip(held, output))]

    def shift_of(self, part: int, outputs: list[Tensor]) -> Tensor:
        """Σ c_n·(line − predicted) over the skipped stages n; outputs: the kept, and the new."""
        times, first = self.times(part), self.full[-1][0]
        skipped = range(first + 1, self.stage)
        total = [0.0] * len(outputs)
        for c, n in zip(self.track(part).euler_weights(skipped, False)[1], skipped):
            done = (times[n] - times[first]) / ((times[self.stage] - times[first]) or 1.0)
            for j, weight in enumerate(self.weights(part, n)):
                total[j] -= c * weight
            total[-2] += c * (1 - done)
            total[-1] += c * done
        return combined([self.method.corrector * share for share in total], outputs)

    def velocity(self, x: Any, sigma: Any) -> Any:
        """The correction goes into the step that follows: p·(x + shift) + g·output."""
        self.shift = []
        output = super().velocity(x, sigma)
        if not self.shift:
            return output
        parts, unflatten = flatten(output)
        steps = [self.track(i).euler(self.stage) for i in range(len(parts))]
        return unflatten(
            [v + p / g * by if g else v for (p, g), v, by in zip(steps, parts, self.shift)]
        )


def bashforth(times: Sequence[float], t: float) -> list[float]:
    """w with F̂(t) = Σ w_j·F(times_j), oldest first; a node at the time of the next is left out.

    >>> bashforth([0.0, 1.0, 2.0], 3.0)  # F + (3·(F − F') − (F' − F\"))/2
    [0.5, -2.0, 2.5]
    >>> bashforth([0.0, 2.0], 3.0), bashforth([2.0], 3.0)
    ([-0.5, 1.5], [1.0])
    """
    last = len(times) - 1
    kept = [j for j in range(last) if times[j] != times[j + 1]] + [last]
    weights = [0.0] * len(times)
    weights[last] = 1.0
    nodes = [times[j] for j in kept[1:]]
    for i, (old, new) in enumerate(pairwise(kept)):
        others = [s for k, s in enumerate(nodes) if k != i]
        area = Polynomial.fromroots(others).integ() if others else Polynomial([0.0, 1.0])
        scale = math.prod(nodes[i] - s for s in others) * (times[new] - times[old])
        share = float(area(t) - area(times[last])) / scale
        weights[new] += share
        weights[old] -= share
    return weights


def combined(weights: Sequence[float], parts: Sequence[Tensor]) -> Tensor:
    pairs = [w * part for w, part in zip(weights, parts) if w]
    return sum(pairs[1:], pairs[0]) if pairs else torch.zeros_like(parts[-1])


def relative(new: Tensor, old: Tensor) -> float:
    """‖new − old‖/‖old‖, the mean over samples."""
    size = rows(old).norm(dim=1).clamp_min(torch.finfo(old.dtype).tiny)
    return float((rows(new - old).norm(dim=1) / size).mean())
