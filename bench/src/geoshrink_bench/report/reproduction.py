"""The paper's tables on one page: its own numbers beside what was measured, losses first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from geoshrink.page import Column, Page, Section, Table
from geoshrink.page.markup import element, paragraphs

from ..methods.ours import FORMS
from ..page import Shown
from ..paper.columns import COLUMNS
from ..paper.inventory import Found
from ..paper.tables import PaperTable
from ..words import NOT_RUN, Measure, Row
from .contests import OURS, PUBLISHED
from .overview import EVEN
from .results import Cell, Setting
from .tables import beside, number

DRY = "DRY RUN: RANDOM WEIGHTS"
DRY_NOTE = (
    "Every model here is tiny and has random weights, so no number that was measured says anything "
    "about quality or speed. The page shows that all goes from the folders to the tables."
)
RIVALS = (
    "Rivals, and the published method: rows with its budget, or with a setting of their own, whose "
    "calls (NFE) may be more or fewer. Other forms of ours are left out."
)
PLANNED = "a profile here needs the network outside its pipeline's loop; learned stands for it"


@dataclass(frozen=True)
class Entry:
    """A suite on the page: what was found of it, and its cells where it ran."""

    found: Found
    setting: Setting
    why: str = ""  # it was not run now


def waiting(found: Found) -> Setting:
    """The rows of a suite that did not run, with the paper's own numbers."""
    suite = found.suite
    cells = [Cell(**vars(row), status=NOT_RUN) for row in (Row("full"), *suite.rows)]
    measures = {name: Measure.of(COLUMNS[name]) for name in suite.columns}
    return Setting(suite.title, suite.host, {}, cells, measures, ["full"], label=suite.label)


@dataclass(frozen=True)
class Gap:
    """A number behind another, by so many dB (errors count as 20·log₁₀ of their ratio)."""

    suite: str
    metric: str
    method: str
    mine: float
    other: str
    theirs: float
    behind: float


def rivals_ahead(entry: Entry) -> Iterator[Gap]:
    """Our default beside rivals and the published method: rows with its budget, or with a setting
    of their own; other forms of ours are left out.
    """
    for cell in entry.setting.cells:
        for name, measure in entry.setting.metrics.items():
            mine = cell.mean(name) if cell.label == OURS else None
            for other in entry.setting.cells if mine is not None else ():
                theirs = other.mean(name)
                same = other.budget in (cell.budget, None) and other.method != "full"
                rival = other.label == PUBLISHED or other.method not in FORMS
                if theirs is not None and mine is not None and same and rival:
                    yield gap(entry, measure, cell.title, mine, other.title, theirs)


def paper_ahead(entry: Entry) -> Iterator[Gap]:
    """Where what was measured of a row is behind the paper's own number of it."""
    for cell in entry.setting.cells:
        for name, measure in entry.setting.metrics.items():
            mine, theirs = cell.mean(name), cell.paper.get(name)
            if mine is not None and theirs is not None:
                yield gap(entry, measure, cell.title, mine, "the paper", theirs)


def gap(entry: Entry, measure: Measure, method: str, mine: float, other: str, theirs: float) -> Gap:
    behind = -measure.lead(mine, theirs)
    return Gap(entry.found.name, measure.heading, method, mine, other, theirs, behind)


def gaps(title: str, every: Sequence[Gap], caption: str) -> Table:
    """The worst first; draws are left out."""
    lost = sorted((g for g in every if g.behind > EVEN), key=lambda g: -g.behind)
    names = ("suite", "metric", "row", "measured", "behind", "its number", "by, dB")
    rows = [
        [g.suite, g.metric, g.method, shown(g.mine), g.other, shown(g.theirs), gap_of(g.behind)]
        for g in lost
    ]
    count = f"{len(lost)} of {len(every)} comparisons, the worst first. "
    return Table(title, [Column(name) for name in names], rows, caption=count + caption)


def shown(value: float) -> Shown:
    return Shown(value, "identical" if math.isinf(value) else number(value))


def gap_of(behind: float) -> Shown:
    return Shown(behind, "∞" if math.isinf(behind) else number(behind))


def losses(entries: Sequence[Entry]) -> list[Table]:
    ours = [g for entry in entries for g in rivals_ahead(entry)]
    theirs = [g for entry in entries for g in paper_ahead(entry)]
    unit = f"Errors count as 20·log₁₀ of their ratio; {EVEN:g} dB or less is a draw."
    return [
        gaps("Where our default loses", ours, f"{RIVALS} {unit}"),
        gaps("Where what was measured is behind the paper", theirs, unit),
    ]


def missing(entries: Sequence[Entry]) -> Table:
    rows = [[entry.found.name, entry.why] for entry in entries if entry.why]
    rows.append(["planned, in every suite", PLANNED])
    return Table("What was not run", [Column("suite"), Column("why")], rows)


def table_of(paper: PaperTable, entry: Entry) -> Table:
    made = beside(entry.setting)
    note = f"Not run: {entry.why}." if entry.why else ""
    text = "\n\n".join(part for part in (note, made.caption, entry.setting.about) if part)
    title = f"{paper.name}: {entry.setting.title}"
    return Table(title, made.columns, made.rows, caption=text, group_by=made.group_by)


@dataclass(frozen=True)
class Warned:
    """A note that cannot be overlooked."""

    title: str
    text: str

    def html(self) -> str:
        style = "border: 4px solid #c00; padding: 1em; font-size: 1.3em"
        body = element("h2", self.title, style="color: #c00"), paragraphs(self.text)
        return element("section", *body, class_="warned", style=style)


def sections(tables: dict[PaperTable, list[Entry]]) -> list[Table]:
    entries = [entry for found in tables.values() for entry in found]
    made = [table_of(paper, entry) for paper, found in tables.items() for entry in found]
    return [*losses(entries), *made, missing(entries)]


def write(tables: dict[PaperTable, list[Entry]], out: Path, command: str, dry: bool) -> list[Path]:
    """paper.html and paper.md, or those of a dry run under its own name."""
    title = "The paper's tables, measured"
    lead = f"Made by `{command}`. In each table a number is ours, and beside it is the paper's own."
    parts = sections(tables)
    warned: list[Section] = [Warned(DRY, DRY_NOTE)] if dry else []
    page = Page(f"{title}: {DRY}" if dry else title, lead, [*warned, *parts])
    words = [f"# {page.title}", *([f"> **{DRY}.** {DRY_NOTE}"] if dry else []), lead]
    words += [part.markdown().strip() for part in parts]
    stem = "dry-run" if dry else "paper"
    out.mkdir(parents=True, exist_ok=True)
    text = out / f"{stem}.md"
    text.write_text("\n\n".join(words) + "\n", encoding="utf-8")
    return [page.write(out / f"{stem}.html"), text]
