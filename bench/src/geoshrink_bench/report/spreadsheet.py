"""results.csv: one row for each cell, metric and reference."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Iterator
from typing import Any

from ..forwards import forwards_of
from ..setting import REFERENCES
from ..summary import measure_of
from .results import DONE, Cell, Results, Setting
from .score import Score

SETTING = ("model", "steps", "guidance", "shift", "interval", "lengths", "samples", "seeds")
COLUMNS = (
    *SETTING,
    *("precision", "method", "options", "budget", "metric", "unit", "better", "reference"),
    *("status", "mean", "sd", "identical", "count", "evaluations", "forwards", "evaluated"),
    *("held_bytes", "prepared_s", "seconds", "seconds_iqr", "timed_on", "calibrated", "adaptive"),
    *("competes", "made_on", "torch", "weights", "version"),
)


def spreadsheet(results: Results) -> str:
    """CSV with a heading; lists are JSON, what is not known is empty, identical has mean inf.

    status      done, not run, failed: reason, or skipped: reason
    sd          over seeds of the seeds' means
    forwards    the evaluations, each counted once for every branch of guidance
    seconds     median of the repeats of the latency cell, and its interquartile range
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for setting in results.settings:
        for cell in setting.cells:
            writer.writerows(rows_of(setting, cell))
    return buffer.getvalue()


def rows_of(setting: Setting, cell: Cell) -> Iterator[dict[str, Any]]:
    common = dict(of_spec(cell), **of_result(cell), **of_seconds(cell))
    for metric in setting.metrics:
        measure = measure_of(metric)
        names = dict(metric=metric, unit=measure.unit, better=measure.better)
        for reference in setting.references or REFERENCES:
            score = cell.score(metric, reference)
            yield dict(common, **names, reference=reference, **of_score(score, cell))


def of_spec(cell: Cell) -> dict[str, Any]:
    spec = cell.spec
    setting = {key: plain(spec["setting"].get(key)) for key in (*SETTING, "precision")}
    made = {key: spec.get(key) for key in ("weights", "version")}
    return dict(
        setting, method=spec["method"], options=plain(spec["options"]), budget=cell.budget, **made
    )


def of_result(cell: Cell) -> dict[str, Any]:
    if cell.status != DONE:
        return {}
    result = cell.result
    known = {key: result.get(key) for key in ("calibrated", "adaptive", "evaluations")}
    made = result.get("made", {})
    return dict(
        known,
        forwards=forwards_of(cell.spec, result),
        evaluated=plain(result.get("evaluated")),
        held_bytes=result.get("held"),
        prepared_s=result.get("prepared"),
        competes=cell.competes,
        made_on=made.get("on"),
        torch=made.get("torch"),
    )


def of_seconds(cell: Cell) -> dict[str, Any]:
    if not cell.seconds:
        return {}
    return dict(
        seconds=statistics.median(cell.seconds), seconds_iqr=spread(cell.seconds), timed_on=cell.on
    )


def of_score(score: Score | str, cell: Cell) -> dict[str, Any]:
    if isinstance(score, str):
        return dict(status=f"{score}: {cell.reason}" if cell.reason else score)
    return dict(
        status=DONE, mean=score.mean, sd=score.sd, identical=score.identical, count=score.count
    )


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
