"""The proof of geoshrink: trained models, rivals, metrics, and a runner that never loses a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def compare(
    models: str | Mapping[str, Any],
    methods: Sequence[Any],
    out: str | Path = "cells/compare",
    *,
    device: str = "cpu",
    quiet: bool = False,
    weights: str | Path | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Runs methods on models of the zoo as `geoshrink bench run` does, and gives a row per cell.

        rows = compare({"motion": {"budgets": [10]}}, ["direct", "GeoShrink (default)", "FORA"])

    `settings` are those of a suite: samples, seeds, converged, metrics, latency, repeats. What is
    in the folder already is not run again. A row has the setting, method, options, budget, and
    what the cell holds: evaluations, forwards, evaluated, held, …; a failed one has the error. Each
    metric is a report.score.Score by its reference, or "skipped: reason".
    """
    from .report import load

    given = {models: {}} if isinstance(models, str) else dict(models)
    suite = {"name": "compare", "models": given, "methods": list(methods), **settings}
    run(suite, out, device=device, quiet=quiet, weights=weights)
    rows = []
    for setting in load([out]).settings:
        for cell in setting.cells:
            row = {**setting.spec, **cell.result, "method": cell.method, "options": cell.options}
            row |= dict(budget=cell.budget, **({"error": cell.reason} if cell.reason else {}))
            row.pop("scores", None)
            for (metric, reference), score in cell.scores.items():
                row.setdefault(metric, {})[reference] = score
            rows.append(row)
    return rows


def run(source: Any, out: str | Path | None = None, **options: Any) -> Any:
    """Runs a suite into a folder, or goes on with it: command.run()."""
    from .command import run

    return run(source, out, **options)
