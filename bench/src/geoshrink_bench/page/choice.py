"""A chart of many lines, a few of which are shown at first; the legend switches them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from geoshrink.page.charts import BOTTOM, LEFT, RIGHT, TOP, Lines, Point, Series
from geoshrink.page.markup import Markup, element
from geoshrink.page.scale import Scale


@dataclass(frozen=True)
class Choice(Lines):
    """`chosen` are the labels shown at first; the axes follow what is shown."""

    chosen: Sequence[str] = ()

    def __post_init__(self) -> None:
        labels = [series.label for series in self.series]
        for label in self.chosen:
            if label not in labels:
                raise ValueError(f"no series {label!r}; there are {', '.join(map(repr, labels))}")
        if self.y_range is not None:
            raise ValueError("the axes of a choice follow what is shown: leave y_range out")
        super().__post_init__()

    def _shown(self, series: Series) -> bool:
        return not self.chosen or series.label in self.chosen

    def _points(self) -> list[Point]:
        return [p for series in self.series if self._shown(series) for p in series.points()]

    def _axes(self, x: Scale, y: Scale) -> Markup:
        plot = f"{LEFT} {RIGHT} {BOTTOM} {TOP}"
        return element("g", super()._axes(x, y), class_="axes", data_plot=plot)

    def _line(self, i: int, x: Scale, y: Scale) -> Markup:
        """With every mark; the script places those of a line that is switched on."""
        series = self.series[i]
        if not self._shown(series):
            x = Scale.around((px for px, _ in series.points()), LEFT, RIGHT)
            y = Scale.around((py for _, py in series.points()), BOTTOM, TOP)
        return element(
            "g",
            super()._line(i, x, y),
            element("text", series.label, x=RIGHT, y=14, text_anchor="end", class_="name hint"),
            class_="choosable" if self._shown(series) else "choosable off",
            data_points=json.dumps(series.points()),
        )

    def _legend(self) -> Markup:
        shown = [i for i, series in enumerate(self.series) if self._shown(series)]
        rest = [i for i in range(len(self.series)) if i not in shown]
        more = Markup()
        if rest:
            summary = element("summary", f"{len(rest)} more")
            entries = element("ul", *map(self._legend_entry, rest), class_="legend")
            more = element("details", summary, entries, class_="more")
        first = element("ul", *map(self._legend_entry, shown), class_="legend")
        return element("div", first, more, class_="choice")

    def _entry(self, i: int) -> Markup:
        label = self.series[i].label
        shown = self._shown(self.series[i])
        box = element("input", type="checkbox", checked=shown, data_series=i, value=label)
        return element("label", box, super()._entry(i))
