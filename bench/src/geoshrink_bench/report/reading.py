"""Reads folders of cells, beside the cells that their suites ask for.

No weights are needed: a folder can be read on any machine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..store import Store
from ..suite import Suite, read
from .results import DONE, FAILED, NOT_RUN, Cell, Results, Setting, Spec


def key_of(spec: Spec) -> str:
    """What a suite asks for, without what made it."""
    parts = [spec[k] for k in ("setting", "budget", "method", "options")]
    return json.dumps(parts, sort_keys=True)


def key_of_setting(spec: Spec) -> str:
    return json.dumps(spec["setting"], sort_keys=True)


@dataclass(frozen=True)
class Found:
    """A cell's file, or that of a failure."""

    path: Path
    spec: Spec
    content: Any  # the result, or the traceback
    made: float

    @property
    def origin(self) -> tuple[Any, ...]:
        """What else than the suite decides what a cell is."""
        return tuple(self.spec.get(k) for k in ("weights", "version", "converged"))


def load(folders: Sequence[str | Path], tick: Callable[[], Any] = lambda: None) -> Results:
    """Reads folders of `geoshrink bench run`; tick() after each cell.

    Of cells that differ in weights, version or converged steps those of the newest are taken, for
    each model: numbers of two models never stand in one table. A cell of a setting of the suite is
    read and shown also where the suite does not ask for its method any more.
    """
    if not folders:
        raise ValueError("a report needs at least one folder of cells")
    suites = [(Path(folder), suite_of(Path(folder))) for folder in dict.fromkeys(folders)]
    found: list[Found] = []
    failures: list[Found] = []
    damaged: list[Path] = []
    for folder, _ in suites:
        whole, broken = cells_in(folder, tick)
        found, damaged = found + whole, damaged + broken
        failures += failures_in(folder)
    if not found and not failures:
        names = ", ".join(str(folder) for folder, _ in suites)
        more = f" ({len(damaged)} are damaged)" if damaged else ""
        raise ValueError(
            f"{names} has no cells{more}: run `geoshrink bench resume {suites[0][0]}` first"
        )
    wanted = {key_of(spec): Cell(spec) for _, suite in suites for spec in suite.cells()}
    for suite in (suite for _, suite in suites if suite.latency):
        for spec in suite.first_of_each():
            wanted[key_of(spec)].timing = NOT_RUN
    current, left_out = newest(found)
    settings = {key_of_setting(cell.spec) for cell in wanted.values()}
    for f in current:
        if f.spec["kind"] == "fidelity" and key_of_setting(f.spec) in settings:
            wanted.setdefault(key_of(f.spec), Cell(f.spec))
    strangers = sum(key_of(f.spec) not in wanted for f in current)
    if strangers:
        left_out.append(f"{strangers} cells that the suite does not ask for (any more)")
    for f in failures:
        fill_failure(wanted.get(key_of(f.spec)), f)
    for f in current:
        fill(wanted.get(key_of(f.spec)), f)
    return Results(suites, grouped(wanted.values()), damaged, left_out)


def suite_of(folder: Path) -> Suite:
    path = folder / "suite.json"
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is no folder of a bench: it has no suite.json")
    try:
        source = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(source, dict):
        raise ValueError(f"{path} is damaged: it holds {source!r}, no suite")
    return read(source)


def cells_in(folder: Path, tick: Callable[[], Any]) -> tuple[list[Found], list[Path]]:
    """(the whole cells, the files that are none)."""
    store, found, damaged = Store(folder), [], []
    for path in store.files():
        result = store.whole(path)
        if result is None:
            damaged.append(path)
        else:
            spec = json.loads(path.read_text(encoding="utf-8"))["spec"]
            found.append(Found(path, spec, result, path.stat().st_mtime))
        tick()
    return found, damaged


def failures_in(folder: Path) -> list[Found]:
    found = []
    for path in sorted(folder.glob("*.error.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found.append(Found(path, content["spec"], content["error"], path.stat().st_mtime))
        except (ValueError, KeyError, TypeError):
            continue  # half a message about a cell that is not there: it counts as not run
    return found


def newest(found: list[Found]) -> tuple[list[Found], list[str]]:
    """(the cells of each model's newest origin, a sentence for each model that has others)."""
    latest: dict[str, Found] = {}
    for f in found:
        model = f.spec["setting"]["model"]
        latest[model] = max(latest.get(model, f), f, key=lambda each: each.made)
    current = [f for f in found if f.origin == latest[f.spec["setting"]["model"]].origin]
    kept = set(map(id, current))
    older = Counter(f.spec["setting"]["model"] for f in found if id(f) not in kept)
    return current, [
        f"{count} cells of {model} with other weights, version or converged steps than the newest"
        for model, count in older.items()
    ]


def fill_failure(cell: Cell | None, failure: Found) -> None:
    if cell is None:
        return
    reason = (str(failure.content).strip().splitlines() or [""])[-1]
    if failure.spec["kind"] == "latency":
        cell.timing = f"{FAILED}: {reason}"
    else:
        cell.status, cell.reason, cell.folder = FAILED, reason, failure.path.parent


def fill(cell: Cell | None, found: Found) -> None:
    """The newest of several, of latencies and results alike."""
    if cell is None:
        return
    if found.spec["kind"] == "latency":
        if found.made >= cell.timed:
            cell.seconds, cell.on = found.content["seconds"], found.spec.get("on", "")
            cell.timing, cell.timed = DONE, found.made
    elif found.made >= cell.made:
        cell.spec, cell.result, cell.made = found.spec, found.content, found.made
        cell.status, cell.reason, cell.folder = DONE, "", found.path.parent


def grouped(cells: Iterable[Cell]) -> list[Setting]:
    settings: dict[str, list[Cell]] = {}
    for cell in cells:
        settings.setdefault(key_of_setting(cell.spec), []).append(cell)
    return [Setting(group[0].spec["setting"], group) for group in settings.values()]
