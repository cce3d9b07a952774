"""Reserve: queries kept in hand, spent where the self-check is worst. Off by default.

At an anchor the self-check says how far the cell behind it was off, and the next cell is likely to
be as bad: where it is above the median of those before, or where no more cells than queries are
left, the middle of the next cell is queried, too. That reads one number from the device at every
anchor, and it is the mean over the batch: what a sample becomes depends on those beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch
from torch import Tensor

from ..checks import whole
from ..plan import Plan


class Reserve:
    def __init__(self, count: int):
        self.count = check_reserve(count)
        self.reset()

    def reset(self) -> None:
        self.left = self.count
        self.seen: list[float] = []
        self.stage: int | None = None  # the next to be queried
        self.reason = ""

    def observed(
        self, plan: Plan, stage: int, errors: Sequence[Tensor] | None, skipped: range
    ) -> None:
        """Decides on the cell that opens at an anchor."""
        self.stage = None
        if not self.left or errors is None or stage not in plan.anchors:
            return
        error = float(torch.stack([e.double().mean() for e in errors]).mean())
        ends = (*plan.anchors[1:], plan.steps)
        known = [(a, e) for a, e in zip(plan.anchors, ends) if a not in plan.restarts]
        cells = [e for a, e in known if a >= stage and e - a > 1]
        bad = bool(self.seen) and error > median(self.seen)
        self.seen.append(error)
        if skipped and (bad or len(cells) <= self.left):
            self.left -= 1
            self.stage = middle(plan, stage, skipped)
            self.reason = f"queried from the reserve: self-check {error:.0%} at stage {stage}"


def middle(plan: Plan, stage: int, skipped: range) -> int:
    """The skipped stage nearest to half of the cell's way in τ."""
    tau = plan.grid.tracks[plan.grid.lead].tau
    half = (tau[stage] + tau[skipped.stop]) / 2
    return min(skipped, key=lambda n: abs(tau[n] - half))


def check_reserve(count: object) -> int:
    count = whole(count, "reserve")
    if count < 0:
        raise ValueError(f"reserve is a number of queries, got {count}")
    return count
