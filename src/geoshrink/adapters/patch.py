"""Attributes of a host that are ours for a while, and how its code is looked at before."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


class Patch:
    """Sets attributes in the __dict__ of objects and modules; undo() puts back what was there."""

    def __init__(self) -> None:
        self.saved: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Callable) -> None:
        value.patch = self  # type: ignore[attr-defined]
        self.saved.append((owner, name, owner.__dict__.get(name)))
        owner.__dict__[name] = value

    def undo(self) -> None:
        for owner, name, before in reversed(self.saved):
            owner.__dict__.pop(name, None)
            if before is not None:
                owner.__dict__[name] = before
        self.saved = []


def patch_of(owner: Any, name: str) -> Patch | None:
    """The patch of ours that an attribute is under."""
    return getattr(owner.__dict__.get(name), "patch", None)


def through(original: Callable, handler: Callable[[Callable, dict, tuple, dict], Any]) -> Callable:
    """A method by way of handler(original, arguments by name, args, kwargs), its signature kept."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return handler(original, by_name(signature, args, kwargs), args, kwargs)

    return method


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
