"""BudCache on a network of any kind: its search, with the whole network as what is skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from .base import Case, Method, Outcome
from .budcache import best_of
from .switching import switching
from .whole import REUSES, Reused, check_reuse


@dataclass(eq=False)
class BudCacheWhole(Method):
    """stages, order   as BudCache's
    reuse           "input": what the output differs by from x is reused; "output": the output
    """

    name = "BudCache (whole network)"
    calibrated = True
    stages: Sequence[int]
    order: int = 0
    reuse: str = "output"

    def __post_init__(self) -> None:
        check_reuse(self.reuse)

    def run(self, case: Case, budget: int) -> Outcome:
        return Reused(case, self.stages, self.order, self.reuse).run()

    @classmethod
    def fit(
        cls,
        cases: Sequence[Case],
        budget: int,
        prefix: int | None = None,
        heats: int = 200,
        climbs: int = 20,
        seed: int = 0,
    ) -> BudCacheWhole:
        """BudCache's search for order 0 and 1, and for both kinds of reuse."""
        makes = [partial(cls, order=order, reuse=reuse) for order in (0, 1) for reuse in REUSES]
        grid = switching(cases[0])
        return best_of(makes, cases, budget, prefix, heats, climbs, seed, grid)
