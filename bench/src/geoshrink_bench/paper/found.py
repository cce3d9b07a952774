"""What a folder of a suite holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .asked import Asked, load
from .cells import Cells
from .results import Result, results


@dataclass(frozen=True)
class Found:
    """What was asked, its cells, a result for each row, the command that makes them."""

    asked: Asked
    cells: Cells
    results: list[Result]
    command: str


def found_in(folder: Path) -> Found:
    asked = load(folder)
    cells = asked.cells(folder)
    return Found(asked, cells, results(cells), asked.command(folder))
