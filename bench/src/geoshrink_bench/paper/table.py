"""The table of a suite, which every format shares: measured, and beside it the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from geoshrink.page import Column, Shown, Table
from geoshrink.page.table import Cell

from .columns import COLUMNS
from .results import IDENTICAL, Result, Value
from .suite import FULL, SPEEDUP, Suite

PAPER = "paper"
OWN = "its own setting"


def table_of(suite: Suite, found: Sequence[Result]) -> Table:
    """Best in bold: of all rows, or of those with one budget where there are several.

    What is missing has a number in brackets; the caption says why.
    """
    budgets = {result.row.budget for result in found} - {None}
    several = len(budgets) > 1
    notes: list[str] = []
    columns = [Column("method"), *([Column("contest")] if several else [])]
    columns += [Column("NFE"), Column("speed-up"), Column(PAPER)]
    for name in suite.columns:
        better = "higher" if COLUMNS[name].higher else "lower"
        values = [result.columns.get(name) for result in found]
        means = [value.mean for value in values if isinstance(value, Value)]
        columns.append(Column(name, COLUMNS[name].unit, better, decimals(means)))
        columns.append(Column(PAPER))
    if several:
        found = sorted(found, key=lambda result: result.row.budget or 0)
    rows = [cells_of(suite, result, several, notes) for result in found]
    why = "; ".join(f"({i}) {note}" for i, note in enumerate(notes, 1))
    caption = (
        f"Mean ± sd over seeds, and beside it the paper's own number ({suite.label}). NFE: stages "
        "at which the whole network ran, or as much work. Speed-up: seconds of the sampling loop "
        "alone, without encoding and decoding."
    )
    return Table(
        "Measured, beside the paper",
        columns,
        rows,
        caption=f"{caption} {why}".strip(),
        group_by=1 if several else None,
    )


def cells_of(suite: Suite, result: Result, several: bool, notes: list[str]) -> list[Cell]:
    row, paper = result.row, result.row.paper
    row_of: list[Cell] = [row.label]
    if several:
        row_of.append(row.method if row is FULL else f"B = {row.budget}" if row.budget else OWN)
    calls = noted(number(result.evaluations), result.reasons, notes)
    row_of += [shown(result.evaluations, calls), shown(result.speedup, number(result.speedup, "×"))]
    row_of.append(published(paper.get(SPEEDUP), "×"))
    competes = row is not FULL and not (several and row.budget is None)
    for name in suite.columns:
        value = result.columns[name]
        mean = value.mean if isinstance(value, Value) else math.nan
        text = text_of(value, notes)
        row_of.append(Shown(math.inf if mean == IDENTICAL else mean, text, competes))
        row_of.append(published(paper.get(name)))
    return row_of


def decimals(means: Sequence[float]) -> int:
    """So many that the least of them has four digits: what is equal so is equally good.

    >>> decimals([21.6, 18.2]), decimals([4e-7, 0.0])
    (2, 10)
    """
    least = min((abs(mean) for mean in means if mean and mean != IDENTICAL), default=1.0)
    return max(0, 3 - math.floor(math.log10(least)))


def shown(value: float | None, text: str) -> Shown:
    return Shown(math.nan if value is None else value, text)


def published(value: float | None, unit: str = "") -> Shown | None:
    return None if value is None else Shown(value, f"{value:g}{unit}")


def number(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:.4g}{unit}"


def text_of(value: Value | str, notes: list[str]) -> str:
    """A number, or a word and the number of the note with the reason."""
    if isinstance(value, Value):
        if value.mean == IDENTICAL and value.identical:
            return "identical"
        more = f" ({value.identical} identical)" if value.identical else ""
        spread = "" if value.sd is None else f" ± {value.sd:.2g}"
        return f"{value.mean:.4g}{spread}{more}"
    word, _, reason = value.partition(": ")
    return noted(word, [reason] if reason else [], notes)


def noted(text: str, reasons: Sequence[str], notes: list[str]) -> str:
    """The text with the numbers of the notes that hold the reasons."""
    for reason in reasons:
        if reason not in notes:
            notes.append(reason)
    return text + "".join(f" ({notes.index(reason) + 1})" for reason in reasons)
