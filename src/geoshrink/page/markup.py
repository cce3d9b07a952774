"""HTML built from Python values: text is escaped unless it is already Markup. A page is made of
sections: anything that can write itself as HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Protocol

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


class Section(Protocol):
    def html(self) -> str: ...


def paragraphs(text: str, class_: str | None = None) -> Markup:
    """The text, one paragraph for each run of lines between blank ones; `so` is code."""
    parts = (part.strip() for part in re.split(r"\n\s*\n", text))
    return join(element("p", coded(part), class_=class_) for part in parts if part)


def coded(text: str) -> Markup:
    pieces = re.split(r"`([^`\n]+)`", text)
    return join(element("code", p) if i % 2 else p for i, p in enumerate(pieces))


def section(kind: str, title: str, *body: str, caption: str = "") -> Markup:
    """A titled section whose class is `kind`, with its caption below the body."""
    return element(
        "section", element("h2", title), *body, paragraphs(caption, "caption"), class_=kind
    )
