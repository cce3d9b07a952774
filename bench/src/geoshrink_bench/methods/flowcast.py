"""FlowCast (Bajpai et al., ICLR 2026): the flow goes straight on, until the model disagrees.

From a full stage m the states ahead are drafted with its velocity, x̃_k = x_m + (t_k − t_m)·v_m. The
model is asked at the drafts; they stand as long as MSE(v_m, v(x̃_k)) is below a threshold. The next
draft begins at the last one that stands, whose velocity is known by then.

The authors ask the model at all drafts ahead in one batch. That saves time where a batch costs no
more than one sample; in runs of the network, which is what is counted here, it saves none. So one
draft is asked for, `horizon` stages ahead: the horizon doubles when it stands at once; when it does
not, the draft is taken back and tried at half the horizon. A run that was in vain is counted.

Written from a third party's notes of the paper, which give the formulas; there is no code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from geoshrink.outputs import flatten

from .base import Case, Outcome, Session
from .fastflow import mse
from .tuning import Thresholded


@dataclass(eq=False)
class FlowCast(Thresholded):
    """After guidance, where the MSE is that of all parts and the whole batch; any prediction, whose
    output is what is kept constant. The last stage, and those where guidance switches, are full.

    rollback    False: what was drafted stays, and the MSE chooses the next horizon alone
    parallel    the authors' way: every stage ahead is asked for in each round, and counted
    """

    name = "FlowCast"
    reach = 0.0, 10.0
    threshold: float = 0.01
    rollback: bool = True
    parallel: bool = False

    def run(self, case: Case, budget: int) -> Outcome:
        return Speculative(case, self).run()


class Speculative(Session):
    def __init__(self, case: Case, method: FlowCast):
        super().__init__(case)
        grid = case.grid()
        self.method, self.grid = method, grid
        self.ends = (*grid.regimes, grid.steps - 1)
        self.horizon, self.until, self.asked, self.back = 1, 0, 0, False
        self.kept: Any = None  # v of stage `asked`, the last full one
        self.ahead: dict[int, Any] = {}  # v at the end of the draft, where it is known

    def velocity(self, x: Any, sigma: Any) -> Any:
        self.stage += 1
        n = self.stage
        if n < self.until:
            return self.kept
        fresh = n == 0 or n in self.grid.regimes
        v = self.ahead.pop(n) if n in self.ahead else self.ask(n, x)
        if fresh:
            self.horizon, self.back = 1, False
        elif n == self.asked + 1:  # the draft was the next stage: it stands, right or wrong
            self.adapt(self.stands(self.kept, v))
        self.kept, self.asked = v, n
        self.until = self.draft(n, x, v)
        self.keeps(self.kept, *self.ahead.values())
        return v

    def draft(self, n: int, x: Any, v: Any) -> int:
        """The next stage that is not drafted."""
        end = next((end for end in self.ends if end > n), n)
        if end == n:
            return n + 1
        if self.method.parallel:
            return self.all_of(n, end, x, v)
        while True:
            ahead = min(n + self.horizon, end)
            if ahead == n + 1 or ahead in self.grid.regimes:
                return ahead
            there = self.ask(ahead, self.state(n, ahead, x, v))
            stands = self.stands(v, there)
            self.adapt(stands, ahead - n)
            if stands or not self.method.rollback:
                self.ahead[ahead] = there
                return ahead
            self.back = True

    def all_of(self, n: int, end: int, x: Any, v: Any) -> int:
        asked = [k for k in range(n + 1, end + 1) if k not in self.grid.regimes]
        there = {k: self.ask(k, self.state(n, k, x, v)) for k in asked}
        wrong = next((k for k in asked if not self.stands(v, there[k])), end + 1)
        following = min(max(wrong - 1, n + 1), end)
        if following in there:
            self.ahead[following] = there[following]
        return following

    def adapt(self, stands: bool, tried: int = 1) -> None:
        grown = self.horizon if self.back else 2 * self.horizon
        self.horizon, self.back = grown if stands else max(1, tried // 2), False

    def stands(self, v: Any, there: Any) -> bool:
        return mse(flatten(v)[0], flatten(there)[0]) < self.method.threshold

    def state(self, n: int, k: int, x: Any, v: Any) -> Any:
        """x at stage k with v all the way from stage n."""
        parts, unflatten = flatten(x)
        moves = [self.grid.track(i).euler_weights(range(n, k), False) for i in range(len(parts))]
        outputs = flatten(v)[0]
        return unflatten([p * a + sum(c) * b for (p, c), a, b in zip(moves, parts, outputs)])

    def ask(self, n: int, x: Any) -> Any:
        self.evaluated.append(n)
        levels: Any = [track.sigmas[n] for track in self.grid.tracks]
        return self.inner(x, levels[0] if len(levels) == 1 else flatten(x)[1](levels))

    def run(self) -> Outcome:
        outcome = super().run()
        return replace(outcome, evaluated=tuple(sorted(outcome.evaluated)))
