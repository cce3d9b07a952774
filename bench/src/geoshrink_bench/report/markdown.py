"""report.md."""

from __future__ import annotations

from geoshrink.page.table import piped

from ..words import REFERENCE
from .about import facts, lead, missing
from .calls_tables import calls_tables
from .overview import overview
from .results import Results
from .staleness import stale_cells
from .tables import tables_of


def markdown(results: Results) -> str:
    parts = [f"# {piped(results.name)}", lead(results), stale_cells(results)]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts(results)))
    parts += [table.markdown() for table in (*overview(results), *calls_tables(results))]
    for reference, name in REFERENCE.items():
        tables = [(s, tables_of(results, s, reference)) for s in results.settings]
        if any(found for _, found in tables):
            parts.append(f"## Distance to {name}")
        for setting, found in tables:
            parts += [setting.about] if found else []
            parts += [table.markdown() for table in found]
            parts.append("\n".join(f"- {note}" for note in setting.notes if found))
    lost = missing(results)
    parts += [lost.markdown()] if lost.rows else []
    return "\n\n".join(part.strip() for part in parts if part) + "\n"
