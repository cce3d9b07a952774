"""The tables of one setting, which every format shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from geoshrink.page import Column, Table
from geoshrink.page.table import MISSING
from geoshrink.page.table import Cell as Entry

from ..page import Shown
from ..score import Score
from ..words import NOT_RUN, REFERENCE
from .overview import digits_for, kind_of
from .results import Cell, Results, Setting
from .staleness import Made

PAPER, SPEEDUP, OWN = "paper", "speedup", "its own setting"


def tables_of(results: Results, setting: Setting, reference: str) -> list[Table]:
    """Beside the paper's numbers, or a table for each metric."""
    if setting.label:
        return [beside(setting)] if reference == "full" else []
    if reference not in setting.references:
        return []
    return [quality(results, setting, metric, reference) for metric in setting.metrics]


def quality(results: Results, setting: Setting, metric: str, reference: str) -> Table:
    """Methods × budgets: mean ± sd over seeds, best in bold among the methods of a kind."""
    measure = setting.metrics[metric]
    found = {at: cell.score(metric, reference) for at, cell in setting.at.items()}
    digits = digits_for([score.mean for score in found.values() if isinstance(score, Score)])
    timed = any(cell.seconds for cell in setting.cells)
    made = Made(setting.cells)
    rows, waiting = [], []
    for label in sorted(setting.labels, key=results.calibrated.__contains__):
        cells = [setting.at.get((label, budget)) for budget in setting.budgets]
        if all(c is None or found[label, c.budget] == NOT_RUN for c in cells):
            waiting.append(label)
            continue
        numbers = (c and shown(c, found[label, c.budget], digits, made) for c in cells)
        row = [label, *numbers]
        row.append(max((c.result["held"] / 2**20 for c in cells if c and c.result), default=None))
        if timed:
            row.append(next((c.median for c in cells if c and c.seconds), None))
        rows.append([*row, kind_of(results, label)])
    columns = [
        Column("method"),
        *(Column(f"B = {b}", better=measure.better, digits=digits) for b in setting.budgets),
        Column("held", "MiB", digits=1),
        *([Column("time", "s", digits=3)] if timed else []),
        Column("kind"),
    ]
    return Table(
        f"{setting.title}: {measure.heading}",
        columns,
        rows,
        caption=f"Distance to {REFERENCE[reference]}."
        + (f" Not run yet: {', '.join(waiting)}." if waiting else "")
        + made.note(),
        group_by=len(columns) - 1,
    )


def shown(cell: Cell, score: Score | str, digits: int, made: Made) -> Shown:
    """A score with its spread; the runs of the network where they are not the budget; a mark where
    other code made it.
    """
    if not isinstance(score, Score):
        return Shown(math.nan, score.split(":")[0])
    text = score.text(digits)
    if abs(cell.evaluations - (cell.budget or 0)) > 1e-9:
        text += f" ({cell.evaluations:.3g} runs)"
    return Shown(score.mean, text + made.mark(cell), cell.competes)


def beside(setting: Setting) -> Table:
    """Methods × metrics, each beside the paper's own number.

    Best in bold: of all rows, or of those with one budget where there are several. What is missing
    has a number in brackets; the caption says why.
    """
    several = len(setting.budgets) > 1
    cells = sorted(setting.cells, key=lambda c: c.budget or 0) if several else setting.cells
    columns = [Column("method"), *([Column("contest")] if several else [])]
    columns += [Column("NFE"), Column("speed-up"), Column(PAPER)]
    digits = {}
    for name, measure in setting.metrics.items():
        digits[name] = decimals([m for c in cells if (m := c.mean(name)) is not None])
        columns.append(Column(name, measure.unit, measure.better, digits[name]))
        columns.append(Column(PAPER))
    notes: list[str] = []
    made = Made(cells)
    rows = [row_of(cell, digits, several, notes, made) for cell in cells]
    why = "; ".join(f"({i}) {note}" for i, note in enumerate(notes, 1))
    caption = (
        f"Mean ± sd over seeds, and beside it the paper's own number ({setting.label}). NFE: "
        "stages at which the whole network ran, or as much work. Speed-up: seconds of the "
        "sampling loop alone, without encoding and decoding."
    )
    return Table(
        f"{setting.title}: measured, beside the paper",
        columns,
        rows,
        caption=f"{caption}{made.note()} {why}".strip(),
        group_by=1 if several else None,
    )


def row_of(
    cell: Cell, digits: dict[str, int], several: bool, notes: list[str], made: Made
) -> list[Entry]:
    full = cell.method == "full"
    row: list[Entry] = [cell.title + made.mark(cell)]
    if several:
        row.append(cell.method if full else f"B = {cell.budget}" if cell.budget else OWN)
    calls = noted(number(cell.evaluations), cell.result.get("reasons", ()), notes)
    speedup = math.nan if cell.speedup is None else cell.speedup
    row += [Shown(cell.evaluations, calls), Shown(speedup, number(speedup, "×"))]
    row.append(published(cell, SPEEDUP, "×"))
    competes = not full and not (several and cell.budget is None) and cell.competes
    for name in digits:
        score = cell.score(name)
        if isinstance(score, Score):
            row.append(Shown(score.mean, score.text(digits[name]), competes))
        else:
            word, _, reason = score.partition(": ")
            row.append(Shown(math.nan, noted(word, [reason] if reason else [], notes)))
        row.append(published(cell, name))
    return row


def decimals(means: Sequence[float]) -> int:
    """Decimals needed to show four significant digits of the least mean.

    >>> decimals([21.6, 18.2]), decimals([4e-7, 0.0])
    (2, 10)
    """
    least = min((abs(mean) for mean in means if mean and math.isfinite(mean)), default=1.0)
    return max(0, 3 - math.floor(math.log10(least)))


def number(value: float, unit: str = "") -> str:
    return MISSING if math.isnan(value) else f"{value:.4g}{unit}"


def published(cell: Cell, name: str, unit: str = "") -> Shown | None:
    value = cell.paper.get(name)
    return None if value is None else Shown(value, f"{value:g}{unit}")


def noted(text: str, reasons: Sequence[str], notes: list[str]) -> str:
    """The text with the numbers of the notes that hold the reasons."""
    for reason in reasons:
        if reason not in notes:
            notes.append(reason)
    return text + "".join(f" ({notes.index(reason) + 1})" for reason in reasons)
