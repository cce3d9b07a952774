"""Reads the cells of a suite on a checkpoint: one row for each method, over all prompts and seeds.

The columns of tools outside are exported here once all samples are there, and read when the tool
has run.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..asked import Asked
from ..cases.checkpoint_suite import FULL, Cells, CheckpointSuite, sample_path
from ..code import CURRENT, STALE, UNKNOWN, state_of
from ..metrics.base import Skipped
from ..paper.columns import COLUMNS, Column, Outside, Whole
from ..paper.prompts import Prompt
from ..samples import Sample
from ..score import Score
from ..store import Store, name_of, put
from ..words import DONE, FAILED, NOT_RUN, SKIPPED, Measure, Row
from .results import Cell, Setting, Shot, Spec

FPS = 24.0  # of films, where the suite does not say
PROMPTS = 2  # whose samples are shown, unless said
CHOICES = "What the paper does not say, and the suite chooses (what this run changed stands above):"


class Reader:
    """The cells of a folder."""

    def __init__(self, folder: Path, asked: Asked):
        suite = asked.suite()
        assert isinstance(suite, CheckpointSuite)
        self.suite, self.store = suite, Store(folder)
        self.cells = Cells(suite, [Prompt(**each) for each in asked.taken], asked.made)
        self.rows = (FULL, *suite.rows)
        self.there = {row.title: list(map(self.store.read, self.specs(row))) for row in self.rows}

    def specs(self, row: Row) -> list[Spec]:
        return [self.cells.spec(row, *case) for case in self.cells.cases()]

    def path(self, spec: Spec) -> Path:
        return sample_path(self.store.folder, spec)

    def cell(self, row: Row) -> Cell:
        mine, full = self.there[row.title], self.there[FULL.title]
        cell = Cell(**vars(row))
        done = [result for result in mine if result is not None]
        why = self.why(row)
        if done:
            both = [(a["seconds"], b["seconds"]) for a, b in zip(mine, full) if a and b]
            if both:
                cell.speedup = sum(b for _, b in both) / sum(a for a, _ in both)
            cell.status, cell.result, cell.spec = DONE, facts_of(done), self.cells.made
            cell.seconds = [statistics.fmean(result["seconds"] for result in done)]
            cell.on = self.cells.made["on"]
            cell.code = max(self.states(row), key=(CURRENT, STALE, UNKNOWN).index)
        else:
            cell.status, _, cell.reason = why.partition(": ")
        for name in self.suite.columns:
            score = self.column(row, COLUMNS[name], mine, full, why) if done else why
            cell.scores[name, "full"] = score
        return cell

    def states(self, row: Row) -> list[str]:
        """Which code made each cell of a row that is there."""
        pairs = zip(self.specs(row), self.there[row.title])
        return [state_of(spec, result) for spec, result in pairs if result is not None]

    def why(self, row: Row) -> str:
        """The reason that lies beside the first missing cell."""
        for spec in self.specs(row):
            error = self.store.error(spec)
            if error:
                said = error.startswith(SKIPPED)
                return error if said else f"{FAILED}: {error.strip().splitlines()[-1]}"
        return NOT_RUN

    def column(
        self, row: Row, column: Column, mine: list[Any], full: list[Any], why: str
    ) -> Score | str:
        missing, seeds = sum(cell is None for cell in mine), self.suite.seeds
        if missing:
            return f"{missing} of {len(mine)} missing: {why}"
        try:
            if isinstance(column, Outside):
                values = self.outside(row, column)
            elif row is FULL and not getattr(column, "alone", False):
                return "the reference"
            else:
                found = [c["scores"].get(column.name, {SKIPPED: "not measured"}) for c in mine]
                for word in (FAILED, SKIPPED):
                    told = [each[word] for each in found if word in each]
                    if told:
                        share = "" if len(told) == len(found) else f" {len(told)} of {len(found)}"
                        return f"{word}{share}: {told[0]}"
                values = [each["value"] for each in found]
                if isinstance(column, Whole):
                    values = per_seed(column, values, full, seeds)
            return Score.of(values if len(values) >= seeds else values[0], seeds, column.higher)
        except Skipped as reason:
            return f"{SKIPPED}: {reason}"
        except Exception as error:  # the table is written whatever a tool's export meets
            return f"{FAILED}: {type(error).__name__}: {error}"

    def outside(self, row: Row, column: Outside) -> list[float]:
        """What a tool said of the row's samples, exported once; VBench has two prompts twice."""
        unique = {name_of(self.cells.spec(row, *case)): case for case in self.cells.cases()}
        specs = [self.cells.spec(row, *case) for case in unique.values()]
        codes = sorted({name_of(c["code"]) for c in self.there[row.title] if c and "code" in c})
        key = [list(unique), codes] if codes else list(unique)
        folder = self.store.folder / "tools" / column.name / name_of(key)
        if not folder.exists():
            gone = sum(not self.path(spec).is_file() for spec in specs)
            if gone:
                raise Skipped(f"{gone} of {len(specs)} samples were not kept: run with keep=True")
            beside = folder.with_name(f".{folder.name}")
            shutil.rmtree(beside, ignore_errors=True)
            prompts = [prompt for prompt, _ in unique.values()]
            column.export(beside, self.kept(specs), prompts, self.suite.fps or FPS)
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

    def kept(self, specs: list[Spec]) -> Iterator[Sample]:
        for spec in specs:
            found = Sample.load(self.path(spec))
            if found is None:
                raise ValueError(f"{self.path(spec)} is damaged: delete it and run again")
            yield found


