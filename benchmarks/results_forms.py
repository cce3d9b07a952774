"""What one exact picture, or a profile, adds to our default: two parts of docs/results.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from results_excerpts import piped
from results_methods import BUDGETS, leads_of

from geoshrink_bench.report.contests import OURS
from geoshrink_bench.report.results import Results

MARGIN = 0.5  # dB: less is no loss
WORST = 6  # losses that are shown


class Gain(NamedTuple):
    """Of a form over the default, in one contest; dB are those of the report."""

    setting: str
    metric: str
    budget: int
    db: float


def gains(results: Results, form: str) -> list[Gain]:
    """In every contest that both ran."""
    leads = leads_of(results)
    ours, its = leads.get(OURS, {}), leads.get(form, {})
    return [
        Gain(*key, budget, lead - ours[budget][key])
        for budget, own in sorted(its.items())
        for key, lead in own.items()
        if key in ours.get(budget, {})
    ]


def over_default(pools: Sequence[tuple[str, Results]], form: str) -> str:
    """A row for each pool of models, then the losses."""
    every = [(where, gains(results, form)) for where, results in pools]
    columns = ("contests", "mean", "least", f"behind by > {MARGIN:g}")
    heading = ("dB over the default", *columns, *(f"{b} calls (least)" for b in BUDGETS))
    table = piped(heading, [row(where, found) for where, found in every if found])
    lost = sorted((g for _, found in every for g in found if g.db < -MARGIN), key=lambda g: g.db)
    lines = [
        f"- {each.setting}, {each.metric}, {each.budget} calls: {-each.db:.1f} dB behind"
        for each in lost[:WORST]
    ]
    shown = f", the worst {len(lines)}" if len(lost) > len(lines) else ""
    return "\n\n".join([table, *([f"Where it loses{shown}:", "\n".join(lines)] if lines else [])])


def row(where: str, found: Sequence[Gain]) -> list[str]:
    values = [each.db for each in found]
    lost = sum(db < -MARGIN for db in values)
    cells = [where, str(len(values)), f"**{statistics.fmean(values):+.1f}**", f"{min(values):+.1f}"]
    for budget in BUDGETS:
        own = [each.db for each in found if each.budget == budget]
        cells.append(f"{statistics.fmean(own):+.1f} ({min(own):+.1f})" if own else "—")
    return [each.replace("-", "−") for each in [*cells[:4], str(lost), *cells[4:]]]
