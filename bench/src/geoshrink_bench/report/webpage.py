"""report.html: the whole report as one page that loads nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from geoshrink.page import Column, Folded, Page, Section, Table
from geoshrink.page.markup import element

from ..summary import measure_of
from .charts import charts
from .duels import duels
from .facts import facts, lead
from .glance import glance
from .losses import losses
from .missing import missing
from .results import DONE, Results, Setting
from .samples import look, shown_cells
from .tables import REFERENCE, quality, wins


@dataclass(frozen=True)
class Code:
    """Text as it stands."""

    text: str

    def html(self) -> str:
        return element("section", element("pre", element("code", self.text)))


def webpage(results: Results, bar: Callable[[int], Any], samples: int | None = None) -> Page:
    references = [r for r in REFERENCE if any(r in s.references for s in results.settings)]
    sections: list[Section] = []
    tables = [losses(results), glance(results), duels(results)]
    tables += [wins(results, r) for r in references]
    sections += [table for table in tables if table.rows]
    looks = {s.model: s for s in reversed(results.settings) if shown_cells(s)}
    with bar(sum(len(shown_cells(setting)) for setting in looks.values())) as progress:
        tick = progress.update if progress else lambda: None
        for setting in results.settings:
            seen = look(setting, tick, samples) if looks.get(setting.model) is setting else []
            sections.append(of_setting(results, setting, seen))
    lost = missing(results)
    if lost.rows:
        sections.append(Folded(lost.title, [lost], f"{len(lost.rows)} rows"))
    sections.append(origin(results))
    return Page(results.name, lead(results), sections, "Made by `geoshrink bench report`.")


def of_setting(results: Results, setting: Setting, seen: Sequence[Section]) -> Folded:
    tables = [
        replace(
            quality(results, setting, metric, reference),
            title=f"{measure_of(metric).heading}, to {REFERENCE[reference]}",
        )
        for metric in setting.metrics
        for reference in setting.references
    ]
    count = sum(cell.status == DONE for cell in setting.cells)
    return Folded(
        setting.title,
        [*charts(setting), *seen, *tables],
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
