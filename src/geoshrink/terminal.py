"""What commands print: with colours by rich where a terminal is there, plain text where not.

Plain is what a pipe, NO_COLOR, TERM=dumb or a missing rich gets, and what tests compare.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .page.table import Table

#: How a word is coloured.
STYLES = {"good": "green", "bad": "bold red", "doubtful": "yellow", "quiet": "dim"}


def is_rich(file: IO[str] | None = None) -> bool:
    """Whether somebody looks at it on a terminal that shows colours."""
    out = sys.stdout if file is None else file
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return bool(out.isatty()) and not plain and find_spec("rich") is not None


def show_table(table: Table, file: IO[str] | None = None) -> None:
    """Prints a table; the best cells in bold, where plain text has a star."""
    out = sys.stdout if file is None else file
    if not is_rich(out):
        print(table.text(), end="", file=out)
        return
    from rich import box
    from rich.table import Table as Rich
    from rich.text import Text

    rich = Rich(box=box.SIMPLE_HEAD, header_style="bold", title=table.title or None)
    best = table.best()
    for j, column in enumerate(table.columns):
        numbers = any(not isinstance(row[j], str) and row[j] is not None for row in table.rows)
        rich.add_column(
            Text(column.heading), justify="right" if numbers else "left", overflow="fold"
        )
    for i in range(len(table.rows)):
        cells = range(len(table.columns))
        styled = (Text(table.shown(i, j), "bold green" if (i, j) in best else "") for j in cells)
        rich.add_row(*styled)
    console = console_of(out)
    widest = max(map(len, table.text().splitlines()[:3]), default=0)
    if widest > console.width:  # columns of a few letters: nobody could read, or copy, an id
        print(table.text(), end="", file=out)
        return
    console.print(rich)
    for words, style in ((table.caption, ""), (table.command and f"$ {table.command}", "dim")):
        if words:
            console.print(Text(words, style), soft_wrap=True)


def say(words: str, style: str = "", file: IO[str] | None = None) -> None:
    """Prints a line, in one of STYLES where there are colours."""
    out = sys.stdout if file is None else file
    if not style or not is_rich(out):
        print(words, file=out)
        return
    from rich.text import Text

    console_of(out).print(Text(words, STYLES[style]), soft_wrap=True)


def console_of(file: IO[str]) -> Any:
    from rich.console import Console

    return Console(file=file, highlight=False)
