"""The seam between a denoiser and a scheduler, shared by every host that has both.

The lasting hooks sit on the scheduler instance (set_timesteps and step) and on the way into the
host's method that loops. While a loop runs, the denoisers are intercepted too, outside every other
hook, so that a skipped stage moves no offloaded weights. A loop belongs to its thread, and ends
with the host's method by whatever way that is left. What happens in it is loop.py's business.
"""

from __future__ import annotations

import inspect
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from torch import nn

from ..blocks import Blocks
from ..grid import Grid
from ..pace import SAID
from ..plan import Plan
from ..purpose import Purpose
from ..report import Report
from .caches import check_caches, check_hooks
from .entry import enter, leave, seam_of
from .handle import KEPT
from .hooks import LOCK, Hooks, entrance, hook_of
from .loop import Loop
from .scheduling import check_step
from .signatures import shapes
from .stack import caller, running, variables_of

logger = logging.getLogger("geoshrink")
MEASURED = ("learned", "planned")  # how the mesh of a plan begins that outputs had a say in


class Reader(Protocol):
    """What the seam asks of a kind of hosts. `method` is the name of the one that loops."""

    @property
    def method(self) -> str: ...
    def is_host(self, candidate: Any) -> bool: ...
    def parts(self, host: Any) -> dict[str, Any]: ...
    def find_schedulers(self, host: Any) -> list[Any]: ...
    def named_schedulers(self, host: Any) -> dict[str, Any]: ...
    def find_denoisers(self, host: Any) -> list[nn.Module]: ...
    def blocks_of(self, scheduler: Any) -> Blocks | None: ...
    def grid_of(
        self, scheduler: Any, host: Any, order: int, timestep: Any
    ) -> tuple[Grid, str | None]: ...


class Asked:
    """What the runs of a thread were asked for, and their reports; without options: exact runs."""

    def __init__(self, options: dict[str, Any] | None):
        self.options = options
        self.reports: list[Report] = []


class Here(threading.local):
    """What one thread does."""

    asked: Asked | None = None
    loop: Loop | None = None
    bar: Any = None
    inside = False  # the host's own method is on the stack
    made = 0  # reports
    teaching = False  # a loop of the host's call that runs now is exact, to learn from it


