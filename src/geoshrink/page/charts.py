"""Charts drawn as inline SVG: lines over an axis, and anchors along a sampler's stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from geoshrink.page.markup import Markup, element, join, section
from geoshrink.page.scale import Scale, minus

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 548, 34, 272  # the plot inside the drawing
STRIP, EDGE = 600, 8  # a strip of stages: its width, and the blank at either end
COLOURS = 7  # as many as charts.css names
MARKS = (
    "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0",  # circle
    "M-3.6,-3.6h7.2v7.2h-7.2z",  # square
    "M0,-4.8L4.6,3.4H-4.6z",  # triangle
    "M0,-5L5,0L0,5L-5,0z",  # diamond
)
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A labelled line; a y that is None or not finite leaves a gap."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.label!r}: {len(self.x)} x, {len(self.y)} y")
        if not all(map(math.isfinite, self.x)):
            raise ValueError(f"series {self.label!r}: every x must be finite")

    def runs(self) -> list[list[Point]]:
        """The points between gaps."""
        runs: list[list[Point]] = [[]]
        for x, y in zip(self.x, self.y, strict=True):
            if y is None or not math.isfinite(y):
                runs.append([])
            else:
                runs[-1].append((x, y))
        return [run for run in runs if run]

    def points(self) -> list[Point]:
        return [point for run in self.runs() for point in run]


@dataclass(frozen=True)
class Lines:
    """Series over a common x; `y_range` fixes the axis, and lines leave it at its edge."""

    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str
    caption: str = ""
    y_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        self._scales()

    def html(self) -> str:
        labels = ", ".join(series.label for series in self.series)
        spoken = f"{self.title}: {self.y_label} against {self.x_label} for {labels or 'nothing'}"
        svg = element(
            "svg",
            self.plot(),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
            aria_label=spoken,
        )
        return section("chart", self.title, self._legend(), svg, caption=self.caption)

    def plot(self) -> Markup:
        """The axes and the lines, inside an SVG of WIDTH by HEIGHT."""
        x, y = self._scales()
        drawn = join(self._line(i, x, y) for i in range(len(self.series)))
        empty = element(
            "text", "no data", x=(LEFT + RIGHT) / 2, y=(TOP + BOTTOM) / 2, text_anchor="middle"
        )
        return join((self._axes(x, y), drawn if self._points() else empty))

    def _points(self) -> list[Point]:
        return [point for series in self.series for point in series.points()]

    def _scales(self) -> tuple[Scale, Scale]:
        points = self._points()
        x = Scale.around((px for px, _ in points), LEFT, RIGHT, count=6)
        if self.y_range:
            return x, Scale.between(*self.y_range, BOTTOM, TOP)
        return x, Scale.around((py for _, py in points), BOTTOM, TOP)

    def _axes(self, x: Scale, y: Scale) -> Markup:
        rules = "".join(f"M{LEFT},{y(value)}H{RIGHT}" for value, _ in y.ticks())
        return element(
            "g",
            element("path", d=rules, class_="rule"),
            element("path", d=f"M{LEFT},{BOTTOM}H{RIGHT}", class_="axis"),
            *(
                element("text", label, x=LEFT - 8, y=y(v), dy="0.35em", text_anchor="end")
                for v, label in y.ticks()
            ),
            *(
                element("text", label, x=x(v), y=BOTTOM + 8, dy="0.8em", text_anchor="middle")
                for v, label in x.ticks()
            ),
            element("text", self.y_label, x=0, y=14, class_="name"),
            element("text", self.x_label, x=RIGHT, y=HEIGHT - 6, text_anchor="end", class_="name"),
        )

    def _line(self, i: int, x: Scale, y: Scale) -> Markup:
        """Strokes are cut off at the plot's edge; marks are whole, and only where they belong."""
        series = self.series[i]
        path = "".join(
            "M" + "L".join(f"{x(px)},{y(py)}" for px, py in run) for run in series.runs()
        )
        plot = f"{LEFT} {TOP} {RIGHT - LEFT} {BOTTOM - TOP}"
        stroke = element(
            "svg",
            element("path", d=path, class_="line"),
            viewBox=plot,
            x=LEFT,
            y=TOP,
            width=RIGHT - LEFT,
            height=BOTTOM - TOP,
        )
        marks = (
            element(
                "g",
                element("title", f"{series.label}: {_number(py)} at {_number(px)}"),
                _mark(i),
                element("circle", r=10, class_="reach"),
                transform=f"translate({x(px)} {y(py)})",
            )
            for px, py in series.points()
            if py in y
        )
        return element("g", stroke, *marks, class_=f"series-{i % COLOURS}")

    def _legend(self) -> Markup:
        return element("ul", *map(self._legend_entry, range(len(self.series))), class_="legend")

    def _legend_entry(self, i: int) -> Markup:
        return element("li", self._entry(i), class_=f"series-{i % COLOURS}")

    def _entry(self, i: int) -> Markup:
        series = self.series[i]
        swatch = element(
            "svg",
            element("path", d="M-14,0H14", class_="line"),
            _mark(i),
            viewBox="-14 -7 28 14",
            aria_hidden="true",
        )
        text = series.label if series.points() else f"{series.label} (no data)"
        return join((swatch, text))


