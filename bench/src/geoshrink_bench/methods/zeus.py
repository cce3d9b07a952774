"""ZEUS (Wang et al., 2026): a second-order prediction, and the last output, in turns.

At the k-th skipped stage after a full one, with the last two full outputs F and F' before it,

    k odd:  F + (F − F')        k even:  F

so that no extrapolation follows another. The difference is F − F' however many stages lie between
the two, and the same prediction is said at every odd k. Written from the authors' code (its solver
for flows and its Euler solver for noise predictions agree on this), "psi" and "reuse_interp".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geoshrink.checks import whole
from geoshrink.grid import Grid

from .base import Case, Method, Outcome
from .output import OutputSession, Parts


@dataclass(eq=False)
class Zeus(Method):
    """After guidance; each part for itself; any prediction.

    The authors run the first 8 to 11 and the last 2 to 4 of 50 stages in full, and between them one
    of every three or four; in the later half of their demos two in a row and then four skipped ones
    (27 full stages of 50 for FLUX, 20 in their script for COCO). No pattern of theirs keeps a
    budget of 10, so the budget says how many stages are skipped; the full ones are as evenly spaced
    as they go, which is their pattern where it divides.

    warm_up     full stages at the start; 4 is the least that the authors' code allows
    fresh       full stages in a row: 1, or 2 as in the later half of their demos
    tail        full stages at the end; none leaves more for the rest, which at 10 of 50 is better
    stages      the full ones, in place of all this
    """

    name = "ZEUS"
    warm_up: int = 4
    fresh: int = 1
    tail: int = 0
    stages: Sequence[int] | None = None

    def run(self, case: Case, budget: int) -> Outcome:
        stages = self.stages
        if stages is None:
            stages = grouped(case.grid(), budget, self.warm_up, self.fresh, self.tail)
        return Interleaved(case, stages).run()


class Interleaved(OutputSession):
    def forget(self) -> None:
        self.full: list[Parts] = []  # the last two
        self.row = 0  # skipped stages since

    def observe(self, x: Parts, output: Parts) -> None:
        self.full, self.row = [*self.full[-1:], output], 0
        self.keeps(*self.full)

    def predict(self, x: Parts) -> Parts:
        self.row += 1
        before, last = self.full[0], self.full[-1]
        if self.row % 2 == 0:
            return last
        return [new + (new - old) for new, old in zip(last, before)]


def grouped(grid: Grid, budget: int, warm_up: int, fresh: int = 1, tail: int = 0) -> list[int]:
    """`budget` full stages at most: a warm-up, rows of `fresh` as far apart as they go, a tail.

    >>> sigmas = [1 - i / 30 for i in range(31)]
    >>> grouped(Grid.of(sigmas), 9, 4)
    [0, 1, 2, 3, 8, 12, 16, 21, 26]
    >>> grouped(Grid.of(sigmas), 9, 3, fresh=2, tail=1)
    [0, 1, 2, 10, 11, 20, 21, 29]
    """
    for rows in range(whole(budget, "budget") // fresh, -1, -1):
        skipped = grid.steps - warm_up - tail - rows * fresh
        if skipped < 0:
            continue
        starts = [warm_up + round((i + 1) * skipped / (rows + 1)) + i * fresh for i in range(rows)]
        found = {0, *range(warm_up), *range(grid.steps - tail, grid.steps), *grid.regimes}
        found |= {start + j for start in starts for j in range(fresh)}
        if len(found) <= budget:
            return sorted(found)
    raise ValueError(
        f"a budget of {budget} is less than the {warm_up} full stages at the start and {tail} at "
        "the end that ZEUS is given here, with those where guidance switches"
    )
