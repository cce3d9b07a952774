"""Charts drawn as inline SVG: lines over an axis, and anchors along a sampler's stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from geoshrink.page.markup import Markup, element, fill, join, section
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
CHART = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{{spoken}}">{{plot}}</svg>'
#: A line is cut off at the plot's edge.
STROKE = (
    f'<svg viewBox="{LEFT} {TOP} {RIGHT - LEFT} {BOTTOM - TOP}" x="{LEFT}" y="{TOP}" '
    f'width="{RIGHT - LEFT}" height="{BOTTOM - TOP}"><path d="{{path}}" class="line"></path></svg>'
)
POINT = (
    '<g transform="translate({x} {y})"><title>{title}</title>{mark}'
    '<circle r="10" class="reach"></circle></g>'
)
SWATCH = (
    '<svg viewBox="-14 -7 28 14" aria-hidden="true"><path d="M-14,0H14" class="line"></path>'
    "{mark}</svg>{text}"
)
DOT = '<circle cx="{x}" cy="12" r="{r}"><title>{title}</title></circle>'
DOTS = (
    f'<div class="label"><span>{{label}}</span><small>{{count}}</small></div><svg role="img" '
    f'viewBox="0 0 {STRIP} 24" aria-label="{{label}}: anchors at stages {{listed}}">'
    '<path d="{ticks}" class="rule"></path>{dots}</svg>'
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
        svg = fill(CHART, spoken=spoken, plot=self.plot())
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
        """The stroke, and the marks that are on the plot, whole."""
        series = self.series[i]
        path = "".join(
            "M" + "L".join(f"{x(px)},{y(py)}" for px, py in run) for run in series.runs()
        )
        marks = []
        for px, py in (point for point in series.points() if point[1] in y):
            title = f"{series.label}: {minus(f'{py:.5g}')} at {minus(f'{px:.5g}')}"
            marks.append(fill(POINT, x=x(px), y=y(py), title=title, mark=_mark(i)))
        return element("g", fill(STROKE, path=path), *marks, class_=f"series-{i % COLOURS}")

    def _legend(self) -> Markup:
        return element("ul", *map(self._legend_entry, range(len(self.series))), class_="legend")

    def _legend_entry(self, i: int) -> Markup:
        return element("li", self._entry(i), class_=f"series-{i % COLOURS}")

    def _entry(self, i: int) -> Markup:
        series = self.series[i]
        text = series.label if series.points() else f"{series.label} (no data)"
        return fill(SWATCH, mark=_mark(i), text=text)


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
        r = round(min(5.0, max(2.0, 0.42 * STRIP / self.steps)), 2)
        dots = join(fill(DOT, x=self._at(n), r=r, title=f"{label}: stage {n}") for n in anchors)
        count, listed = f"{len(anchors)} of {self.steps}", ", ".join(map(str, anchors)) or "none"
        return fill(DOTS, label=label, count=count, listed=listed, ticks=ticks, dots=dots)

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
