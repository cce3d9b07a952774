"""A chart as a separate SVG file: its legend beneath, light or dark by the reader's setting."""

from __future__ import annotations

from geoshrink.page.charts import COLOURS, HEIGHT, MARKS, WIDTH, Lines
from geoshrink.page.document import OWN, resources
from geoshrink.page.markup import Markup, element

from .choice import Choice

ROW, COLUMN = 20, 280  # of the legend
BACKGROUND = "svg { background: var(--paper); }"


def drawing(chart: Lines) -> str:
    """The lines that are shown at first, the axes, the legend."""
    shown = chart.chosen if isinstance(chart, Choice) and chart.chosen else None
    series = [each for each in chart.series if shown is None or each.label in shown]
    plain = Lines(chart.title, series, chart.x_label, chart.y_label, y_range=chart.y_range)
    legend = [entry(i, each.label) for i, each in enumerate(series)]
    height = HEIGHT + 12 + ROW * ((len(legend) + 1) // 2)
    return element(
        "svg",
        element("title", chart.title),
        element(
            "style", resources([(OWN, "colours.css"), (OWN, "charts.css")]), Markup(BACKGROUND)
        ),
        plain.plot(),
        *legend,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"-8 -8 {WIDTH + 16} {height + 8}",
        width=WIDTH + 16,
        height=height + 8,
        role="img",
    )


def entry(i: int, label: str) -> Markup:
    return element(
        "g",
        element("path", d="M0,0H28", class_="line"),
        element("path", d=MARKS[i % len(MARKS)], class_="mark", transform="translate(14 0)"),
        element("text", label, x=36, dy="0.35em"),
        class_=f"series-{i % COLOURS}",
        transform=f"translate({COLUMN * (i % 2)} {HEIGHT + 12 + ROW * (i // 2)})",
    )
