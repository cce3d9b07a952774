"""Reads the cells of suites on the zoo, beside those that the suites ask for.

No weights are needed: a folder can be read on any machine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cases.zoo import REFERENCES, reference_key
from ..cases.zoo_case import forwards_of
from ..cases.zoo_suite import ZooSuite
from ..code import state_of
from ..metrics.base import is_current
from ..metrics.zoo import all_metrics, metrics_of
from ..models import recipes
from ..samples import read_samples
from ..score import Score
from ..store import Store
from ..words import DONE, FAILED, NOT_RUN, SKIPPED, Measure, title_of
from .results import Cell, Setting, Shot, Spec

KEY = ("setting", "budget", "method", "options")


def key_of(spec: Spec) -> str:
    """What a suite asks for, without what made it."""
    return json.dumps([spec[k] for k in KEY], sort_keys=True)


def key_of_setting(spec: Spec) -> str:
    return json.dumps(spec["setting"], sort_keys=True)


@dataclass(frozen=True)
class Found:
    """What a cell's file holds, or that of a failure."""

    folder: Path
    spec: Spec
    content: Any  # the result, or the traceback
    made: float = 0.0

    @property
    def model(self) -> str:
        return self.spec["setting"]["model"]

    @property
    def origin(self) -> tuple[Any, ...]:
        """What else than the suite decides what a cell is."""
        return tuple(self.spec.get(k) for k in ("weights", "version", "converged"))


def settings_of(
    suites: Sequence[tuple[Path, ZooSuite]], tick: Callable[[], Any], empty: bool = False
) -> tuple[list[Setting], list[Path], list[str]]:
    """(the settings, the damaged files, sentences about what is left out); tick() after each cell.

    Of cells that differ in weights, version or converged steps those of the newest are taken, for
    each model: numbers of two models never stand in one table. A cell of a setting of the suite is
    read and shown also where the suite does not ask for its method any more. Folders without any
    cell are refused, unless they may be `empty`.
    """
    found: list[Found] = []
    failures: list[Found] = []
    damaged: list[Path] = []
    for folder, _ in suites:
        store = Store(folder)
        for path in store.files():
            cell = store.load(path)
            if cell is None:
                damaged.append(path)
            else:
                found.append(Found(folder, *cell, path.stat().st_mtime))
            tick()
        told = (store.load(path, "error") for path in store.files("error"))
        failures += [Found(folder, *each) for each in told if each]  # half a message: not run
    if not (found or failures or empty):
        names = ", ".join(str(folder) for folder, _ in suites)
        more = f" ({len(damaged)} are damaged)" if damaged else ""
        raise ValueError(
            f"{names} has no cells{more}: run `geoshrink bench resume {suites[0][0]}` first"
        )
    wanted = {key_of(spec): cell_of(spec) for _, suite in suites for spec in suite.cells()}
    for spec in (spec for _, suite in suites for spec in suite.timed()):
        wanted[key_of(spec)].timing = NOT_RUN
    current, left_out = newest(found)
    known = {key_of_setting(cell.spec) for cell in wanted.values()}
    for f in current:
        if f.spec["kind"] == "fidelity" and key_of_setting(f.spec) in known:
            wanted.setdefault(key_of(f.spec), cell_of(f.spec))
    strangers = sum(key_of(f.spec) not in wanted for f in current)
    if strangers:
        left_out.append(f"{strangers} cells that the suite does not ask for (any more)")
    for f in (*failures, *sorted(current, key=lambda each: each.made)):  # the newest counts
        if key_of(f.spec) in wanted:
            fill(wanted[key_of(f.spec)], f)
    groups: dict[str, list[Cell]] = {}
    for cell in wanted.values():
        groups.setdefault(key_of_setting(cell.spec), []).append(cell)
    return list(map(setting_of, groups.values())), damaged, left_out


def cell_of(spec: Spec) -> Cell:
    return Cell(spec["method"], spec["budget"], options=spec["options"], spec=spec)


def newest(found: list[Found]) -> tuple[list[Found], list[str]]:
    """(the cells of each model's newest origin, a sentence for each model that has others)."""
    latest: dict[str, Found] = {}
    for f in found:
        latest[f.model] = max(latest.get(f.model, f), f, key=lambda each: each.made)
    current = [f for f in found if f.origin == latest[f.model].origin]
    older = Counter(f.model for f in found if f.origin != latest[f.model].origin)
    return current, [
        f"{count} cells of {model} with other weights, version or converged steps than the newest"
        for model, count in older.items()
    ]


