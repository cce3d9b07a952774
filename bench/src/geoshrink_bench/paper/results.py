"""What a suite's cells say, row by row: means and spread, or why there is none.

The columns of tools outside are exported here once all samples are there, and read when the tool
has run.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..metrics.base import Skipped
from ..store import name_of, put
from ..summary import by_seed
from .cells import Cells
from .columns import COLUMNS, Column, Outside, Whole
from .runner import IDENTICAL
from .sample import Sample
from .suite import FULL, Row

Watch = Callable[[Iterable[Sample], int, str], Iterable[Sample]]
FPS = 24.0  # of exported films, where the suite does not say


@dataclass(frozen=True)
class Value:
    """The mean over samples, its sd over seeds, how many samples were identical to the full run.

    Those that are identical are not in the mean, unless all are.
    """

    mean: float
    sd: float | None = None
    identical: int = 0


@dataclass(frozen=True)
class Result:
    """One row of the table: each column a Value, or words that say why there is none."""

    row: Row
    done: int
    evaluations: float | None = None
    forwards: float | None = None
    seconds: float | None = None
    speedup: float | None = None
    reasons: list[str] = field(default_factory=list)  # why more was queried than planned
    columns: dict[str, Value | str] = field(default_factory=dict)


def results(cells: Cells, watch: Watch = lambda samples, count, what: samples) -> list[Result]:
    """Of the full run, and of every row; watch(samples, count, tool) sees what is exported."""
    there = {row.label: results_in(cells, row) for row in (FULL, *cells.suite.rows)}
    return [result_of(cells, row, there, watch) for row in (FULL, *cells.suite.rows)]


def results_in(cells: Cells, row: Row) -> list[dict[str, Any] | None]:
    return [cells.store.read(cells.spec(row, *case)) for case in cells.cases()]


def result_of(cells: Cells, row: Row, there: dict[str, list[Any]], watch: Watch) -> Result:
    mine, full = there[row.label], there[FULL.label]
    done = [cell for cell in mine if cell is not None]
    if not done:
        reason = why(cells, row)
        return Result(row, 0, columns=dict.fromkeys(cells.suite.columns, reason))
    both = [(a["seconds"], b["seconds"]) for a, b in zip(mine, full) if a and b]
    speedup = sum(b for _, b in both) / sum(a for a, _ in both) if both else None
    return Result(
        row,
        len(done),
        statistics.fmean(len(cell["evaluated"]) + cell["partial"] for cell in done),
        statistics.fmean(cell["forwards"] for cell in done),
        statistics.fmean(cell["seconds"] for cell in done),
        speedup,
        list(dict.fromkeys(reason for cell in done for reason in cell["reasons"])),
        {
            name: column_of(cells, row, COLUMNS[name], mine, full, watch)
            for name in cells.suite.columns
        },
    )


def why(cells: Cells, row: Row) -> str:
    """The reason that lies beside the first missing cell."""
    for case in cells.cases():
        error = cells.store.error(cells.spec(row, *case))
        if error:
            return error if error.startswith("skipped") else f"failed: {error.splitlines()[-1]}"
    return "not run"


def column_of(
    cells: Cells, row: Row, column: Column, mine: list[Any], full: list[Any], watch: Watch
) -> Value | str:
    missing = sum(cell is None for cell in mine)
    if missing:
        return f"{missing} of {len(mine)} missing: {why(cells, row)}"
    try:
        if isinstance(column, Outside):
            return spread(outside(cells, row, column, watch), cells.suite.seeds)
        if row is FULL and not getattr(column, "alone", False):
            return "the reference"
        found = [cell["scores"].get(column.name, {"skipped": "not measured"}) for cell in mine]
        for word in ("failed", "skipped"):
            reasons = [each[word] for each in found if word in each]
            if reasons:
                share = "" if len(reasons) == len(found) else f" {len(reasons)} of {len(found)}"
                return f"{word}{share}: {reasons[0]}"
        values = [each["value"] for each in found]
        if isinstance(column, Whole):
            values = per_seed(column, values, full, cells.suite.seeds)
        return spread(values, cells.suite.seeds)
    except Skipped as reason:
        return f"skipped: {reason}"
    except Exception as error:  # the table is written whatever a tool's export meets
        return f"failed: {type(error).__name__}: {error}"


def spread(values: list[float], seeds: int) -> Value:
    """Of one value for each sample, seed by seed, or of one that stands for all."""
    identical = sum(value == IDENTICAL for value in values)
    if identical == len(values):
        return Value(IDENTICAL, None, identical)
    mean = statistics.fmean(value for value in values if value != IDENTICAL)
    if identical or seeds == 1 or len(values) < seeds:
        return Value(mean, None, identical)
    return Value(*by_seed(values, seeds))


def per_seed(column: Whole, features: list[Any], full: list[Any], seeds: int) -> list[float]:
    """The distance of each seed's set from the full runs of the same seed."""
    reference = [cell and cell["scores"].get(column.name, {}).get("value") for cell in full]
    if None in reference:
        raise Skipped("the full runs have not been measured")
    size = len(features) // seeds
    sets = [slice(i * size, (i + 1) * size) for i in range(seeds)]
    return [column.of(torch.tensor(features[s]), torch.tensor(reference[s])) for s in sets]


def outside(cells: Cells, row: Row, column: Outside, watch: Watch) -> list[float]:
    """What a tool said of the row's samples, exported once; VBench has two prompts twice."""
    unique = {name_of(cells.spec(row, *case)): case for case in cells.cases()}
    specs = [cells.spec(row, *case) for case in unique.values()]
    folder = cells.store.folder / "tools" / column.name / name_of(list(unique))
    if not folder.exists():
        gone = sum(not cells.path(spec).is_file() for spec in specs)
        if gone:
            raise Skipped(f"{gone} of {len(specs)} samples were not kept: run with keep=True")
        beside = folder.with_name(f".{folder.name}")
        shutil.rmtree(beside, ignore_errors=True)
        prompts = [prompt for prompt, _ in unique.values()]
        samples = watch(kept(cells, specs), len(specs), column.name)
        column.export(beside, samples, prompts, cells.suite.fps or FPS)
        os.replace(beside, folder)
    try:
        return column.read(folder)
    except Skipped as reason:
        _, _, commands = str(reason).partition("\n")
        put(folder / "run.sh", f"{commands}\n".encode())
        raise Skipped(
            f"{column.name} has not run: run.sh in every folder of {folder.parent}, in the "
            "environment of its own, then this suite again"
        ) from None


def kept(cells: Cells, specs: list[dict[str, Any]]) -> Iterator[Sample]:
    for spec in specs:
        found = Sample.load(cells.path(spec))
        if found is None:
            raise ValueError(f"{cells.path(spec)} is damaged: delete it and run again")
        yield found
