"""Hosts that call torchdiffeq's odeint: HY-Motion's MotionFlowMatching, F5-TTS's CFM, and others.

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
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..report import Report
from .handle import KEPT, Handle
from .hooks import Hooks, hook_of
from .odeint import Wrapped, times_of
from .options import check_options
from .stack import stack
from .stages import announced, plan_of

#: The method with the loop; its variable that says which frames are real, and the one that says
#: which are given.
LOOPS = {
    "MotionFlowMatching": ("generate", "x_mask_temporal", None),
    "CFM": ("sample", "mask", "cond_mask"),
}


def knows(host: Any) -> bool:
    return kind_of(host) is not None or bool(methods_of(type(host)))


def kind_of(host: Any) -> str | None:
    return next((k.__name__ for k in type(host).__mro__ if k.__name__ in LOOPS), None)


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


def attach(host: Any, budget: int | None = None, **options: Any) -> Handle:
    options = check_options(budget, options)
    methods, kind = methods_of(type(host)), kind_of(host)
    if kind is not None and LOOPS[kind][0] not in methods:
        raise TypeError(
            f"{type(host).__name__} cannot be accelerated: expected {LOOPS[kind][0]} to call "
            f"torchdiffeq's odeint, found {', '.join(methods) or 'no method'} that does; wrap its "
            "function with geoshrink.hosts.odeint.wrap"
        )
    hooks = Hooks()
    attached = Attached(weakref.ref(host, lambda _: hooks.lift()), options, kind)
    for name in sorted({method.__module__ for method in methods.values()}):
        hook = hook_of(sys.modules[name], "odeint")
        for user, handler in list(hook.users.items()) if hook is not None else ():
            if handler.__self__.host() is host:  # one that is accelerated again
                user.lift()
        hooks.place(sys.modules[name], "odeint", attached.on_odeint)
    return Handle(lambda: list(attached.reports), hooks.lift)


class Attached:
    """One accelerated host."""

    def __init__(self, host: weakref.ref, options: dict[str, Any], kind: str | None):
        self.host, self.options, self.kind = host, options, kind
        self.reports: deque[Report] = deque(maxlen=KEPT)

    def on_odeint(self, module: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        variables, host = next(stack()).f_locals, self.host()
        if host is None or variables.get("self") is not host:
            return original(*args, **kwargs)
        return self.integrate(original, args, kwargs, variables)

    def integrate(self, original: Callable, args: tuple, kwargs: dict, variables: dict) -> Any:
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        func, y0, t = (given.pop(name) for name in ("func", "y0", "t"))
        how = [given.get(name) for name in ("method", "options", "event_fn")]
        times, reason = times_of(func, y0, t, *how)
        data = 1.0 if times[0] < times[-1] == 1 else None
        plan, note = plan_of(Grid.of(times, data=data), self.options, reason)
        mask, found = self.mask(variables, y0)
        wrapped = Wrapped(func, plan, times, note, mask, torch.float32)
        if not found:
            wrapped.stages.note("no padding mask was found: all frames count")
        result = original(wrapped, y0, t, **given)
        self.reports.append(announced(wrapped.report))
        return result

    def mask(self, variables: dict, y0: Any) -> tuple[Tensor | None, bool]:
        """(which coordinates count, whether the host says so)."""
        if self.kind is None or not isinstance(y0, Tensor):
            return None, True
        _, real, known = LOOPS[self.kind]
        if real not in variables:
            return None, False
        mask, fixed = variables[real], variables.get(known or "")
        seen = None if mask is None else mask[: len(y0), : y0.shape[1], None].bool()
        if isinstance(fixed, Tensor):
            seen = ~fixed if seen is None else seen & ~fixed
        return seen, True
