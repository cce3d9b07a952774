"""Session: one loop over a scheduler, whose host says which stage it is in and what x is.

Serving engines hand all of that over, so nothing has to be found out about the loop. What a request
needs is here and nowhere else: requests that run at the same time share no state.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..learning.learning import Seat
from ..plan import Plan
from ..report import Report
from ..run import Run
from .correcting import Correcting
from .hooks import Hooks
from .options import plan_of, plan_without, warn
from .scheduling import read_grid

logger = logging.getLogger("geoshrink")
SLOT = (0, 0)  # there is one scheduler, and one step in a stage


class Session:
    """
    scheduler   before its first step
    times       the timesteps that the host goes through
    options     of accelerate(), checked
    settings    what the host gives step() besides output, timestep and sample
    regimes     the stages at which guidance or expert changes
    group       the processes that hold a shard of the output each
    seat        where it learns
    hooks       what holds the scheduler; the caller lifts them, however the loop ends
    """

    def __init__(
        self,
        scheduler: Any,
        times: Sequence[Any] | Tensor,
        options: Mapping[str, Any],
        *,
        settings: Mapping[str, Any] | None = None,
        regimes: Sequence[int] = (),
        group: Any = None,
        seat: Seat | None = None,
        hooks: Hooks | None = None,
    ):
        self.scheduler, self.options = scheduler, dict(options)
        self.settings = dict(settings or {})
        self.group, self.seat = group, seat
        self.hooks = Hooks() if hooks is None else hooks
        self.correcting = Correcting(self.options)
        self.notes: list[tuple[int, str]] = []
        self.stages, self.next, self.forwards = len(times), 0, 0
        self.forced = False
        self.exact: list[int] = []  # stages that the run does not see
        self.planned = set(regimes)
        self.regime, self.key = 0, None
        self.moved: tuple[Tensor, Tensor] | None = None  # x as the host has it, x to step from
        self.run = self.make_run(times)
        self.hooks.place(scheduler, "step", self.on_step)

    def make_run(self, times: Sequence[Any] | Tensor) -> Run:
        scheduler, name = self.scheduler, type(self.scheduler).__name__
        order = max(1, getattr(scheduler, "order", 1))
        reason = f"{name} takes two outputs a stage" if order > 1 else None
        begin = getattr(scheduler, "_begin_index", None)
        if isinstance(begin, int) and float(scheduler.timesteps[begin]) != float(times[0]):
            reason = reason or f"{name} begins at another timestep than the host"
        told: dict[str, Any] = {"counted": self.stages, "regimes": sorted(self.planned)}
        grid, reason = read_grid(scheduler, 1, times[0], reason=reason, **told)
        if grid.given != self.stages:
            reason = reason or f"the host makes {self.stages} steps, and {name} has {grid.given}"
        plan, note = plan_of(grid, self.options, reason, scheduler)
        self.forced = note is not None
        if note is not None:
            self.notes.append((0, note))
            return Run(plan)
        run = Run(plan, learn=self.seat, group=self.group)
        self.correcting.meet(scheduler)
        self.correcting.learn(run, scheduler, order, times[0], self.settings)
        if plan.aim is not None and not run.levels:
            why = f"target_db={plan.aim.db:g} needs to know the noise levels of {name}"
            self.notes.append((0, f"{why}: every stage is queried"))
            self.forced = True
            return Run(Plan.of(grid))
        if plan.correct is not None and not run.corrects:
            return self.without_correction(run)
        return run

    def without_correction(self, run: Run) -> Run:
        plan = plan_without(run.plan, self.options, self.scheduler, None, run.uncorrected)
        if plan is None:
            return run
        plain = Run(plan, learn=self.seat, group=self.group)
        plain.know(None, run.levels)
        return plain

    def force(self, n: int, why: str) -> None:
        """From here on every stage is queried."""
        if not self.forced:
            self.notes.append((n, f"{why}: every stage is queried"))
        if n == 0:  # nothing was predicted
            self.run = Run(Plan.of(self.run.plan.grid))
        self.forced = True

    # -- what the host does

    def output(
        self,
        n: int,
        evaluate: Callable[[], Any],
        x: Any,
        regime: Hashable = None,
        forwards: int = 1,
    ) -> Any:
        """The output of stage n, to be given to step() with the same x.

        regime     what guidance, expert and conditioning are now
        forwards   how often evaluate() calls a network
        """
        run, self.moved = self.run, None
        if n != self.next:
            self.force(n, f"stage {n} was called where {self.next} was due")
        self.next = n + 1
        if self.forced:
            self.forwards += forwards
            return self.count(n, evaluate())
        self.check_state(n, x)
        if not run.queries(n, x, regime=self.count_regimes(n, regime)):
            return run.predict(n, x)
        self.forwards += forwards
        return self.observe(n, evaluate(), x)

    def count_regimes(self, n: int, key: Hashable) -> int:
        """Changes that the plan does not know."""
        if n and key != self.key and n not in self.planned:
            self.regime += 1
        self.key = key
        return self.regime

    def check_state(self, n: int, x: Any) -> None:
        """A host that changes x behind every step shows it at the first: no cell is corrected."""
        if not (n and self.run.corrects):
            return
        why = self.correcting.check(SLOT, self.run, x)
        if why is None or n > 1:
            return
        why = f"cells are not corrected: {why}"
        plan = plan_without(self.run.plan, self.options, self.scheduler, None, why)
        if plan is not None:
            self.run.go_on_with(plan)

    def observe(self, n: int, output: Any, x: Any) -> Any:
        """What step() receives at an anchor."""
        try:
            if not isinstance(output, Tensor) or not isinstance(x, Tensor):
                raise TypeError(f"the output is a {type(output).__name__}, not one tensor")
            if output.shape != x.shape:
                raise ValueError(f"the output is {tuple(output.shape)}, and x is {tuple(x.shape)}")
            if not self.run.corrects:
                return self.run.observe(n, output, x)
            received, moved = self.correcting.move(self.scheduler, self.run, n, output, x)
        except (TypeError, ValueError) as error:
            self.force(n, warn(error))
            return self.count(n, output)
        self.moved = None if moved is x else (x, moved)
        return received

    def count(self, n: int, output: Any) -> Any:
        """An output that nothing is predicted from."""
        if self.run.plan.exact:
            self.run.queries(n)
            return self.run.observe(n, output)
        self.exact.append(n)
        return output

    def give_in(self, n: int, error: Exception) -> None:
        """A mistake of ours: what is left of the run is the host's own."""
        self.moved, self.next = None, n + 1
        self.force(n, f"{type(error).__name__}: {error}")
        self.exact.append(n)
        logger.warning("geoshrink: a run is exact from stage %d on: %s", n, error, exc_info=True)

    def on_step(self, scheduler: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        if self.forced:
            return original(*args, **kwargs)
        names = list(inspect.signature(original).parameters)
        given = {**dict(zip(names, args)), **kwargs}
        x, moved = given.get("sample"), self.moved
        if moved is not None and moved[0] is x:
            x = moved[1]
            args = tuple(x if k == "sample" else v for k, v in zip(names, args))
            kwargs = {k: x if k == "sample" else v for k, v in kwargs.items()}
        elif moved is not None:
            self.force(self.next - 1, "step() was given another x than the output was made from")
        self.moved = None
        result = original(*args, **kwargs)
        self.correcting.stepped(SLOT, x, result)
        return result

    def close(self) -> Report:
        """Lets go of scheduler and tensors. Reads the device."""
        self.hooks.lift()
        self.moved, self.correcting.state = None, {}
        report = self.run.report
        self.run.reset()
        notes = list(self.notes)
        if self.next < self.stages:
            notes.append((self.next, "the loop has come no further"))
        number = self.run.plan.grid.effective
        reasons = {*report.reasons, *((number.get(n, n), why) for n, why in notes)}
        return replace(
            report,
            extra=(*report.extra, *(number.get(n, n) for n in self.exact)),
            reasons=tuple(sorted(reasons)),
            forwards=self.forwards,
        )