@dataclass(frozen=True)
class Anchors:
    """One strip for each method: a tick for every stage 0 … steps−1, a dot where it queried."""

    title: str
    rows: Sequence[tuple[str, Sequence[int]]]
    steps: int
    caption: str = ""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"there must be at least one stage, not {self.steps}")
        for label, anchors in self.rows:
            for anchor in anchors:
                if anchor not in range(self.steps):
                    raise ValueError(f"{label!r}: anchor {anchor} is not in 0 … {self.steps - 1}")

    def html(self) -> str:
        strips = join(self._strip(label, sorted(set(anchors))) for label, anchors in self.rows)
        body = element("div", strips, self._axis(), class_="strips")
        return section("anchors", self.title, body, caption=self.caption)

    def _at(self, stage: int) -> float:
        return round(EDGE + stage * (STRIP - 2 * EDGE) / max(self.steps - 1, 1), 2)

    def _strip(self, label: str, anchors: list[int]) -> Markup:
        ticks = "".join(f"M{self._at(stage)},9V15" for stage in range(self.steps))
        radius = min(5.0, max(2.0, 0.42 * STRIP / self.steps))
        dots = (
            element(
                "circle",
                element("title", f"{label}: stage {anchor}"),
                cx=self._at(anchor),
                cy=12,
                r=round(radius, 2),
            )
            for anchor in anchors
        )
        listed = ", ".join(map(str, anchors)) or "none"
        svg = element(
            "svg",
            element("path", d=ticks, class_="rule"),
            *dots,
            role="img",
            viewBox=f"0 0 {STRIP} 24",
            aria_label=f"{label}: anchors at stages {listed}",
        )
        count = element("small", f"{len(anchors)} of {self.steps}")
        return join((element("div", element("span", label), count, class_="label"), svg))

    def _axis(self) -> Markup:
        scale = Scale.between(0, max(self.steps - 1, 1), EDGE, STRIP - EDGE)
        texts = (
            element("text", str(int(stage)), x=self._at(int(stage)), y=16, text_anchor="middle")
            for stage, _ in scale.ticks()
            if stage == int(stage) < self.steps
        )
        label = element("div", element("small", "stage"), class_="label axis-name")
        return join((label, element("svg", *texts, viewBox=f"0 0 {STRIP} 24", aria_hidden="true")))


def _mark(i: int) -> Markup:
    return element("path", d=MARKS[i % len(MARKS)], class_="mark")


def _number(value: float) -> str:
    return minus(f"{value:.5g}")
