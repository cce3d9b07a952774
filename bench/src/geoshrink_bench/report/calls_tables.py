"""Calls needed for 25, 30 and 35 dB: two tables, a file of all of them, a chart."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from geoshrink.page import Column, Series, Table
from geoshrink.page.charts import Lines
from geoshrink.page.table import Cell as Entry

from ..page import Shown
from .calls import Between, Curves, Saving, curves, labels_in, measured_by, median
from .contests import DIRECT, OURS, PUBLISHED
from .overview import kind_of
from .results import Results
from .staleness import Made

TARGETS = (25.0, 30.0, 35.0)  # dB
MIDDLE = 30.0
DRAWN = tuple(15 + 2.5 * i for i in range(17))
RIVALS = 3  # that a chart shows
NAMES = ("model", "steps", "guidance", "shift", "interval", "lengths")
BOUNDS = (
    "Interpolated between the measured budgets, never beyond: ≤ is the fewest calls that were "
    "measured, > the most."
)


def entry(calls: Between | None) -> Entry:
    return None if calls is None else Shown(calls.high, str(calls))


def saved(own: Between | None, other: Between | None) -> Entry:
    saving = own.saving(other) if own and other else None
    return Shown(saving.low, str(saving)) if saving and saving.known else None


def calls_tables(results: Results) -> list[Table]:
    return [table for table in (calls_needed(results), calls_by_method(results)) if table.rows]


def calls_needed(results: Results) -> Table:
    """A row for each setting, metric and target in which our default or direct ran."""
    every = curves(results)
    names = ("setting", "metric", "dB", DIRECT, PUBLISHED, OURS, "best rival", "which")
    names += ("saved against direct", "against the full run")
    return Table(
        "Calls needed",
        [Column(name, digits=0) for name in names],
        [
            row_of(results, each, target)
            for each in every
            for target in TARGETS
            if {OURS, DIRECT} & set(each.points)
        ],
        caption=f"Model calls to come as near to the full run as 25, 30 and 35 dB. {BOUNDS} A "
        "method's calls are those it made, not its budget. The best rival is the one that needs "
        "fewest; it has no name where none comes so near. Saved: by our default. Counted in dB as "
        f"{measured_by(every)}.{Made(results.cells).note()}",
    )


def row_of(results: Results, each: Curves, target: float) -> list[Entry]:
    calls = each.calls(target)
    rivals = [label for label in calls if label not in results.ours and label != DIRECT]
    best = min(rivals, key=lambda label: (calls[label].high, calls[label].low), default=None)
    reached = best is not None and math.isfinite(calls[best].high)
    return [
        each.setting.title,
        each.measure.name,
        int(target),
        *(entry(calls.get(label)) for label in (DIRECT, PUBLISHED, OURS)),
        entry(calls[best]) if best else None,
        best if reached else None,
        *(saved(calls.get(OURS), other) for other in (calls.get(DIRECT), each.full)),
    ]


def calls_by_method(results: Results) -> Table:
    """Each method over all settings that it ran, the strongest against our default first."""
    every = curves(results)
    at = {target: [each.calls(target) for each in every] for target in TARGETS}
    rows = []
    for label in labels_in(every):
        row: list[Entry] = [label, sum(label in each.points for each in every)]
        for target in TARGETS:
            row += [share_of(label, every, at[target]), saving_of(label, DIRECT, at[target])]
        row.append(saving_of(OURS, label, at[MIDDLE]))
        rows.append([*row, kind_of(results, label)])
    rows.sort(key=lambda row: row[-2] if isinstance(row[-2], float) else math.inf)
    heads = [f"{target:g} dB: {what}" for target in TARGETS for what in ("calls", "saved")]
    heads.append(f"{OURS} against it, {MIDDLE:g} dB")
    return Table(
        "Calls needed, by method",
        [Column(name, digits=0) for name in ("method", "settings", *heads, "kind")],
        rows,
        caption="Calls: as a share of the full run's. Saved: against direct in the same settings; "
        "in the last column, what our default saves against the method where both ran. Lower "
        f"medians over the settings that the method ran, which differ. {BOUNDS} ≥, ≤ "
        "or two numbers: some settings did not come so near, so the median is only bounded.",
    )


def share_of(label: str, every: Sequence[Curves], found: Sequence[dict[str, Between]]) -> Entry:
    pairs = [(each.full, calls[label]) for each, calls in zip(every, found) if label in calls]
    shares = [calls.share(full.low) for full, calls in pairs if full]
    if not shares:
        return None
    middle = median(shares)
    return Shown(middle.high, middle.text(lambda share: f"{100 * share:.0f} %"))


def saving_of(one: str, other: str, found: Sequence[dict[str, Between]]) -> Entry:
    """The lower median of the savings in settings that both ran."""
    both = [calls for calls in found if one in calls and other in calls]
    savings = [calls[one].saving(calls[other]) for calls in both]
    if one == other or not savings:
        return None
    middle = median([Between(each.low, each.high) for each in savings])
    told = Saving(middle.low, middle.high)
    return Shown(told.low, str(told)) if told.known else None


def calls_sheet(results: Results) -> str:
    """CSV: every setting, metric, method and target. Numbers of calls, and savings, are known from
    `least` to `most`, which are the same where it is interpolated; an infinite end is empty.
    """
    rows = []
    for each in curves(results):
        known = {name: flat(each.setting.spec.get(name)) for name in NAMES}
        for target in TARGETS:
            calls = each.calls(target)
            for label, found in calls.items():
                row = dict(known, metric=each.measure.name, target_db=target, method=label)
                row |= dict(calls_least=found.low, calls_most=found.high)
                for name, other in {"direct": calls.get(DIRECT), "full": each.full}.items():
                    saving = found.saving(other) if other else Saving(-math.inf, math.inf)
                    row[f"saved_against_{name}_least"] = saving.low
                    row[f"saved_against_{name}_most"] = saving.high
                rows.append({k: None if is_open(v) else v for k, v in row.items()})
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0] if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def is_open(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def flat(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def calls_chart(results: Results, found: Sequence[Curves], title: str) -> Lines:
    """Calls, as a share of the full run's, against the dB that are wanted: medians over settings, a
    gap where a median is only a bound.

    Our default, the published method, direct, and the rivals that ran everywhere and need fewest
    calls for 30 dB.
    """
    everywhere = [k for k in labels_in(found) if all(k in each.points for each in found)]
    rivals = [k for k in everywhere if k not in results.ours and k != DIRECT]
    rivals.sort(key=lambda label: (share_at(label, found, MIDDLE).high, label))
    shown = [k for k in (OURS, PUBLISHED, DIRECT) if k in everywhere] + rivals[:RIVALS]
    lines = []
    for label in shown:
        shares = [share_at(label, found, target) for target in DRAWN]
        lines.append(Series(label, DRAWN, [100 * s.low if s.known else None for s in shares]))
    return Lines(title, lines, "dB to the full run that are wanted", "calls, % of the full run's")


def share_at(label: str, found: Sequence[Curves], target: float) -> Between:
    every = [(each.calls(target)[label], each.full) for each in found]
    return median([calls.share(full.low) for calls, full in every if full])
