"""What the methods of a host take, and whether its code is the one that we know."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from .hooks import Handler


def named(function: Callable, handler: Callable[[Callable, dict, tuple, dict], Any]) -> Handler:
    """For a hook on a method: handler(the method, arguments by name, args, kwargs)."""
    signature = inspect.signature(function)

    def on_call(owner: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        return handler(call, by_name(signature, args, kwargs), args, kwargs)

    return on_call


def by_name(signature: inspect.Signature, args: tuple, kwargs: dict) -> dict[str, Any]:
    """All arguments of a call, defaults and keywords beyond the signature included."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    more = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    extra = bound.arguments.pop(more[0], {}) if more else {}
    return {**bound.arguments, **extra}


def check_shape(owner: str, function: Any, name: str, expected: Iterable[str]) -> None:
    """Refuses a host whose method is missing, or does not take the arguments we rely on."""
    expected = list(expected)
    if not callable(function):
        raise TypeError(
            f"{owner} cannot be accelerated: expected a method {name}({', '.join(expected)}, …), "
            f"found {'none' if function is None else repr(function)}; its loop is not the one "
            "geoshrink knows: use geoshrink.Run in it"
        )
    found = list(inspect.signature(function).parameters)
    if not set(expected) <= set(found):
        raise TypeError(
            f"{owner} cannot be accelerated: expected {name}({', '.join(expected)}, …), found "
            f"{name}({', '.join(found)}); its loop is not the one geoshrink knows: use "
            "geoshrink.Run in it"
        )


def variables(function: Callable) -> set[str]:
    """The names of a function's own variables, decorators left aside."""
    code = inspect.unwrap(function).__code__
    return {*code.co_varnames, *code.co_cellvars}
