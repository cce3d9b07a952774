"""Pace: whether the outputs of a run move slowly at first, and the anchors to go on with if so.

At the second anchor, k, the first output was held so far, so the self-check says how far it has
moved, and with it what it says about the data: x̂₀ = a·x + b·output changes by |b|·‖v_k − v_0‖, in
units of ‖v_k‖. On our models that is 0.31 or more per unit of the auto mesh's y, in which they are
equally curved; where it is less, they are not, and the plan's other anchors take over. They are as
many. It is read from the device once in a run, and decided for the whole batch. With several
σ-grids it is not clear what it is, and our only such model would lose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from .history.record import Record, sent
from .meshes.auto import progress
from .plan import Plan
from .tracing import transformed

#: Per unit of y: below it the outputs move slowly (benchmarks/pace.md).
SLOW = 0.19
SAID = "slow (the outputs hardly move at first)"
NOISE = "epsilon"  # no model that predicts it was seen to gain: it keeps its anchors


class Pace:
    """Of one Run, for one run after another."""

    def __init__(self, plan: Plan):
        self.first, self.second = plan, plan.anchors[1]
        #: The stage at which one plan or the other has its third anchor.
        self.due = min(plan.anchors[2], plan.slow[2])
        self.reset()

    def reset(self) -> None:
        """A new run begins."""
        self.forget()

    def forget(self) -> None:
        """The history restarts: what was seen is of other outputs."""
        self.sent: Callable[[], Record] | None = None
        self.gain = 0.0

    def turn(self) -> None:
        """A regime begins, or x has changed: outputs move for another reason, too."""
        self.forget()

    def observed(self, record: Record, stage: int, leaves: Sequence[Tensor]) -> None:
        """An anchor was made; the second is sent to the host."""
        if transformed(*leaves):
            return
        self.forget()
        errors, levels = record.errors.get(stage), record.levels
        held = sorted([*record.queried, *record.extra]) == [0, self.second]
        if not held or errors is None or levels is None or not record.corrects:
            return
        (track,) = levels
        if track.prediction == NOISE or not readable(errors):
            return
        self.gain = abs(track.data_map(stage)[1])
        self.sent = sent(replace(record, errors={stage: errors}), ["errors"])

    def decided(self) -> Plan | None:
        """The plan from the second anchor on, if it is another one; None to stay. It waits for what
        was sent, so it is asked as late as can be.
        """
        if self.sent is None:
            return None
        record, self.sent = self.sent(), None
        try:
            if not self.slowly(record.errors[self.second]):
                return None
        except RuntimeError:  # there are no numbers: fake tensors, a run that is traced
            return None
        words = f"{self.first.mesh}, {SAID}"
        return replace(self.first, anchors=self.first.slow, slow=(), mesh=words)

    def tell(self, record: Record) -> None:
        """The name of its mesh says it."""

    def slowly(self, errors: Sequence[Tensor]) -> bool:
        """Outputs that have not moved at all say nothing: hosts begin with zeros, some of them."""
        rows = [t.flatten().tolist() for t in errors]
        means = [math.fsum(row) / len(row) for row in rows]
        still = any(error == 0 for row in rows for error in row)
        return not still and movement(self.first, means, self.gain) < SLOW


def movement(plan: Plan, errors: Sequence[float], gain: float) -> float:
    """How far the data has moved by the second anchor, per unit of y; NaN where that is not known.

    errors   the self-check there, of every slot
    gain     |b| of x̂₀ = a·x + b·output
    """
    times = progress(plan.grid.tracks[0].noise or ())
    way = abs(float(times[plan.anchors[1]] - times[0]))
    return gain * math.fsum(errors) / len(errors) / way if way else math.nan


def readable(errors: Sequence[Tensor]) -> bool:
    """Whether there are numbers to be read, and by this process alone: several that work on one
    sample must query at the same stages, and may see numbers that differ in their last digit.
    """
    traced = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if traced or any(t.is_meta or not t.numel() for t in errors):
        return False
    if any(t.is_cuda for t in errors) and torch.cuda.is_current_stream_capturing():
        return False
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not there or torch.distributed.get_world_size() == 1
