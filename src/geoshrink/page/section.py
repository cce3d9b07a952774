"""What a page is made of: anything that can write itself as HTML."""

from __future__ import annotations

import re
from typing import Protocol

from geoshrink.page.markup import Markup, element, join


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
