"""A loop that belongs to somebody else, seen from where its model's outputs are made.

Every call says at what time it is made. The call at the time of the next stage is that stage; a
call at any other time means that the solver is not the one that was planned for, and from there on
the model is run at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Thread, current_thread
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..plan import Plan
from ..report import Report
from ..run import Run
from ..teaching import Teacher


class Stages:
    """The stages of one run after another over the same times.

    times     t_0 … t_T as the host has them, those of zero length included
    note      why every stage is queried, where that is so
    counts    whether `forwards` counts how often the network itself runs
    made      what the caller likes to remember of the latest exact output
    solver    what the host does with the outputs, where it is one of ours
    learn     who places the anchors, where exact runs teach
    """

    def __init__(
        self,
        plan: Plan,
        times: Sequence[float],
        note: str | None = None,
        mask: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        counts: bool = False,
        solver: str | None = None,
        learn: Teacher | None = None,
    ):
        self.run = Run(plan, mask=mask, dtype=dtype, solver=solver, learn=learn)
        self.times, self.begin_note = times, note
        self.counts, self.made = counts, None
        self.begin()

    def begin(self) -> None:
        self.next, self.forwards, self.last_forwards = 0, 0, None
        self.forced, self.regime = self.begin_note is not None, 0
        self.elsewhere: list[int] = []  # calls off the grid, by the stage that was to come next
        self.notes = [] if self.begin_note is None else [(0, self.begin_note)]

    def __call__(
        self,
        time: Any,
        evaluate: Callable[[], Any],
        x: Any = None,
        encode: Callable[[Any], Any] = lambda output: output,
        decode: Callable[[Any], Any] = lambda output: output,
    ) -> Any:
        """What evaluate() gives, or decode() of what the run says in place of encode() of it."""
        n = self.find(time)
        if n is None:
            self.elsewhere.append(self.next)
            return evaluate()
        if not self.run.queries(n, x) and not self.forced:
            return decode(self.run.predict(n, x))
        before = self.forwards
        try:
            output = evaluate()
        except BaseException:
            self.run.reset()
            raise
        self.detect(n, self.forwards - before)
        exact = encode(output)
        answer = self.run.observe(n, exact, x)
        return output if answer is exact else decode(answer)

    def find(self, time: Any) -> int | None:
        """The stage that begins at this time: the next one, or the first of a new run."""
        if self.next < len(self.times) - 1 and self.near(time, self.next):
            self.next += 1
            return self.next - 1
        if self.next and self.near(time, 0):
            self.begin()
            self.next = 1
            return 0
        if not self.forced:
            due = f"{self.times[self.next]:g}" if self.next < len(self.times) - 1 else "no more"
            self.note(
                f"the model was called at {float(time):g} where {due} was due: from here on every "
                "call is run"
            )
            self.forced = True
        return None

    def near(self, time: Any, n: int) -> bool:
        """Whether a time is that of stage n, as far as its own precision goes."""
        given, planned = float(time), self.times[n]
        rounding = 0.0
        if isinstance(time, Tensor) and time.is_floating_point():
            rounding = torch.finfo(time.dtype).eps * max(1.0, abs(planned))
        return abs(given - planned) <= max(rounding, 1e-3 * abs(self.times[n + 1] - planned))

    def detect(self, n: int, forwards: int) -> None:
        """Another number of network calls than at the exact stage before is another regime."""
        grid = self.run.plan.grid
        planned = n in {grid.kept[start] for start in grid.regimes}
        if self.last_forwards not in (None, forwards) and not planned:
            self.regime += 1
        self.run.queries(n, regime=self.regime)
        self.last_forwards = forwards

    def note(self, reason: str) -> None:
        if all(reason != known for _, known in self.notes):
            self.notes.append((max(0, self.next - 1), reason))

    @property
    def report(self) -> Report:
        report = self.run.report
        return replace(
            report,
            extra=(*report.extra, *self.elsewhere),
            reasons=tuple(sorted([*report.reasons, *self.notes])),
            forwards=self.forwards if self.counts else None,
        )


class Wrapped:
    """A function some of whose calls are predicted; each thread has runs of its own.

    `report` is that of this thread's latest run; in a thread that made none, of the latest of all.
    """

    def __init__(self, inner: Callable[..., Any], *stages: Any):
        self.inner, self.make = inner, partial(Stages, *stages)
        self.each: WeakKeyDictionary[Thread, Stages] = WeakKeyDictionary()
        self.latest = self.make()

    @property
    def stages(self) -> Stages:
        """Those of this thread."""
        thread = current_thread()
        if thread not in self.each:
            self.each[thread] = self.make()
        self.latest = self.each[thread]
        return self.latest

    @property
    def report(self) -> Report:
        return self.each.get(current_thread(), self.latest).report

    def __getattr__(self, name: str) -> Any:  # callbacks of torchdiffeq, sigma_min of k-diffusion …
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def switches(inside: Sequence[bool]) -> list[int]:
    """The stages at which a condition on the stage turns true or false."""
    return [n for n in range(1, len(inside)) if inside[n] != inside[n - 1]]
