"""results.csv: one row for each cell, metric and reference."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Iterator
from typing import Any

from ..score import Score
from ..words import DONE, REFERENCE
from .results import Cell, Results, Setting
from .tables import SPEEDUP

SETTING = (
    *("model", "steps", "guidance", "shift", "interval", "lengths", "samples", "seeds"),
    *("precision",),
)
COLUMNS = (
    *SETTING,
    *("method", "setting", "options", "budget", "metric", "unit", "better", "reference"),
    *("status", "mean", "sd", "identical", "count", "paper", "evaluations", "forwards"),
    *("evaluated", "held_bytes", "prepared_s", "seconds", "seconds_iqr", "speedup"),
    *("paper_speedup", "timed_on", "calibrated", "adaptive", "competes", "made_on", "torch"),
    *("weights", "version"),
)


def spreadsheet(results: Results) -> str:
    """CSV with a heading; lists are JSON, what is not known is empty, identical has mean inf.

    setting     how the paper writes the method's options
    status      done, not run, failed: reason, or skipped: reason
    sd          over seeds of the seeds' means
    forwards    the evaluations, each counted once for every branch of guidance
    seconds     median of the repeats of the latency cell, and its interquartile range; of a
                checkpoint, the mean of the loop
    paper       the paper's own number
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for setting in results.settings:
        for cell in setting.cells:
            writer.writerows(rows_of(setting, cell))
    return buffer.getvalue()


def rows_of(setting: Setting, cell: Cell) -> Iterator[dict[str, Any]]:
    common = of_cell(setting, cell)
    for metric, measure in setting.metrics.items():
        names = dict(metric=metric, unit=measure.unit, better=measure.better)
        names |= dict(paper=cell.paper.get(metric))
        for reference in setting.references or REFERENCE:
            score = cell.score(metric, reference)
            yield dict(common, **names, reference=reference, **of_score(score))


def of_cell(setting: Setting, cell: Cell) -> dict[str, Any]:
    result, made = cell.result, cell.result.get("made", {})
    return dict(
        {key: plain(setting.spec.get(key)) for key in SETTING},
        method=cell.method,
        setting=cell.note,
        options=plain(cell.options),
        budget=cell.budget,
        **{key: cell.spec.get(key) for key in ("weights", "version")},
        **{key: result.get(key) for key in ("calibrated", "adaptive", "evaluations", "forwards")},
        evaluated=plain(result.get("evaluated")),
        held_bytes=result.get("held"),
        prepared_s=result.get("prepared"),
        competes=cell.competes if result else None,
        made_on=made.get("on"),
        torch=made.get("torch"),
        seconds=cell.median,
        seconds_iqr=spread(cell.seconds) if cell.seconds else None,
        timed_on=cell.on or None,
        speedup=cell.speedup,
        paper_speedup=cell.paper.get(SPEEDUP),
    )


def of_score(score: Score | str) -> dict[str, Any]:
    if isinstance(score, str):
        return dict(status=score)
    numbers = {key: getattr(score, key) for key in ("mean", "sd", "identical", "count")}
    return dict(numbers, status=DONE)


def spread(seconds: list[float]) -> float:
    """The interquartile range."""
    if len(seconds) < 2:
        return 0.0
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return high - low


def plain(value: Any) -> Any:
    """A list or dictionary as JSON; one that is empty, and None, as nothing."""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False) if value else ""
    return value
