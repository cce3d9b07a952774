"""HTML built from Python values: text is escaped unless it is already Markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = frozenset({"img", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already, and is written as it stands."""

    __slots__ = ()


def join(children: Iterable[str]) -> Markup:
    """The children one after another, plain text escaped."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c) for c in children))


def element(name: str, /, *children: str, **attributes: str | int | float | bool | None) -> Markup:
    """`<name …>children</name>`.

    `class_` writes `class`, `data_value` writes `data-value`; True writes the bare name, and
    False or None leave the attribute out.
    """
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(children)}</{name}>")


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(str(value))}"'
