"""report.html: the whole report as one page that loads nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from geoshrink.page import Column, Page, Section, Table
from geoshrink.page.markup import element

from ..page import Folded
from ..words import DONE, REFERENCE
from .about import facts, lead, missing
from .calls_tables import calls_tables
from .charts import charts
from .contests import chosen
from .looks import look
from .overview import overview
from .results import Results, Setting
from .staleness import stale_cells
from .tables import tables_of

FIRST = 2  # charts that are not folded away


@dataclass(frozen=True)
class Code:
    """Text as it stands."""

    text: str

    def html(self) -> str:
        return element("section", element("pre", element("code", self.text)))


def webpage(results: Results, bar: Callable[[int], Any], samples: int | None = None) -> Page:
    """Samples are shown of the first setting of each model that kept some."""
    sections: list[Section] = [*overview(results), *calls_tables(results)]
    seen: set[str] = set()
    with bar(sum(len(setting.cells) for setting in results.settings)) as progress:
        tick = progress.update if progress else lambda: None
        for setting in results.settings:
            shown = chosen(setting, results.ours)
            looked = [] if setting.model in seen else look(setting, shown, samples, tick)
            seen |= {setting.model} if looked else set()
            sections.append(of_setting(results, setting, charts(setting, shown), looked))
    lost = missing(results)
    if lost.rows:
        sections.append(Folded(lost.title, [lost], f"{len(lost.rows)} rows"))
    about = [lead(results), stale_cells(results), *(setting.about for setting in results.settings)]
    text = "\n\n".join(part for part in about if part)
    return Page(
        results.name, text, [*sections, origin(results)], "Made by `geoshrink bench report`."
    )


def of_setting(
    results: Results, setting: Setting, drawn: list[Section], looked: list[Any]
) -> Folded:
    tables = [
        replace(table, title=table.title.removeprefix(f"{setting.title}: ") + to)
        for reference in setting.references
        for to in ("" if setting.label else f", to {REFERENCE[reference]}",)
        for table in tables_of(results, setting, reference)
    ]
    notes = Table("Notes", [Column("note")], [[note] for note in setting.notes])
    rest = Folded("The other plots", drawn[FIRST:], f"{len(drawn) - FIRST} plots")
    count = sum(cell.status == DONE for cell in setting.cells)
    return Folded(
        setting.title,
        [
            *drawn[:FIRST],
            *looked,
            *tables,
            *([rest] if drawn[FIRST:] else []),
            *([notes] if setting.notes else []),
        ],
        f"{count} of {len(setting.cells)} cells",
        open=setting is results.settings[0],
    )


def origin(results: Results) -> Folded:
    """Versions, hashes, devices, and the suites as they were read."""
    names = [Column("what"), Column("value")]
    table = Table("Where the numbers come from", names, facts(results))
    suites = [
        Code(json.dumps(suite.source, ensure_ascii=False, indent=1)) for _, suite in results.suites
    ]
    return Folded(table.title, [table, *suites])
