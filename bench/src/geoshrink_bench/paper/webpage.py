"""report.html: a suite's table, plots and samples as one page that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from geoshrink.page import Choice, Column, Folded, Page, Section, Series, Table

from .columns import COLUMNS
from .found import Found
from .looks import look
from .results import IDENTICAL, Result, Value
from .suite import SPEEDUP, Suite
from .summary import CHOICES, protocol
from .table import PAPER, table_of

Cost = Callable[[Result], float | None]
SHOWN = 6  # lines of a plot at first


def webpage(found: Sequence[Found], samples: int) -> Page:
    titles = list(dict.fromkeys(each.cells.suite.title for each in found))
    made = "Made by `geoshrink bench report`."
    if len(found) == 1:
        return Page(titles[0], lead(found[0]), sections_of(found[0], samples), made)
    folds = [
        Folded(
            each.cells.suite.title,
            sections_of(each, samples),
            " ".join(each.cells.suite.columns),
            each is found[0],
        )
        for each in found
    ]
    return Page(" · ".join(titles), "Measured, beside the paper's own numbers.", folds, made)


def lead(found: Found) -> str:
    return f"{protocol(found.cells.suite)}\n\n{found.asked.where()}"


def sections_of(found: Found, samples: int) -> list[Section]:
    suite = found.cells.suite
    drawn = charts(suite, found.results)
    choices = Table(CHOICES, [Column("choice")], [[choice] for choice in suite.choices])
    return [
        table_of(suite, found.results),
        *drawn[:2],
        *look(found.cells, found.results, samples),
        *([Folded("The other columns", drawn[2:], f"{len(drawn) - 2} plots")] if drawn[2:] else []),
        *([choices] if choices.rows else []),
        origin(found),
    ]


def charts(suite: Suite, found: Sequence[Result]) -> list[Section]:
    """Each column against evaluations, and against the speed-up, where the paper's points are."""
    return [
        chart
        for name in suite.columns
        for chart in (
            pareto(name, found, "network evaluations", lambda result: result.evaluations),
            pareto(name, found, "speed-up, ×", lambda result: result.speedup, True),
        )
        if chart.series
    ]


def pareto(
    name: str, found: Sequence[Result], cost_name: str, cost: Cost, published: bool = False
) -> Choice:
    measured: dict[str, list[tuple[float, float]]] = {}
    paper: dict[str, list[tuple[float, float]]] = {}
    for result in found:
        value, paid = result.columns.get(name), cost(result)
        if isinstance(value, Value) and value.mean != IDENTICAL and paid is not None:
            measured.setdefault(result.row.method, []).append((paid, value.mean))
        theirs = result.row.paper
        if published and SPEEDUP in theirs and name in theirs:
            label = f"{result.row.method}, {PAPER}"
            paper.setdefault(label, []).append((theirs[SPEEDUP], theirs[name]))
    lines = {label: sorted(points) for label, points in (measured | paper).items()}
    series = [Series(label, [x for x, _ in p], [y for _, y in p]) for label, p in lines.items()]
    column = COLUMNS[name]
    heading = Column(name, column.unit, "higher" if column.higher else "lower").heading
    title = f"{name}, by {cost_name.split(',')[0]}"
    shown = list(measured or paper)[-SHOWN:]
    return Choice(title, series, cost_name, heading, chosen=shown)


def origin(found: Found) -> Table:
    made: dict[str, Any] = found.asked.made
    facts = [
        ("made by", found.command),
        ("protocol", lead(found)),
        ("geoshrink", made["version"]),
        ("checkpoint (names, sizes and JSON files)", made["weights"]),
    ]
    return Table("Where the numbers come from", [Column("what"), Column("value")], facts)
