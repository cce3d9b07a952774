"""A dial over numbers: what each of them shows, one at a time; the first without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geoshrink.page.markup import Markup, element, join, section
from geoshrink.page.media import Media


@dataclass(frozen=True)
class Shot:
    """A row: what it is called, what is said of it, and what it shows."""

    label: str
    words: str
    medium: Media

    def html(self) -> Markup:
        label = element("figcaption", element("b", self.label), " ", self.words)
        return element("figure", Markup(self.medium.html()), label, class_="shot")


@dataclass(frozen=True)
class Dial:
    """
    fixed   the row above, which stays
    shown   the rows of each number, smallest first
    unit    of the numbers: "of 50 model calls"
    begin   the number at which it stands at first
    """

    title: str
    fixed: Shot
    shown: Mapping[int, Sequence[Shot]]
    unit: str
    begin: int
    caption: str = ""

    def __post_init__(self) -> None:
        if self.begin not in self.shown:
            raise ValueError(f"the dial begins at {self.begin}, which is not among its numbers")

    def html(self) -> str:
        numbers = sorted(self.shown)
        knob = element(
            "input",
            type="range",
            min=0,
            max=len(numbers) - 1,
            value=numbers.index(self.begin),
            aria_label=self.unit,
        )
        reading = element("output", f"{self.begin} {self.unit}")
        pages = [
            element(
                "div",
                *(shot.html() for shot in self.shown[number]),
                data_reading=f"{number} {self.unit}",
                hidden=number != self.begin,
            )
            for number in numbers
        ]
        head = element("div", knob, reading, class_="knob")
        body = element("div", self.fixed.html(), head, join(pages), class_="dialled")
        return section("dial", self.title, body, caption=self.caption)
