"""Sections under one heading that opens and closes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geoshrink.page.markup import Markup, Section, element, join


@dataclass(frozen=True)
class Folded:
    """`note` stands beside the title, also while it is closed."""

    title: str
    sections: Sequence[Section]
    note: str = ""
    open: bool = False

    def html(self) -> str:
        note = element("small", self.note) if self.note else Markup()
        return element(
            "details",
            element("summary", element("h2", self.title), note),
            element("div", join(Markup(part.html()) for part in self.sections), class_="inside"),
            class_="folded",
            open=self.open,
        )
