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


def fill(template: str, /, **values: object) -> Markup:
    """HTML with a value in place of every {name}; text is escaped unless it is Markup."""
    plain = {key: v if isinstance(v, Markup) else escape(str(v)) for key, v in values.items()}
    return Markup(template.format_map(plain))


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
    found = []
    for part in filter(None, (part.strip() for part in re.split(r"\n\s*\n", text))):
        pieces = enumerate(re.split(r"`([^`\n]+)`", part))
        coded = (element("code", piece) if i % 2 else piece for i, piece in pieces)
        found.append(element("p", *coded, class_=class_))
    return join(found)


def section(kind: str, title: str, *body: str, caption: str = "") -> Markup:
    """A titled section whose class is `kind`, with its caption below the body."""
    return element(
        "section", element("h2", title), *body, paragraphs(caption, "caption"), class_=kind
    )