def fill(cell: Cell, found: Found) -> None:
    """With a result, a latency or a failure."""
    failed = isinstance(found.content, str)
    reason = (found.content.strip().splitlines() or [""])[-1] if failed else ""
    if found.spec["kind"] == "latency":
        cell.timing = f"{FAILED}: {reason}" if failed else DONE
        if not failed:
            cell.timed_code = state_of(found.spec, found.content)
            cell.seconds, cell.on = found.content["seconds"], found.spec.get("on", "")
    else:
        cell.status, cell.reason = (FAILED, reason) if failed else (DONE, "")
        if not failed:
            cell.spec, cell.result = found.spec, {**found.content, **forwards(found)}
            cell.folder, cell.code = found.folder, state_of(found.spec, found.content)


def forwards(found: Found) -> Spec:
    """The forwards of a cell from before cells said them.

    Consecutive stages from the first that are not all stages are those of a short grid of its own.
    """
    result, setting = found.content, found.spec["setting"]
    if "forwards" in result or "evaluated" not in result:
        return {}
    evaluated, steps = result["evaluated"], setting["steps"]
    if set(evaluated) == set(range(len(set(evaluated)))):
        steps = len(set(evaluated))
    partial = result["evaluations"] - len(evaluated)
    return dict(forwards=forwards_of(setting, evaluated, partial, steps))


def measure_of(name: str) -> Measure:
    found = all_metrics().get(name)
    return Measure(name) if found is None else Measure.of(found.metric)


class ZooSetting(Setting):
    def shots(self, most: int | None, chosen: list[str]) -> Iterator[Shot]:
        """Every method at the first budget, the chosen ones at all."""
        order = [*chosen, *(label for label in self.labels if label not in chosen)]
        cells = [
            cell
            for budget in self.budgets
            for label in order
            if (cell := self.at.get((label, budget))) is not None
            and cell.status == DONE
            and (budget == self.first_budget or label in chosen)
        ]
        wanted = [(cell.title, f"B = {cell.budget}", cell, cell.spec) for cell in cells]
        for name in REFERENCES if cells else ():
            spec = cells[0].spec
            steps = None if name == "full" else spec["converged"]
            key = reference_key(self.spec, spec["weights"], steps)
            wanted.insert(REFERENCES.index(name), (name, "reference", cells[0], key))
        for each in wanted:
            shot = self.shot(*each, most)
            if shot is not None:
                yield shot

    def shot(self, title: str, group: str, cell: Cell, spec: Spec, most: int | None) -> Shot | None:
        kept = read_samples(Store(cell.folder).samples(spec))
        if kept is None:
            return None
        subjects = [f"{label}, {i + 1}" for i, label in enumerate(kept.labels)][:most]
        modality = recipes()[self.model].modality
        samples = {subject: kept.sample(i, modality) for i, subject in enumerate(subjects)}
        measure = next(iter(self.metrics.values()))
        each = cell.result["scores"].get(measure.name, {}).get("full") if spec is cell.spec else []
        told = zip(subjects, each if isinstance(each, list) else [])
        return Shot(title, group, samples, {s: measure.spoken(value) for s, value in told})


def setting_of(cells: list[Cell]) -> Setting:
    spec = cells[0].spec["setting"]
    done = [cell.result.get("scores", {}) for cell in cells if cell.status == DONE]
    known = [metric.name for metric in metrics_of(spec["model"])]
    names = dict.fromkeys([*known, *(name for scores in done for name in scores)])
    there = {name for scores in done for by in scores.values() for name in by}
    metrics = {name: measure_of(name) for name in names}
    for cell in cells:
        score(cell, metrics)
    references = [name for name in REFERENCES if name in there]
    return ZooSetting(title_of(spec), spec["model"], spec, cells, metrics, references)


def score(cell: Cell, metrics: dict[str, Measure]) -> None:
    """What the cell's numbers say; those of another definition of a metric count as not run."""
    for metric, measure in metrics.items():
        found = cell.result.get("scores", {}).get(metric, {})
        current = not measure.version or is_current(cell.result, metric, measure.version)
        for reference in REFERENCES:
            cell.scores[metric, reference] = said(cell, found.get(reference), measure, current)


def said(cell: Cell, found: Any, measure: Measure, current: bool) -> Score | str:
    if cell.status != DONE:
        return f"{cell.status}: {cell.reason}" if cell.reason else cell.status
    if found is None or not current:
        return NOT_RUN
    if isinstance(found, str):
        return found if found.startswith(SKIPPED) else f"{SKIPPED}: {found}"
    return Score.of(found, cell.spec["setting"]["seeds"], measure.better == "higher")
