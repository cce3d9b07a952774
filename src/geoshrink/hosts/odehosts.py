"""Hosts that call torchdiffeq's odeint.

They import the function into their module, so it is replaced there. The replacement looks at who
calls it: only calls by a host that was handed to us are accelerated, all others go on to
torchdiffeq. Frames that a host pads or overwrites afterwards are left out of the statistics.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..learning.fingerprint import modules_in
from ..report import Report
from .handle import KEPT, Handle, announced
from .hooks import Hooks, hook_of
from .host import Host, is_a
from .odeint import Integrated, times_of
from .options import check_options, plan_of
from .seats import seat_of, words_of
from .stack import stack


def methods_of(kind: type) -> dict[str, Callable]:
    """The methods of a class whose code calls odeint, where that is torchdiffeq's."""
    found: dict[str, Callable] = {}
    for base in reversed(kind.__mro__):
        for name, method in vars(base).items():
            plain = inspect.unwrap(method) if callable(method) else None
            if inspect.isfunction(plain) and "odeint" in plain.__code__.co_names:
                symbol = plain.__globals__.get("odeint")
                home = getattr(inspect.unwrap(symbol), "__module__", "") if symbol else ""
                if str(home).startswith("torchdiffeq"):
                    found[name] = plain
    return found


@dataclass(frozen=True)
class Integrating:
    """Hosts of a class, by its name, that call odeint in a method; None: of any class.

    real    the variable of the method that says which frames are no padding
    given   the variable that says which frames are known and overwritten
    """

    kind: str | None = None
    method: str = ""
    real: str = ""
    given: str = ""

    def knows(self, host: Any) -> bool:
        return bool(methods_of(type(host))) if self.kind is None else is_a(host, self.kind)

    def attach(self, host: Any, budget: int | None = None, **options: Any) -> Handle:
        options = check_options(budget, options)
        methods = methods_of(type(host))
        if self.kind is not None and self.method not in methods:
            raise TypeError(
                f"{type(host).__name__} cannot be accelerated: expected {self.method} to call "
                f"torchdiffeq's odeint, found {', '.join(methods) or 'no method'} that does; wrap "
                "its function with geoshrink.hosts.odeint.wrap"
            )
        hooks = Hooks()
        attached = Attached(weakref.ref(host, lambda _: hooks.lift()), options, self)
        for name in sorted({method.__module__ for method in methods.values()}):
            hook = hook_of(sys.modules[name], "odeint")
            for user, handler in list(hook.users.items()) if hook is not None else ():
                if handler.__self__.host() is host:  # one that is accelerated again
                    user.lift()
            hooks.place(sys.modules[name], "odeint", attached.on_odeint)
        return Handle(lambda: list(attached.reports), hooks.lift, learning=options.get("learn"))

    def mask(self, variables: dict, y0: Any) -> tuple[Tensor | None, bool]:
        """(which coordinates count, whether the host says so)."""
        if self.kind is None or not isinstance(y0, Tensor):
            return None, True
        if self.real not in variables:
            return None, False
        mask, fixed = variables[self.real], variables.get(self.given)
        seen = None if mask is None else mask[: len(y0), : y0.shape[1], None].bool()
        if isinstance(fixed, Tensor):
            seen = ~fixed if seen is None else seen & ~fixed
        return seen, True


class Attached:
    """One accelerated host."""

    def __init__(self, host: weakref.ref, options: dict[str, Any], loop: Integrating):
        self.host, self.options, self.loop = host, options, loop
        self.reports: deque[Report] = deque(maxlen=KEPT)

    def on_odeint(self, module: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        variables, host = next(stack()).f_locals, self.host()
        if host is None or variables.get("self") is not host:
            return original(*args, **kwargs)
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        func, y0, t = (given.pop(name) for name in ("func", "y0", "t"))
        how = [given.get(name) for name in ("method", "options", "event_fn")]
        times, reason = times_of(func, y0, t, *how)
        data = 1.0 if times[0] < times[-1] == 1 else None
        plan, note = plan_of(Grid.of(times, data=data), self.options, reason)
        mask, found = self.loop.mask(variables, y0)
        how = note, mask, torch.float32, False, "euler"
        learn = seat_of(self.options, modules_in(host), words_of(variables, vars(host)))
        wrapped = Integrated(func, plan, times, *how, learn)
        if not found:
            wrapped.stages.note("no padding mask was found: all frames count")
        result = original(wrapped, y0, t, **given)
        self.reports.append(announced(wrapped.report))
        return result


ANY = Integrating()
HOST = Host("torchdiffeq", ANY.knows, ANY.attach, call=None)
