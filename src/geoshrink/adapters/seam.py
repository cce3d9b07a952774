"""The seam between a denoiser and a scheduler, shared by every host that has both.

The only lasting hook sits on the scheduler instance (set_timesteps and step). While a loop runs,
the denoisers are intercepted too, outside every other hook, so that a skipped stage moves no
offloaded weights. What happens in a loop is loop.py's business.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Protocol

from torch import nn

from ..blocks import Blocks
from ..grid import Grid
from ..report import Report
from .loop import Loop
from .stack import caller, running
from .telling import LAST


class Reader(Protocol):
    """What an adapter knows of its hosts. `method` is the name of the one that loops."""

    @property
    def method(self) -> str: ...
    def is_host(self, candidate: Any) -> bool: ...
    def parts(self, host: Any) -> dict[str, Any]: ...
    def find_schedulers(self, host: Any) -> list[Any]: ...
    def named_schedulers(self, host: Any) -> dict[str, Any]: ...
    def find_denoisers(self, host: Any) -> list[nn.Module]: ...
    def knows_data(self, scheduler: Any) -> bool: ...
    def blocks_of(self, scheduler: Any) -> Blocks | None: ...
    def grid_of(
        self, scheduler: Any, host: Any, order: int, timestep: Any
    ) -> tuple[Grid, str | None]: ...


class Seam:
    """One host's schedulers and denoisers, and the loop that runs over them now."""

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
        self.schedulers, self.denoisers = list(schedulers), list(denoisers)
        self.attached = list(denoisers)  # a run may go over some of them only, or over later ones
        self.reader, self.options, self.find = reader, options, find
        self.loop: Loop | None = None
        self.bar: Any = None
        self.removed = False
        self.finished: list[Callable[[], Report | None]] = []
        self.saved: list[tuple[Any, str, Any]] = []
        self.intercepted: list[tuple[nn.Module, str, Any]] = []

    def attach(self) -> None:
        """Hooks the schedulers; what we had attached to them before is removed."""
        if self.is_running(self.host()):
            raise RuntimeError(
                f"{type(self.host()).__name__} is in the middle of a run: accelerate it before"
            )
        self.check_caches()
        self.check_hooks()
        for scheduler in self.schedulers:
            before = getattr(scheduler.__dict__.get("step"), "seam", None)
            if before is not None:
                before.remove()
        for scheduler in self.schedulers:
            self.hook(scheduler, "set_timesteps", self.on_set_timesteps)
            self.hook(scheduler, "step", self.on_step)
        host = self.host()
        if callable(getattr(type(host), "progress_bar", None)):
            self.hook(host, "progress_bar", self.on_progress_bar)
        if callable(getattr(type(host), LAST, None)):
            self.hook(host, LAST, self.on_end)

    def hook(self, owner: Any, name: str, handler: Callable) -> None:
        before = owner.__dict__.get(name)
        self.saved.append((owner, name, before))
        owner.__dict__[name] = bound(self, owner, name, before, handler)

    def remove(self) -> None:
        self.close()
        self.removed, self.bar = True, None
        for owner, name, before in self.saved:
            owner.__dict__.pop(name, None)
            if before is not None:
                owner.__dict__[name] = before
        self.saved = []

    def reports(self) -> list[Report]:
        now = [self.loop.report] if self.loop is not None else []
        found = [report() for report in (*self.finished, *now)]
        return [report for report in found if report is not None]

    # -- what the hooks do

    def on_set_timesteps(
        self, scheduler: Any, original: Callable, args: tuple, kwargs: dict
    ) -> Any:
        result = original(*args, **kwargs)
        host = self.running()
        if host not in (None, self.host()) and not self.shares_denoisers(host):
            return result  # somebody else's loop over our scheduler, or over a copy of it
        if self.loop is None or self.loop.rounds:
            self.close()
            if host is not None:  # the user may have swapped or compiled them
                self.denoisers = self.find(host)
            self.check_caches()
            self.loop = Loop(self, self.host() if host is None else host, host is not None)
            self.intercept()
        self.loop.add_scheduler(scheduler)
        return result

    def on_step(self, scheduler: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        loop = self.loop
        if loop is None or not loop.rounds or not self.mine(loop):
            return original(*args, **kwargs)
        try:
            return loop.step(scheduler, original, args, kwargs)
        except BaseException:
            self.abort()
            raise

    def on_denoiser(self, module: nn.Module, call: Callable, args: tuple, kwargs: dict) -> Any:
        loop = self.loop
        if loop is None or not self.mine(loop) or not loop.expects(caller()):
            return call(*args, **kwargs)
        try:
            return loop.evaluate(module, call, args, kwargs)
        except BaseException:
            self.abort()
            raise

    def on_progress_bar(self, host: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        self.bar = original(*args, **kwargs)
        return self.bar

    def on_end(self, host: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        """A pipeline's last act: what was done is told once the device has nothing left to do, and
        a loop that has not begun will not begin any more.
        """
        loop = self.loop
        if loop is not None and not loop.rounds and self.mine(loop):
            self.abort()
        result = original(*args, **kwargs)
        if loop is not None and loop.finished and host is loop.host():
            loop.tell()
        return result

    def show(self, exact: int) -> None:
        """The host's own progress bar says how many stages were queried."""
        if hasattr(self.bar, "set_postfix_str"):
            self.bar.set_postfix_str(f"{exact} exact", refresh=False)

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

    def check_caches(self) -> None:
        """Two accelerators over one model would each spoil what the other measures."""
        for module in self.denoisers:
            if getattr(getattr(module, "_orig_mod", module), "_is_cached", False):
                raise cached(module, "cache_dit.disable_cache(pipe)")
            kind = type(getattr(module, "_cache_config", None)).__name__
            if getattr(module, "is_cache_enabled", False) and kind != "TextKVCacheConfig":
                raise cached(module, "its disable_cache()")

    def check_hooks(self) -> None:
        """The same for a cache that was applied by hand. Takes a millisecond on a large model, so
        in a run it is done behind the first call.
        """
        for module in self.denoisers:
            if caching(module):
                raise cached(module, "its disable_cache()")

    # -- the loop's beginning and end

    def close(self) -> None:
        """Keeps the report of the loop that has ended, and lets everything else of it go."""
        loop = self.loop
        if loop is not None and loop.finished:
            loop.tell()
            self.finished.append(loop.report)  # made when asked for: the next run begins now
        elif loop is not None and (report := loop.report()) is not None:
            self.finished.append(lambda: report)
        self.abort()

    def abort(self) -> None:
        self.release()
        self.loop = None

    def intercept(self) -> None:
        """Puts the denoisers' calls through us, outside hooks, offloading and compilation."""
        for module in self.denoisers:
            name = "_call_impl"
            if getattr(module, "_compiled_call_impl", None) is not None:
                name = "_compiled_call_impl"
            self.intercepted.append((module, name, module.__dict__.get(name)))
            module.__dict__[name] = through(self.on_denoiser, module, getattr(module, name))

    def release(self) -> None:
        if self.loop is not None:
            self.loop.memory.release()
        for module, name, before in reversed(self.intercepted):
            module.__dict__.pop(name, None)
            if before is not None:
                module.__dict__[name] = before
        self.intercepted = []


def cached(module: nn.Module, remedy: str) -> ValueError:
    return ValueError(
        f"{type(module).__name__} has a cache enabled; use one or the other: call {remedy} first, "
        "or remove() geoshrink"
    )


def caching(module: nn.Module) -> bool:
    """Whether a hook of one of diffusers' caches is in a module.

    The cache of text keys is exact and may stay: nothing is predicted by it.
    """
    parts = [module]
    for part in parts:  # not by modules() and getattr, which take four times as long
        parts += [child for child in part._modules.values() if child is not None]
        for name in getattr(part.__dict__.get("_diffusers_hook"), "hooks", ()):
            predicts = any(word in name for word in ("cache", "broadcast", "fbc_"))
            if predicts and "text_kv" not in name:
                return True
    return False


def bound(seam: Seam, owner: Any, name: str, before: Any, handler: Callable) -> MethodType:
    """The owner's own method through a hook, its signature kept; a copy is its own master."""
    plain = getattr(type(owner), name)

    @functools.wraps(plain)
    def method(this: Any, *args: Any, **kwargs: Any) -> Any:
        original = before if before is not None and this is owner else MethodType(plain, this)
        if seam.removed:
            return original(*args, **kwargs)
        return handler(this, original, args, kwargs)

    method.seam = seam  # type: ignore[attr-defined]
    return MethodType(method, owner)


def through(handler: Callable, module: nn.Module, call: Callable) -> Callable:
    def intercepted(*args: Any, **kwargs: Any) -> Any:
        return handler(module, call, args, kwargs)

    return intercepted
