"""FastFlow (Bajpai et al., ICLR 2026): v along the line through two full stages; bandits skip.

    v̂_n = v_k + (t_n − t_k)·(v_k − v_p)/(t_k − t_p)     p < k: the last two full stages

Every stage k has a bandit whose arm a says to skip the next a stages. It is paid
μ·a − MSE(v̂, v) at the next full stage and chosen by UCB, mean + γ·√(ln n/N), γ = 2.

Written from a third party's notes of the paper, which give these formulas; their code was not
reachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from geoshrink.checks import whole
from geoshrink.grid import Grid
from geoshrink.outputs import flatten

from .base import Case, Method, Outcome
from .once import once
from .output import OutputSession, Parts

WORTH = np.geomspace(1e-6, 1e6, 481)  # μ, in units of the largest loss


@dataclass(eq=False)
class FastFlow(Method):
    """After guidance; each part has its own line, in σ (in τ where the model is no flow).

    The authors' bandits go on learning from prompt to prompt, and the number of runs is what comes
    of it. Here they learn on the training cases (`fit`), where the budget chooses μ, and then the
    best arm of every stage is taken, without exploring: the same stages for every sample.
    """

    name = "FastFlow"
    calibrated = True
    stages: Sequence[int]

    def run(self, case: Case, budget: int) -> Outcome:
        return Line(case, self.stages).run()

    @classmethod
    def fit(
        cls,
        cases: Sequence[Case],
        budget: int,
        rounds: int = 2,
        most: int | None = None,
        gamma: float = 2.0,
        warm_up: int = 2,
    ) -> FastFlow:
        """Learned in `rounds` runs of the cases, after one full run in which every arm is tried.

        most        stages skipped at once, at most; None: twice as many as equal gaps would
        gamma       of UCB, in units of μ: the reward is divided by it, so that one skipped stage is
                    worth 1 whatever the model's units
        warm_up     full stages at the start: a line needs two

        The last stage is always full, and so are those where guidance switches.
        """
        grid = cases[0].grid()
        if most is None:
            most = 2 * (grid.steps // max(1, whole(budget, "budget")))
        bandits = Bandits(grid, most, warm_up)
        for case in cases:
            bandits.learn(tried(case, most))
        for _ in range(rounds):
            stages = bandits.stages(budget, gamma)
            for case in cases:
                session = Line(case, stages)
                session.run()
                bandits.learn(session.losses)
        return cls(bandits.stages(budget))


class Bandits:
    """The losses of every stage's arms, and what is best given what a skipped stage is worth."""

    def __init__(self, grid: Grid, most: int, warm_up: int = 2):
        self.steps = grid.steps
        shape = (grid.steps, most + 1)
        self.total, self.count = np.zeros(shape), np.zeros(shape)
        ends = sorted({*range(1, warm_up), *grid.regimes, grid.steps - 1})
        # arm a of stage k leads to stage k + a + 1, no further than the next that must be full
        self.allowed = np.zeros(shape, dtype=bool)
        for k in range(grid.steps - 1):
            self.allowed[k, : next(end for end in ends if end > k) - k] = True

    def learn(self, losses: Iterable[tuple[int, int, float]]) -> None:
        """(stage, arm, loss) of each arm that was taken."""
        for k, arm, loss in losses:
            self.total[k, arm] += loss
            self.count[k, arm] += 1

    def losses(self) -> np.ndarray:
        """The mean of each arm. One that ends where guidance switches has none to see: it is taken
        to lose what the arm before it does.
        """
        loss = self.total / np.maximum(self.count, 1)
        for arm in range(1, loss.shape[1]):
            unseen = self.count[:, arm] == 0
            loss[unseen, arm] = loss[unseen, arm - 1]
        return loss

    def stages(self, budget: int, gamma: float = 0.0) -> list[int]:
        """The full stages with the μ that makes the most of the budget."""
        loss = self.losses()
        visits = self.count.sum(1, keepdims=True)
        bonus = gamma * np.sqrt(np.log(np.maximum(visits, 1)) / np.maximum(self.count, 1))
        arms, unit = np.arange(loss.shape[1]), loss.max() or 1.0
        values = (arms - loss / (worth * unit) + bonus for worth in WORTH)
        found = [self.walk(np.where(self.allowed, v, -np.inf).argmax(1)) for v in values]
        within = [stages for stages in found if len(stages) <= whole(budget, "budget")]
        if not within:
            raise ValueError(
                f"a budget of {budget} is less than the {min(map(len, found))} stages that "
                f"FastFlow runs in full when it skips as many as it may ({len(arms) - 1} at once): "
                "give a larger `most`"
            )
        return max(within, key=len)

    def walk(self, best: np.ndarray) -> list[int]:
        stages = [0]
        while stages[-1] < self.steps - 1:
            stages.append(stages[-1] + int(best[stages[-1]]) + 1)
        return stages


class Line(OutputSession):
    def __init__(self, case: Case, stages: Sequence[int]):
        super().__init__(case, stages)
        self.losses: list[tuple[int, int, float]] = []  # (stage, arm, loss)

    def forget(self) -> None:
        self.full: list[tuple[int, Parts]] = []  # the last two

    def observe(self, x: Parts, output: Parts) -> None:
        if self.full:
            k = self.full[-1][0]
            self.losses.append((k, self.stage - k - 1, mse(self.predict(x), output)))
        self.full = [*self.full[-1:], (self.stage, output)]
        self.keeps(*(parts for _, parts in self.full))

    def predict(self, x: Parts) -> Parts:
        (p, before), (k, last) = self.full[0], self.full[-1]
        return [self.at(i, p, k, *pair) for i, pair in enumerate(zip(before, last))]

    def miss(self, stage: int, output: Parts) -> float:
        """Of the line at a stage, whose output is known."""
        self.stage = stage
        return mse(self.predict(output), output)

    def at(self, part: int, p: int, k: int, before: Tensor, last: Tensor) -> Tensor:
        times = self.track(part).tau
        if times[p] == times[k]:
            return last
        return last + (times[self.stage] - times[k]) / (times[k] - times[p]) * (last - before)


def mse(a: Parts, b: Parts) -> float:
    """The mean of squares over all values."""
    squares = sum(float(((x - y) ** 2).sum()) for x, y in zip(a, b))
    return squares / sum(x.numel() for x in a)


def tried(case: Case, most: int) -> list[tuple[int, int, float]]:
    """The loss of every arm at every stage, on one full run: the line is through k − 1 and k."""
    seen = once(case, tried, lambda: outputs_of(case))
    line, losses = Line(case, ()), []
    for first, last in case.grid().spans():
        for k in range(first, last):
            line.full = [(n, seen[n]) for n in range(max(first, k - 1), k + 1)]
            for n in range(k + 1, min(last, k + most + 2)):
                loss = once(case, (tried, k, n), partial(line.miss, n, seen[n]))
                losses.append((k, n - k - 1, loss))
    return losses


def outputs_of(case: Case) -> list[Parts]:
    """Of one full run, stage by stage."""
    inner = case.velocity()
    seen: list[Parts] = []

    def velocity(x: Any, sigma: Any) -> Any:
        v = inner(x, sigma)
        seen.append(flatten(v)[0])
        return v

    case.solve(velocity)
    return seen
