"""report.md."""

from __future__ import annotations

from geoshrink.page.table import piped

from .duels import duels
from .facts import facts, lead
from .glance import glance
from .losses import losses
from .missing import missing
from .results import Results
from .tables import REFERENCE, quality, wins


def markdown(results: Results) -> str:
    parts = [f"# {piped(results.name)}", lead(results)]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts(results)))
    references = [r for r in REFERENCE if any(r in s.references for s in results.settings)]
    tables = [losses(results), glance(results), duels(results)]
    tables += [wins(results, r) for r in references]
    parts += [table.markdown() for table in tables if table.rows]
    for reference in references:
        parts.append(f"## Distance to {REFERENCE[reference]}")
        for setting in results.settings:
            if reference in setting.references:
                parts += [
                    quality(results, setting, metric, reference).markdown()
                    for metric in setting.metrics
                ]
    lost = missing(results)
    if lost.rows:
        parts.append(lost.markdown())
    return "\n\n".join(part.strip() for part in parts) + "\n"
