"""Goal: holds a run to its aim. At every anchor it reads a few numbers from the device and goes on
with the anchors of the least budget that is expected to reach the aim.

The estimate of what lies ahead assumes that the outputs stay as curved as they are now. Where that
is wrong, later anchors see it. A decision is made for the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from .. import aim
from ..history.record import Record, sent
from ..plan import Plan
from .cells import TINY, Array, Cell, Path, array, cell_of, path_of
from .estimate import Constants, constants_of, inverse, left, told
from .ladder import ladder_of

#: Anchors before the first decision: two changes of the output have been seen.
SEEN = 3
#: The part of the error allowed that cells of the past can have used up: what is lost is lost, and
#: does not ask for every stage that is left.
PAST = 0.5
#: Rungs by which a decision can go up or down: three anchors see little of what comes.
RATE = 4
#: dB by which runs would end above their aim: budgets are whole numbers, and what was too much
#: cannot be taken back. RATE and LEAN were chosen with all models of benchmarks/quality.md in view.
LEAN = 2.0
#: With a profile: what counts of what the run sees itself, against what the profile expects.
SEEN_SHARE = 0.2
READ = ("omega", "changes", "sizes", "finite")
CAPPED = "more calls are expected to be needed"


class Goal:
    """Of one Run, for one run after another."""

    def __init__(self, plan: Plan, seen: Sequence[int] = ()):
        assert plan.aim is not None
        self.first, self.aim = plan, plan.aim
        self.ladder = ladder_of(plan)
        self.reset()
        self.seen = [*seen]

    def reset(self) -> None:
        """A new run begins."""
        self.seen: list[int] = []
        self.plan = self.first
        self.expected: float | None = None  # dB, by the latest decision
        self.capped = False
        self.sent: Callable[[], Record] | None = None
        self.due = 0  # the stage at which the next anchor can be, at the earliest
        self.rung = self.ladder.nearest(self.first.budget)
        self.forget()

    def forget(self) -> None:
        """The history restarts: what was seen is of other outputs."""
        self.slots: list[Past] = []
        self.sent = None

    def turn(self) -> None:
        """A regime begins, or x has changed: what was seen still counts."""

    def observed(self, record: Record, stage: int, leaves: Sequence[Tensor]) -> None:
        """An anchor was made: what it has seen is sent to the host."""
        before = [n for n in self.seen if n < stage]  # a stage may be called again
        self.seen, self.sent = [*before, stage], None
        sizes = record.sizes.get(stage, [None])
        fit = all(size is not None and size.numel() and not size.is_meta for size in sizes)
        if before and record.levels is not None and fit:
            self.sent = sent(since(record, before[-1], stage), READ)
        near = range(max(0, self.rung - RATE), self.rung + RATE + 1)
        after = [self.ladder.after(r, stage) for r in near if r < len(self.ladder.budgets)]
        self.due = min([*(stops[0] for stops in after if stops), self.ladder.steps])

    @np.errstate(all="ignore")  # what overflows is not finite, and reaches no aim
    def decided(self) -> Plan | None:
        """The plan from the latest anchor on, if it is another one; None to stay. It waits for what
        was sent, so it is asked as late as can be.
        """
        if self.sent is None:
            return None
        record, self.sent = self.sent(), None
        *before, stage = self.seen
        if not all(bool(flag.all()) for flag in record.finite[stage]):
            return None
        sizes = [np.maximum(array(both), TINY) for both in record.sizes[stage] if both is not None]
        constants = constants_of(record)
        self.slots = self.slots or [Past(path_of(record, i)) for i in range(len(sizes))]
        j = before[-2] if len(before) > 1 else None
        for i, (slot, (size, _)) in enumerate(zip(self.slots, sizes)):
            slot.add(cell_of(record, slot.path, i, j, before[-1], stage, len(size)), constants)
        if len(self.seen) < SEEN or any(slot.now is None for slot in self.slots):
            return None
        return self.decide(record, stage, sizes, constants)

    def decide(
        self, record: Record, stage: int, sizes: Sequence[Array], constants: Constants
    ) -> Plan | None:
        count = np.mean([count for _, count in sizes], 0)
        spent = PAST * inverse(self.aim.db, count, constants)
        errors = [
            self.error(slot, stage, constants, record.corrects, spent * size) / size
            for slot, (size, _) in zip(self.slots, sizes)
        ]
        db = told(np.mean(errors, 0), count, constants)  # (rungs, samples)
        calls = len(self.seen) + self.ladder.calls(stage)
        done = len(self.seen) / calls
        db = aim.PRIOR.weighed(db, calls[:, None], record.plan.steps, done[:, None])
        judged = LEAN + (db.min(1) if self.aim.judge == aim.WORST else db.mean(1))
        if (expected := self.aim.expected(calls)) is not None:
            judged = (1 - SEEN_SHARE) * expected + SEEN_SHARE * judged
        allowed = calls <= (self.aim.most or record.plan.steps)
        near = np.abs(np.arange(len(calls)) - self.rung) <= RATE
        enough = np.flatnonzero(allowed & near & (judged >= self.aim.db))
        short = self.aim.most is not None and self.aim.most < record.plan.steps
        self.capped = short and not (judged[allowed] >= self.aim.db).any()
        if len(enough):
            self.rung = int(enough[0])
        elif (allowed & near).any():
            self.rung = int(np.flatnonzero(allowed & near)[-1])
        rung, self.expected = self.rung, float(judged[self.rung])
        plan = self.ladder.continued(self.plan, tuple(self.seen), rung)
        if plan.anchors == self.plan.anchors:
            return None
        self.plan = plan
        return plan

    def tell(self, record: Record) -> None:
        """Once, that it may not make as many calls as are needed."""
        if self.capped and not any(CAPPED in why for _, why in record.reasons):
            record.fall_back(self.seen[-1], f"{self.aim}: {CAPPED}")

    def error(
        self, slot: Past, stage: int, constants: Constants, corrected: bool, most: Array
    ) -> Array:
        """E²·‖x̂₀‖² of every rung and sample; of what is past no more than `most` counts."""
        now = slot.now
        assert now is not None and now.slope is not None and now.curvature is not None
        ahead = self.ladder.ahead(slot.path, constants, corrected)
        lengths, P, Q = self.ladder.view(ahead, stage)
        past = np.minimum(slot.settled, most)
        return past + lengths * slot.moved + P * now.slope**2 + Q * now.curvature**2


class Past:
    """What the cells of a slot have left so far.

    settled   G·e² of all cells, but for what the latest leaves in the next
    moved     that, per h^2q of the next cell
    now       the latest cell whose end was seen
    """

    def __init__(self, path: Path):
        self.path, self.now = path, None
        self.settled, self.moved = np.zeros(1), np.zeros(1)

    def add(self, cell: Cell, p: Constants) -> None:
        self.now: Cell | None = self.now if cell.missed is None else cell
        if self.now is None:
            return
        moved, rest = left(self.path, cell, self.now, p)
        length = self.path.length(cell.k, cell.end) ** (2 * p.power)
        self.settled = self.settled + length * self.moved + rest
        self.moved = moved


def since(record: Record, before: int, stage: int) -> Record:
    """What a record has of the cell between two anchors, and of the second."""
    cell = {n: record.omega[n] for n in range(before + 1, stage) if n in record.omega}
    changes = {n: record.changes[n] for n in (before, stage)}
    at = {"sizes": {stage: record.sizes[stage]}, "finite": {stage: record.finite[stage]}}
    return replace(record, omega=cell, changes=changes, **at)
