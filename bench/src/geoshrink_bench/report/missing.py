"""What has no result, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from geoshrink.page import Column, Table

from .facts import many
from .results import FAILED, NOT_RUN, SKIPPED, Cell, Results, Setting
from .tables import REFERENCE

Row = tuple[str, int | None, str, str]  # method, budget, status, why


def missing(results: Results) -> Table:
    """A row for each failure and each skipped metric; what was not run is counted together."""
    rows = [
        (setting.title, *row)
        for setting in results.settings
        for found in (*map(failures, setting.cells), not_run(setting))
        for row in found
    ]
    names = ("setting", "method", "B", "status", "why")
    return Table("What is missing", [Column(name) for name in names], rows)


def failures(cell: Cell) -> Iterator[Row]:
    if cell.status == FAILED:
        yield cell.label, cell.budget, FAILED, cell.reason
    if cell.timing.startswith(FAILED):
        yield cell.label, cell.budget, FAILED, cell.timing.replace(FAILED, "seconds", 1)
    for metric, scores in cell.result.get("scores", {}).items():
        for reference, found in scores.items():
            if isinstance(found, str):
                yield cell.label, cell.budget, SKIPPED, f"{metric}, {reference}: {found}"


def not_run(setting: Setting) -> Iterator[Row]:
    waiting = [cell.label for cell in setting.cells if cell.status == NOT_RUN]
    untimed = [cell.label for cell in setting.cells if cell.timing == NOT_RUN]
    if waiting:
        yield many(len(waiting), "cell"), None, NOT_RUN, distinct(waiting)
    if untimed:
        yield many(len(untimed), "cell"), None, NOT_RUN, f"seconds: {distinct(untimed)}"
    for reference, name in REFERENCE.items():
        if setting.references and reference not in setting.references:
            yield "all", None, NOT_RUN, f"against {name}"


def distinct(labels: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(labels))
