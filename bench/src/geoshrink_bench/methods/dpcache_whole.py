"""DPCache on a network of any kind: its path, with the output as the feature whose errors count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .base import Case, Method, Outcome
from .budcache import off
from .dpcache import ENTRIES, cheapest, path_costs
from .once import once
from .output import Parts
from .switching import switching
from .whole import REUSES, Reused, check_reuse


@dataclass(eq=False)
class DPCacheWhole(Method):
    """stages, order, warm_up   as DPCache's
    reuse                    "input": output − x is extrapolated; "output": the output
    """

    name = "DPCache (whole network)"
    calibrated = True
    stages: Sequence[int]
    order: int = 2
    warm_up: int = 3
    reuse: str = "output"

    def __post_init__(self) -> None:
        check_reuse(self.reuse)

    def run(self, case: Case, budget: int) -> Outcome:
        return Reused(case, self.stages, self.order, self.reuse, self.warm_up - 1).run()

    @classmethod
    def fit(
        cls, cases: Sequence[Case], budget: int, order: int = 2, warm_up: int = 3
    ) -> DPCacheWhole:
        """The cheapest stages for each kind of reuse; of the two, what comes nearest to the full
        runs of these cases.
        """
        found: list[DPCacheWhole] = []
        for reuse in REUSES:
            costs = np.sum([costs_of(case, order, reuse) for case in cases], axis=0)
            stages = cheapest(costs, budget, warm_up, switching(cases[0]))
            found.append(cls(stages, order, warm_up, reuse))
        return min(found, key=lambda method: off(method, cases, budget))


class Noted(Reused):
    """A full run that notes some entries of what would be extrapolated, at every stage."""

    def __init__(self, case: Case, reuse: str):
        super().__init__(case, range(case.grid().steps), 0, reuse)
        self.seen: list[Tensor] = []

    def observe(self, x: Parts, output: Parts) -> None:
        super().observe(x, output)
        values = torch.cat([s.terms[0].flatten().float() for s in self.series.values()])
        self.seen.append(values[:: len(values) // ENTRIES | 1].clone())


def noted(case: Case, reuse: str) -> list[Tensor]:
    session = Noted(case, reuse)
    session.run()
    return session.seen


def costs_of(case: Case, order: int, reuse: str) -> np.ndarray:
    def find() -> np.ndarray:
        seen = once(case, (Noted, reuse), lambda: noted(case, reuse))
        return path_costs(seen, order, switching(case))

    return once(case, (path_costs, order, reuse), find)