class Seam:
    """One host's schedulers and denoisers, and the loops that run over them now."""

    def __init__(
        self,
        host: Any,
        schedulers: Sequence[Any],
        denoisers: Sequence[nn.Module],
        reader: Reader,
        options: dict[str, Any],
        find: Callable[[Any], list[nn.Module]],
    ):
        self.host = weakref.ref(host)
        self.schedulers = list(schedulers)
        self.own = same(self.schedulers, reader.find_schedulers(host))  # not named by the user
        self.attached = list(denoisers)  # a run may go over some of them only, or over later ones
        self.reader, self.usual, self.find = reader, options, find
        self.here, self.live = Here(), []
        self.removed = False
        self.waits = False  # runs are left alone but for those that ask
        self.warned = False  # of a doubtful run
        self.finished: deque[Report] = deque(maxlen=KEPT)
        self.latest: tuple[Plan | None, Purpose | None] = None, None  # of the latest loop
        self.seats: list[tuple[Any, Hooks]] = []

    def attach(self) -> None:
        """Hooks the schedulers; what we had attached to this host before is removed."""
        host = self.host()
        if self.is_running(host):
            raise RuntimeError(
                f"{type(host).__name__} is in the middle of a run: accelerate it before"
            )
        check_caches(self.attached)
        check_hooks(self.attached)
        for other in self.others():
            if other.host() is host:
                other.remove()
        try:
            self.sit()
            enter(host, self)
        except BaseException:
            self.remove()
            raise

    @property
    def options(self) -> dict[str, Any]:
        """Those of this thread's runs."""
        asked = self.here.asked
        return self.usual if asked is None or asked.options is None else asked.options

    @property
    def idle(self) -> bool:
        """Whether this thread's runs are to be left alone."""
        asked = self.here.asked
        return self.removed or (self.waits if asked is None else asked.options is None)

    @contextmanager
    def asking(self, options: dict[str, Any] | None) -> Iterator[list[Report]]:
        """Runs of this thread that begin in here have these options, None: are left alone. Their
        reports come into the list.
        """
        asked, outer = Asked(options), self.here.asked
        try:
            self.here.asked = asked
            yield asked.reports
        finally:
            self.here.asked = outer

    def others(self) -> list[Seam]:
        """The seams that the host and its schedulers are under."""
        hooks = [hook_of(scheduler, "set_timesteps") for scheduler in self.schedulers]
        found = [handler.__self__ for h in hooks if h is not None for handler in h.users.values()]
        own = seam_of(self.host())
        return found if own is None else [*found, own]

    def sit(self) -> None:
        for scheduler in self.schedulers:
            if all(scheduler is not seat for seat, _ in self.seats):
                hooks = Hooks(follows=lambda: self.running() is not None)
                self.seats.append((scheduler, hooks))
                hooks.place(scheduler, "set_timesteps", self.on_set_timesteps)
                hooks.place(scheduler, "step", self.on_step)

    def remove(self) -> None:
        """At once, but for loops of other threads: those are exact from their next step on."""
        self.removed = True
        leave(self.host(), self)
        for loop in list(self.live):
            between = loop.thread is threading.current_thread() and loop.stepped
            if between or loop.finished or not loop.on_stack():
                self.close(loop)
        self.rise()

    def rise(self) -> None:
        """Leaves the schedulers that are not ours any more, once no loop needs them."""
        with LOCK:
            stay = [] if self.removed else [*map(id, self.schedulers)]
            if all(loop.finished for loop in self.live):
                for scheduler, hooks in self.seats:
                    if id(scheduler) not in stay:
                        hooks.lift()
                self.seats = [seat for seat in self.seats if seat[1].placed]

    def reports(self) -> list[Report]:
        mine = [loop for loop in self.live if loop.finished or loop is self.here.loop]
        now = [loop.report() for loop in mine]
        return [*self.finished, *(report for report in now if report is not None)]

    @property
    def plan(self) -> Plan | None:
        """That of the latest loop that was accelerated, with what is known of that run if it had no
        purpose yet: of the grid alone, unless outputs of the model had a say in it.
        """
        plan, facts = self.latest
        if plan is None or plan.purpose or facts is None:
            return plan
        measured = plan.mesh.startswith(MEASURED) or SAID in plan.mesh
        return replace(plan, purpose=facts if measured else facts.of_grid())

    @property
    def loop(self) -> Loop | None:  # of this thread
        loop = self.here.loop
        return None if loop is None or loop.over else loop

    # -- what the hooks do

    def on_run(self, host: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        """The host's method that loops. Whatever was begun in it ends with it."""
        if self.idle or host is not self.host():
            return call(*args, **kwargs)
        here = self.here
        if self.loop is not None and not self.loop.on_stack():
            self.close(self.loop)  # it was left
        outer = here.loop, here.bar, here.inside
        here.teaching = here.teaching and here.inside
        try:
            here.loop, here.bar, here.inside = None, None, True
            made, reason = here.made, self.find_schedulers(host)
            result = call(*args, **kwargs)
            if inspect.isgenerator(result):  # it has not begun
                return self.drive(result)
            if self.loop is not None:
                self.close(self.loop)
            if here.made == made and not (self.removed or inspect.iscoroutine(result)):
                self.tell_plain(reason)
            return result
        finally:  # what an interrupt breaks off in the first is made good in the second
            try:
                self.back_to(*outer)
            finally:
                self.back_to(*outer)

    def drive(self, steps: Any) -> Any:
        """The same for a method that yields."""
        try:
            return (yield from steps)
        finally:
            if self.loop is not None:
                self.close(self.loop)

    def back_to(self, outer: Loop | None, bar: Any, inside: bool) -> None:
        loop = self.here.loop
        if loop is not None and loop is not outer:
            self.end(loop)
        self.here.loop, self.here.bar, self.here.inside = outer, bar, inside

    def find_schedulers(self, host: Any) -> str | None:
        """Moves to the schedulers that the host has now; why that cannot be, or None."""
        found = self.reader.find_schedulers(host) if self.own else self.schedulers
        if same(found, self.schedulers):
            return None
        try:
            for scheduler in found:
                check_step(scheduler)
        except TypeError as error:
            return str(error)
        self.schedulers = found
        self.sit()
        self.rise()
        return None

    def tell_plain(self, reason: str | None) -> None:
        names = " and ".join(type(scheduler).__name__ for scheduler in self.schedulers)
        reason = f"the run was not accelerated: {reason or f'{names} was not stepped'}"
        logger.warning("geoshrink: %s", reason)
        self.keep(Report("none", 0, (), (), (), ((0, reason),), 0, None, 0.0))

    def keep(self, report: Report) -> None:
        self.finished.append(report)
        if self.here.asked is not None:
            self.here.asked.reports.append(report)

    def on_set_timesteps(
        self, scheduler: Any, original: Callable, args: tuple, kwargs: dict
    ) -> Any:
        result = original(*args, **kwargs)
        host = self.running()
        if self.idle or not self.claims(host, scheduler):
            return result  # somebody else's loop over our scheduler, or over a copy of it
        if self.loop is None or self.loop.rounds:
            self.begin(host)
        assert self.loop is not None
        self.loop.add_scheduler(scheduler)
        return result

    def on_step(self, scheduler: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        loop = self.loop
        if loop is None or not loop.rounds or not self.mine(loop):
            return original(*args, **kwargs)
        try:
            result = loop.step(scheduler, original, args, kwargs)
        except BaseException:
            self.end(loop)
            raise
        if self.removed:
            self.close(loop)
        return result

    def on_denoiser(self, module: nn.Module, call: Callable, args: tuple, kwargs: dict) -> Any:
        loop = self.loop
        if loop is None:
            return call(*args, **kwargs)
        if loop.within:  # a denoiser that is called by another
            return loop.forward(call, args, kwargs)
        if not self.mine(loop) or not loop.expects(caller()):
            if not loop.on_stack():
                self.close(loop)  # it was left
            return call(*args, **kwargs)
        try:
            return loop.evaluate(module, call, args, kwargs)
        except BaseException:
            self.end(loop)
            raise

    def on_progress_bar(self, bar: Any) -> Any:
        self.here.bar = bar
        return bar

    def show(self, exact: int) -> None:
        """The host's own progress bar says how many stages were queried."""
        if hasattr(self.here.bar, "set_postfix_str"):
            self.here.bar.set_postfix_str(f"{exact} exact", refresh=False)

    # -- whose loop is it

    def is_host(self, candidate: Any) -> bool:
        loop = self.loop
        if loop is not None and loop.counted and candidate is loop.host():
            return True  # known already: looking at its components takes longer than a prediction
        return self.reader.is_host(candidate)

    def running(self) -> Any:
        """The innermost host that loops now, or None."""
        return running(self.is_host, self.reader.method)

    def is_running(self, host: Any) -> bool:
        found = running(lambda candidate: candidate is host, self.reader.method)
        return host is not None and found is not None

    def owned_by(self, host: Any) -> list[tuple[str, Any]]:
        """(name, scheduler) of those of a host's schedulers that we are attached to."""
        own = {id(scheduler) for scheduler in self.schedulers}
        found = self.reader.named_schedulers(host)
        return [(name, scheduler) for name, scheduler in found.items() if id(scheduler) in own]

    def claims(self, host: Any, scheduler: Any) -> bool:
        """Whether a loop that begins now is ours: one of our host's, or of nobody's else."""
        if host is not None and host is self.host():
            return True
        if host is not None and seam_of(host) is not None:
            return False
        hook = hook_of(scheduler, "set_timesteps")
        if hook is not None and [*hook.users.values()][-1:] != [self.on_set_timesteps]:
            return False  # the latest of several that share it
        if host is None:
            return self.host() is not None and any(scheduler is own for own in self.schedulers)
        return self.shares_denoisers(host)

    def shares_denoisers(self, host: Any) -> bool:
        mine = self.host()
        own = {id(m) for m in [*self.attached, *([] if mine is None else self.find(mine))]}
        return any(id(module) in own for module in self.reader.find_denoisers(host))

    def mine(self, loop: Loop) -> bool:
        """Whether the pipeline that runs innermost is the loop's, still with our scheduler."""
        host = self.running()
        if not loop.counted:
            return host is None
        return host is loop.host() and loop.has_scheduler_of(host)

    # -- the loop's beginning and end

    def begin(self, host: Any) -> None:
        """A loop of this thread. The user may have swapped or compiled the denoisers."""
        gone = [loop for loop in self.live if not loop.thread.is_alive()]
        for loop in (*gone, *([] if self.loop is None else [self.loop])):
            self.close(loop)
        owner = self.host() if host is None else host
        denoisers = self.find(owner)
        check_caches(denoisers)
        loop = Loop(self, owner, host is not None, denoisers)
        try:
            with LOCK:
                self.here.loop, self.live = loop, [*self.live, loop]
            for each, name in self.entrances(owner, denoisers):
                loop.hooks.place(each, name, self.on_denoiser)
        except BaseException:
            self.end(loop)
            raise

    def entrances(self, host: Any, denoisers: Sequence[nn.Module]) -> list[tuple[Any, str]]:
        """(object, method) of every way to a denoiser. One may lead into another."""
        return [(module, entrance(module)) for module in denoisers]

    def signature(self, args: tuple, kwargs: dict) -> Hashable:
        """What is the same in the arguments of a denoiser's calls in all stages of a regime."""
        named = {name: value for name, value in kwargs.items() if not name.startswith("timestep")}
        return shapes((args, named), dtypes=False)

    def variables(self, host: Any) -> dict[str, Any]:
        """Those of the host's method that loops, by which settings are told apart."""
        return variables_of(host, self.reader.method)

    def close(self, loop: Loop) -> None:
        """Keeps the report of a loop that has ended, and lets everything else of it go."""
        try:
            if loop.finished:
                loop.tell()
            report = loop.report()
            if report is None:
                return
            if not loop.refused:
                self.latest = loop.planned(), loop.facts
            if loop.thread is threading.current_thread():
                self.keep(report)
            else:
                self.finished.append(report)
            self.here.made += 1
        finally:
            self.end(loop)

    def end(self, loop: Loop) -> None:
        loop.release()
        with LOCK:
            self.live = [other for other in self.live if other is not loop]
        self.rise()
        loop.over = True
        if self.here.loop is loop:  # last: by this an interrupted end() is known, and made again
            self.here.loop = None


def same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return [*map(id, some)] == [*map(id, others)]
