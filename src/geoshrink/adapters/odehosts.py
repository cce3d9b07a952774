"""Hosts that call torchdiffeq's odeint: HY-Motion's MotionFlowMatching, F5-TTS's CFM, and others.

They import the function into their module, so it is replaced there. The replacement looks at who
calls it: only calls by a host that was handed to us are accelerated, all others go on to
torchdiffeq. Frames that a host pads or overwrites afterwards are left out of the statistics.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..report import Report
from .handle import Handle
from .odeint import Wrapped, times_of
from .options import check_options
from .patch import Patch, patch_of
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
            "function with geoshrink.adapters.odeint.wrap"
        )
    modules = {method.__module__ for method in methods.values()}
    symbols = [Symbol.of(sys.modules[name]) for name in sorted(modules)]
    attached = Attached(host, options)
    for symbol in symbols:
        symbol.add(attached)

    def remove() -> None:
        for symbol in symbols:
            symbol.drop(attached)

    return Handle(lambda: list(attached.reports), remove)


class Symbol:
    """A module's odeint, ours while any of its hosts is accelerated."""

    def __init__(self, module: ModuleType):
        self.module, self.original = module, vars(module)["odeint"]
        self.hosts: list[Attached] = []

    @classmethod
    def of(cls, module: ModuleType) -> Symbol:
        return getattr(vars(module)["odeint"], "symbol", None) or cls(module)

    def add(self, attached: Attached) -> None:
        """A host that is accelerated again leaves its first acceleration behind."""
        host = attached.host()
        self.hosts = [other for other in self.hosts if other.host() not in (None, host)]
        self.hosts.append(attached)
        if patch_of(self.module, "odeint") is None:
            Patch().set(self.module, "odeint", self.function())

    def drop(self, attached: Attached) -> None:
        self.hosts = [other for other in self.hosts if other is not attached]
        patch = patch_of(self.module, "odeint")
        if not self.hosts and patch is not None:
            patch.undo()

    def function(self) -> Callable:
        @functools.wraps(self.original)
        def odeint(func: Callable, y0: Any, t: Tensor, *args: Any, **kwargs: Any) -> Any:
            variables = sys._getframe(1).f_locals
            for attached in self.hosts:
                if attached.host() is variables.get("self"):
                    original = self.original
                    return attached.integrate(original, (func, y0, t, *args), kwargs, variables)
            return self.original(func, y0, t, *args, **kwargs)

        odeint.symbol = self  # type: ignore[attr-defined]
        return odeint


class Attached:
    """One accelerated host."""

    def __init__(self, host: Any, options: dict[str, Any]):
        self.host, self.options, self.kind = weakref.ref(host), options, kind_of(host)
        self.reports: list[Report] = []

    def integrate(self, original: Callable, args: tuple, kwargs: dict, variables: dict) -> Any:
        func, y0, t, *more = args
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        how = [given.get(name) for name in ("method", "options", "event_fn")]
        times, reason = times_of(func, y0, t, *how)
        data = 1.0 if times[0] < times[-1] == 1 else None
        plan, note = plan_of(Grid.of(times, data=data), self.options, reason)
        mask, found = self.mask(variables, y0)
        wrapped = Wrapped(func, plan, times, note, mask, torch.float32)
        if not found:
            wrapped.stages.note("no padding mask was found: all frames count")
        result = original(wrapped, y0, t, *more, **kwargs)
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
