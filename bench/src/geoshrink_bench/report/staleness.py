"""What a report says of cells that other code than today's made, or unknown code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from geoshrink.page import Column, Table

from ..code import CURRENT, STALE, UNKNOWN
from ..words import DONE, FAILED, many
from .results import Cell, Results

MARK = "†"
WORDS = {STALE: "made by other code than today's", UNKNOWN: "made by unknown code"}
COLUMNS = ("folder", "suite", "cells", "done", "missing", "failed", "stale", "unknown")


class Made:
    """The cells of one table: a mark for those that are stale, or a sentence where all are."""

    def __init__(self, cells: Iterable[Cell]):
        self.there = [cell for cell in cells if cell.status == DONE]
        self.stale = [cell for cell in self.there if cell.stale]
        self.all = len(self.stale) == len(self.there)

    def mark(self, cell: Cell) -> str:
        return f" {MARK}" if cell.stale and not self.all else ""

    def note(self) -> str:
        """For the caption; nothing where today's code made everything."""
        if not self.stale:
            return ""
        words = " or ".join(said for state, said in WORDS.items() if self.count(state))
        return f" Every number was {words}." if self.all else f" {MARK} {words}."

    def count(self, state: str) -> int:
        return sum(cell.code == state for cell in self.stale)


def stale_cells(results: Results) -> str:
    """How many cells of each method are stale; nothing where none is."""
    states = [each for setting in results.settings for each in setting.states()]
    there = Counter(label for label, state in states if state in (CURRENT, *WORDS))
    sentences = []
    for state, said in WORDS.items():
        found = Counter(label for label, each in states if each == state)
        if not found:
            continue
        whole = found == there
        text = f"{many(found.total(), 'cell')} of {there.total()} done "
        text += f"{'was' if found.total() == 1 else 'were'} {said}"
        each = (f"{label} {count} of {there[label]}" for label, count in found.most_common())
        sentences.append(f"{text}{'' if whole else ': ' + ', '.join(each)}.")
    if not sentences:
        return ""
    again = "`geoshrink bench resume FOLDER --stale` makes them anew."
    return " ".join(["Stale:", *sentences, again])


def standing(each: Sequence[Results]) -> Table:
    """What is done, missing and stale of each folder, read one by one."""
    rows = []
    for results in each:
        count = Counter(state for setting in results.settings for _, state in setting.states())
        done = sum(count[state] for state in (CURRENT, *WORDS))
        asked = (count.total(), done, count.total() - done, count[FAILED])
        [(folder, suite)] = results.suites
        rows.append([str(folder), suite.name, *asked, count[STALE], count[UNKNOWN]])
    return Table(
        "Cells",
        [Column(name, digits=0) for name in COLUMNS],
        rows,
        caption="Of those that are missing, some have failed. Of those that are done, the stale "
        "were made by other code than today's, the unknown before cells said which code made them.",
    )
