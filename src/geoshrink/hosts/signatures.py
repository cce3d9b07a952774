"""What the methods of a host take and return, and whether its code is the one that we know."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..outputs import children
from .hooks import Handler


def named(function: Callable, handler: Callable[[Callable, dict, tuple, dict], Any]) -> Handler:
    """For a hook on a method: handler(the method, arguments by name, args, kwargs).

    By name are all arguments of a call, defaults and keywords beyond the signature included.
    """
    signature = inspect.signature(function)
    more = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]

    def on_call(owner: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        extra = bound.arguments.pop(more[0], {}) if more else {}
        return handler(call, {**bound.arguments, **extra}, args, kwargs)

    return on_call


def check_method(host: Any, name: str, takes: Sequence[str], uses: Sequence[str] = ()) -> None:
    """Refuses a host whose method is missing, or lacks arguments or variables that we read."""
    function, expected, found = getattr(host, name, None), f"{name}({', '.join(takes)}, …)", "none"
    if callable(function):
        names = list(inspect.signature(function).parameters)
        code = inspect.unwrap(function).__code__ if uses else None
        missing = [v for v in uses if code and v not in (*code.co_varnames, *code.co_cellvars)]
        if set(takes) <= set(names) and not missing:
            return
        found = f"no {', '.join(missing)} in it" if missing else f"{name}({', '.join(names)})"
    raise TypeError(
        f"{type(host).__name__} cannot be accelerated: expected a method {expected}, found "
        f"{found}; its loop is not the one geoshrink knows: use geoshrink.Run in it"
    )


def shapes(value: Any, dtypes: bool = True) -> Any:
    """The shapes (and dtypes) of all tensors in a value, and which numbers are zero, hashable."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype if dtypes else None
    if isinstance(value, (bool, int, float)):
        return bool(value)
    split = children(value)
    return None if split is None else tuple(shapes(part, dtypes) for part in split[0])


def hollow(value: Any) -> Any:
    """What a skipped call returns: the value with ones that take no memory in place of tensors."""
    if isinstance(value, Tensor):
        return value.new_ones(()).expand(value.shape)
    split = children(value)
    if split is None:
        return value
    parts = [hollow(part) for part in split[0]]
    return split[1](parts)(parts)
