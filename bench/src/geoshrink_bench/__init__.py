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
    in the folder already is not run again. A row has the setting, method, options, budget,
    evaluations, forwards, evaluated, held, and each metric as (mean, sd over seeds) by its
    reference, as one number where it is that of a whole set, or as "skipped: reason"; a failed one
    has the error.
    """
    from .command import run, specs_of
    from .forwards import forwards_of
    from .store import Store
    from .suite import read
    from .summary import by_seed

    given = {models: {}} if isinstance(models, str) else dict(models)
    suite = {"name": "compare", "models": given, "methods": list(methods), **settings}
    run(suite, out, device=device, quiet=quiet, weights=weights)
    store, rows = Store(out), []
    for spec in specs_of(read(suite), out, device, weights):
        result = store.read(spec) or {"error": store.error(spec)}
        kept = ("method", "options", "budget", "kind")
        row = {**spec["setting"], **{key: spec[key] for key in kept}, **result}
        if "evaluated" in result:
            row["forwards"] = forwards_of(spec, result)
        for metric, references in row.pop("scores", {}).items():
            row[metric] = {
                k: by_seed(v, row["seeds"]) if isinstance(v, list) else v
                for k, v in references.items()
            }
        rows.append(row)
    return rows
