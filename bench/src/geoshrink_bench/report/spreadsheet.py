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

SETTING = ("model", "steps", "guidance", "shift", "interval", "lengths", "samples", "seeds")
NUMBERS = ("mean", "sd", "identical", "count")  # of a score


def spreadsheet(results: Results) -> str:
    """CSV with a heading; lists are JSON, what is not known is empty, identical has mean inf.

    setting     how the paper writes the method's options
    status      done, not run, failed: reason, or skipped: reason
    sd          over seeds of the seeds' means
    forwards    the evaluations, each counted once for every branch of guidance
    seconds     median of the repeats of the latency cell, and its interquartile range; of a
                checkpoint, the mean of the loop
    paper       the paper's own number
    code        current, stale, or stale: made by unknown code (geoshrink_bench/code.py);
                timed_code is that of the latency cell
    """
    rows = [row for s in results.settings for cell in s.cells for row in rows_of(s, cell)]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0] if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def rows_of(setting: Setting, cell: Cell) -> Iterator[dict[str, Any]]:
    result, made = cell.result, cell.result.get("made", {})
    asked = {key: plain(setting.spec.get(key)) for key in (*SETTING, "precision")}
    asked |= dict(method=cell.method, setting=cell.setting, options=plain(cell.options))
    took = dict(
        evaluations=result.get("evaluations"),
        forwards=result.get("forwards"),
        evaluated=plain(result.get("evaluated")),
        held_bytes=result.get("held"),
        prepared_s=result.get("prepared"),
        seconds=cell.median,
        seconds_iqr=spread(cell.seconds) if cell.seconds else None,
        speedup=cell.speedup,
        paper_speedup=cell.paper.get(SPEEDUP),
        timed_on=cell.on or None,
        calibrated=result.get("calibrated"),
        adaptive=result.get("adaptive"),
        competes=cell.competes if result else None,
        code=cell.code or None,
        timed_code=cell.timed_code or None,
        made_on=made.get("on"),
        torch=made.get("torch"),
        weights=cell.spec.get("weights"),
        version=cell.spec.get("version"),
    )
    for metric, measure in setting.metrics.items():
        for reference in setting.references or REFERENCE:
            score = cell.score(metric, reference)
            done = isinstance(score, Score)
            yield dict(
                asked,
                budget=cell.budget,
                metric=metric,
                unit=measure.unit,
                better=measure.better,
                reference=reference,
                status=DONE if done else score,
                **{key: getattr(score, key) if done else None for key in NUMBERS},
                paper=cell.paper.get(metric),
                **took,
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