class CheckpointSetting(Setting):
    reader: Reader

    def states(self) -> Iterator[tuple[str, str]]:
        """Of every sample of every row."""
        for row in self.reader.rows:
            for spec, result in zip(self.reader.specs(row), self.reader.there[row.title]):
                if result is not None:
                    yield row.label, state_of(spec, result)
                else:
                    yield row.label, FAILED if self.reader.store.error(spec) else NOT_RUN

    def shots(self, most: int | None, chosen: list[str]) -> Iterator[Shot]:
        """The first prompts of the first seed that all rows have."""
        reader, (first, measure) = self.reader, next(iter(self.metrics.items()))
        rows = [row for row in reader.rows if any(reader.there[row.title])]
        prompts = {prompt.text: prompt for prompt in reader.cells.prompts}
        whole = [
            prompt
            for prompt in prompts.values()
            if all(reader.path(reader.cells.spec(row, prompt, 0)).is_file() for row in rows)
        ][: PROMPTS if most is None else most]
        for row in rows if whole else ():
            samples, scores = {}, {}
            for prompt in whole:
                spec = reader.cells.spec(row, prompt, 0)
                sample = Sample.load(reader.path(spec))
                if sample is None:
                    return
                fps = {"fps": reader.suite.fps or FPS}
                samples[prompt.text] = Sample(sample.parts, fps | sample.facts)
                result = reader.store.read(spec) or {"scores": {}}
                scores[prompt.text] = measure.spoken(result["scores"].get(first, {}).get("value"))
            yield Shot(row.title, "", samples, scores)


def setting_of(folder: Path, asked: Asked) -> Setting:
    reader = Reader(folder, asked)
    suite, made = reader.suite, asked.made
    setting = CheckpointSetting(
        suite.title,
        suite.host,
        dict(
            model=suite.host, steps=suite.steps, samples=suite.prompts["count"], seeds=suite.seeds
        ),
        [reader.cell(row) for row in reader.rows],
        {name: Measure.of(COLUMNS[name]) for name in suite.columns},
        ["full"],
        about=f"Made by `{asked.command(folder)}`. {where(suite, asked)}\n\n{suite.protocol()}",
        notes=[CHOICES, *suite.choices] if suite.choices else [],
        facts=[
            ("geoshrink", made["version"]),
            ("checkpoint (names, sizes and JSON files)", made["weights"]),
        ],
        label=suite.label,
    )
    setting.reader = reader
    return setting


def where(suite: CheckpointSuite, asked: Asked) -> str:
    """On what the numbers were made, and what differs from the suite."""
    made = asked.made
    text = f"On {made['on']}, {made['dtype']}, torch {asked.torch}."
    if suite.dtype and suite.dtype != made["dtype"]:
        text += f" The suite's own precision is {suite.dtype}."
    if asked.change:
        text += f" Changed from the suite's protocol: {', '.join(asked.change)}."
    return text


def facts_of(done: list[Spec]) -> Spec:
    """Those of the first sample, but for the means over samples; every reason once."""
    return dict(
        {k: v for k, v in done[0].items() if k not in ("scores", "evaluated", "seconds")},
        evaluations=statistics.fmean(len(c["evaluated"]) + c["partial"] for c in done),
        forwards=statistics.fmean(c["forwards"] for c in done),
        held=max(c.get("held", 0) for c in done),
        reasons=list(dict.fromkeys(reason for c in done for reason in c["reasons"])),
    )


def per_seed(column: Whole, features: list[Any], full: list[Any], seeds: int) -> list[float]:
    """The distance of each seed's set from the full runs of the same seed."""
    reference = [cell and cell["scores"].get(column.name, {}).get("value") for cell in full]
    if None in reference:
        raise Skipped("the full runs have not been measured")
    size = len(features) // seeds
    sets = [slice(i * size, (i + 1) * size) for i in range(seeds)]
    return [column.of(torch.tensor(features[s]), torch.tensor(reference[s])) for s in sets]
