"""One table of results, written as HTML, as Markdown, or as text for a terminal.

Hand-written: a dataframe would cost the product a dependency for rows that are made once, in order.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, TypeGuard

from geoshrink.page.markup import Markup, element, join, paragraphs, section
from geoshrink.page.scale import minus

Cell = float | int | str | None
MISSING = "—"
ARROW = {"higher": "↑", "lower": "↓"}


@dataclass(frozen=True)
class Column:
    """`better` says which direction wins; `digits` are decimals, shown where a cell is a float."""

    name: str
    unit: str = ""
    better: Literal["higher", "lower"] | None = None
    digits: int = 2

    def __post_init__(self) -> None:
        if self.better not in (None, *ARROW):
            raise ValueError(f"better must be 'higher', 'lower' or None, not {self.better!r}")

    @property
    def heading(self) -> str:
        unit = f"({self.unit})" if self.unit else ""
        arrow = ARROW[self.better] if self.better else ""
        return " ".join(part for part in (self.name, unit, arrow) if part)


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns; `group_by` is the column whose values part the contests.

    A cell is best in its group when no cell shows a better number and some cell a worse one:
    equal as shown is equal, and the only entry of a group has beaten nobody.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    command: str = ""
    group_by: int | None = None

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} has {len(row)} cells, not {len(self.columns)}")
        if self.group_by is not None and self.group_by not in range(len(self.columns)):
            raise ValueError(f"group_by={self.group_by} is not one of {len(self.columns)} columns")

    def best(self) -> set[tuple[int, int]]:
        """The (row, column) of every cell that wins its group."""
        contests: dict[tuple[Cell, int], dict[int, float]] = defaultdict(dict)
        for i, row in enumerate(self.rows):
            group = None if self.group_by is None else row[self.group_by]
            for j, (column, cell) in enumerate(zip(self.columns, row, strict=True)):
                if column.better and is_number(cell) and getattr(cell, "competes", True):
                    contests[group, j][i] = round(float(cell), column.digits)
        return {
            (i, j)
            for (_, j), values in contests.items()
            for i in winners(values, self.columns[j].better == "higher")
        }

    def shown(self, i: int, j: int) -> str:
        """The cell as text: integers in full among integers, None as a dash."""
        cell = self.rows[i][j]
        if cell is None:
            return MISSING
        if isinstance(cell, str) or all(isinstance(n, Integral) for n in self._numbers(j)):
            return str(cell)
        return f"{cell:.{self.columns[j].digits}f}"

    def html(self) -> str:
        head = element("thead", element("tr", *map(self._heading, range(len(self.columns)))))
        best = self.best()
        rows = join(self._row(i, best) for i in range(len(self.rows)))
        table = element("table", head, element("tbody", rows), class_="sortable")
        each = "" if self.group_by is None else f" for each {self.columns[self.group_by].name}"
        note = element("p", f"Bold is best{each}.", class_="note")
        return section(
            "results",
            self.title,
            element("div", table, class_="scroll"),
            paragraphs(self.caption, "caption"),
            note if any(column.better for column in self.columns) else Markup(),
            element("pre", element("code", self.command)) if self.command else Markup(),
        )

    def markdown(self) -> str:
        """A pipe table, best in bold, under the title and over caption and command."""
        best = self.best()
        lines = [
            [piped(column.heading) for column in self.columns],
            ["---:" if self._numbers(j) else "---" for j in range(len(self.columns))],
        ]
        for i in range(len(self.rows)):
            cells = [(piped(self.shown(i, j)), (i, j) in best) for j in range(len(self.columns))]
            lines.append([f"**{cell}**" if wins else cell for cell, wins in cells])
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        command = f"```sh\n{self.command}\n```" if self.command else ""
        return _blocks(f"### {self.title}", table, self.caption, command)

    def text(self) -> str:
        """Aligned columns, a star after each best, under the title and over the rest."""
        best = self.best()
        columns = []
        for j, column in enumerate(self.columns):
            blank = " " if column.better else ""
            marks = ["*" if (i, j) in best else blank for i in range(len(self.rows))]
            cells = [_one_line(self.shown(i, j)) for i in range(len(self.rows))]
            cells = [cell + mark for cell, mark in zip(cells, marks, strict=True)]
            heading = _one_line(column.heading) + blank
            width = max(map(len, (heading, *cells)))
            align = str.rjust if self._numbers(j) else str.ljust
            columns.append([align(cell, width) for cell in (heading, "-" * width, *cells)])
        table = "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))
        command = f"$ {self.command}" if self.command else ""
        return _blocks(self.title, table, self.caption, command)

    def _numbers(self, j: int) -> list[Cell]:
        return [row[j] for row in self.rows if isinstance(row[j], Real)]

    def _heading(self, j: int) -> Markup:
        column = self.columns[j]
        unit = element("small", column.unit) if column.unit else Markup()
        arrow = Markup()
        if column.better:
            arrow = element("abbr", ARROW[column.better], title=f"{column.better} is better")
        button = element("button", element("span", column.name), unit, arrow, type="button")
        return element(
            "th",
            button,
            scope="col",
            data_first=column.better,
            aria_sort="none",
            class_="number" if self._numbers(j) else None,
        )

    def _row(self, i: int, best: set[tuple[int, int]]) -> Markup:
        g = self.group_by
        opens = g is not None and i > 0 and self.rows[i][g] != self.rows[i - 1][g]
        cells = (self._cell(i, j, (i, j) in best) for j in range(len(self.columns)))
        return element("tr", *cells, class_="opens" if opens else None)

    def _cell(self, i: int, j: int, best: bool) -> Markup:
        cell, shown = self.rows[i][j], self.shown(i, j)
        number = not isinstance(cell, str) and bool(self._numbers(j))
        if number:
            shown = minus(shown)
        return element(
            "td",
            element("strong", shown) if best else shown,
            class_="number" if number else None,
            data_value=repr(float(cell)) if is_number(cell) else None,
            data_missing=cell is None,
        )


def is_number(cell: Cell) -> TypeGuard[float | int]:
    """Whether the cell can be ranked; Real, so that NumPy's numbers count."""
    return isinstance(cell, Real) and not math.isnan(cell)


def winners(values: dict[int, float], higher: bool) -> set[int]:
    """The keys of the best values, or none when all are equal."""
    best, worst = max(values.values()), min(values.values())
    if not higher:
        best, worst = worst, best
    return set() if best == worst else {key for key, value in values.items() if value == best}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def piped(text: str) -> str:
    """Text as Markdown shows it, on one line: in a cell, or in a heading."""
    return re.sub(r"([\\|*_`<])", r"\\\1", _one_line(text))


def _blocks(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
