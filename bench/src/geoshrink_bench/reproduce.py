"""geoshrink bench paper: every suite of the paper whose checkpoint is there, then one page."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import command
from .asked import FILE
from .paper import tiny
from .paper.hosts import HOSTS
from .paper.inventory import Found, listing, look
from .paper.tables import PROMPTS, folder_name, grouped
from .report import load
from .report.reproduction import Entry, waiting, write
from .runner import shard_of
from .suite import read

MODELS = "MODELS"  # stands for a folder that was not named
USUAL = {"shard": "1/1"}  # options as they are unless given


@dataclass
class Reproduction:
    """What came of it: the page's files, the suites that ran, why others did not, and those of
    which something failed.
    """

    written: list[Path] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def reproduce(
    models: str | Path | None = None,
    out: str | Path = "paper",
    *,
    prompts: str | Path | None = None,
    only: Sequence[str] | None = None,
    dry_run: bool = False,
    look_only: bool = False,
    change: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **options: Any,
) -> Reproduction:
    """Runs the paper's Table 1 to 5, as far as their checkpoints are there, and writes the page.

        reproduce("models", "paper")
        reproduce(out="paper", dry_run=True, only=["flux"])

    models     a folder with one folder for each checkpoint, named as `geoshrink bench paper --list`
               says
    out        gets paper.html, paper.md and the cells of each suite; cells that are there are kept
    prompts    a folder with the files of prompts; default: `models`
    only       names of suites, also those of Table 6 and the figures
    dry_run    tiny models with random weights take the place of all checkpoints, and the page is
               dry-run.html
    look_only  says what is there and what it would cost, and runs nothing
    change     keys of every suite to change, as run() has it
    options    of run(): device, dtype, clip, clap, shard, stale
    """
    tables = grouped(only)
    shard_of(options.get("shard", "1/1"))
    check(models, prompts, dry_run, look_only)
    names = [name for found in tables.values() for name in found]
    with places(models, prompts, names, dry_run) as (found, why):
        if not quiet:
            print(listing(list(found.values()), why, dry_run))
        result = Reproduction(why=why | {n: each.state for n, each in found.items() if each.why})
        if look_only:
            return result
        if not any(each.ready for each in found.values()):
            raise FileNotFoundError(
                f"nothing to run: {'; '.join(f'{n}: {each}' for n, each in result.why.items())}"
            )
        cells = Path(out) / ("dry-run-cells" if dry_run else "cells")
        for name, each in found.items():
            if each.ready:
                given = {**(small(each) if dry_run else {}), **(change or {})}
                run_one(each, cells / name, given, result, quiet, options)
        entries = {
            table: [entry(name, found.get(name), cells, result) for name in suites]
            for table, suites in tables.items()
        }
        made_by = told(models, out, prompts, only, change, options)
        result.written = write(entries, Path(out), made_by, dry_run)
    if not quiet:
        print("wrote " + ", ".join(map(str, result.written)))
    return result


def check(models: Any, prompts: Any, dry_run: bool, look_only: bool) -> None:
    """Refuses folders that are not there, and models for a dry run."""
    if dry_run and (models is not None or prompts is not None):
        given = f"--models {models}" if models is not None else f"--prompts {prompts}"
        raise ValueError(f"--dry-run makes its own models and prompts: leave {given} out")
    if models is None and not (dry_run or look_only):
        raise ValueError("give --models FOLDER with the checkpoints, or --dry-run")
    for name, folder in (("models", models), ("prompts", prompts)):
        if folder is not None and not Path(folder).is_dir():
            raise FileNotFoundError(f"--{name}: there is no folder {str(folder)!r}")


@contextmanager
def places(
    models: Any, prompts: Any, names: Sequence[str], dry_run: bool
) -> Iterator[tuple[dict[str, Found], dict[str, str]]]:
    """What is found of each suite, and why a dry run has no model of some."""
    with tempfile.TemporaryDirectory() if dry_run else nullcontext(models or MODELS) as place:
        root = Path(place)
        lacking = make_tiny(names, root) if dry_run else {}
        with tiny.surroundings() if dry_run else nullcontext():
            there = [name for name in names if name not in lacking]
            yield {name: look(name, root, Path(prompts or root)) for name in there}, lacking


def run_one(
    found: Found,
    cells: Path,
    change: Mapping[str, Any],
    result: Reproduction,
    quiet: bool,
    options: Mapping[str, Any],
) -> None:
    """One suite; what stops it is told, and stops no other."""
    if not quiet:
        print(f"\n{found.name}: {found.suite.title}")
    given: dict[str, Any] = dict(checkpoint=found.checkpoint, prompts=found.prompts, **options)
    try:
        progress = command.run(found.name, cells, change=change, quiet=quiet, **given)
    except Exception as error:
        result.why[found.name] = f"{type(error).__name__}: {error}"
        result.failed.append(found.name)
        print(f"failed: {found.name}: {result.why[found.name]}", file=sys.stderr)
        return
    result.ran.append(found.name)
    result.failed += [found.name] if progress.failed else []


def entry(name: str, found: Found | None, cells: Path, result: Reproduction) -> Entry:
    """A suite with its cells: of this run, or where it did not run now, of one before."""
    found = found or Found(name, read(name), Path(), None)
    if (cells / name / FILE).is_file():
        try:
            return Entry(found, load([cells / name]).settings[0], result.why.get(name, ""))
        except Exception as error:  # whatever somebody has written there
            before = f"{result.why[name]}; " if name in result.why else ""
            result.why[name] = f"{before}its cells cannot be read: {type(error).__name__}: {error}"
            result.failed += [name] if name not in result.failed else []
            print(f"failed: {name}: {result.why[name]}", file=sys.stderr)
    return Entry(found, waiting(found), result.why.get(name, "it has no cells"))


def make_tiny(names: Sequence[str], place: Path) -> dict[str, str]:
    """Writes tiny checkpoints and prompts for suites; gives the reasons of those it cannot."""
    lacking = {}
    for name in names:
        suite = read(name)
        model = tiny.TINY.get(suite.host)
        if model is None or model.lacks():
            needs = f"its tiny model needs {model.lacks()}" if model else tiny.NONE
            lacking[name] = f"{needs} ({suite.host})"
            continue
        if not (place / folder_name(suite)).is_dir():
            tiny.make(suite.host, place / folder_name(suite))
        count, more = suite.prompts["count"], 0 if suite.prompts["take"] == "all" else 4
        pictures = HOSTS[suite.host].pictures
        tiny.write_prompts(place / PROMPTS[name], count + more, pictures)
    return lacking


def small(found: Found) -> dict[str, Any]:
    """One sample of every row."""
    call = tiny.TINY[found.suite.host].call
    return dict(seeds=1, prompts={"count": 1, "take": "first"}, call=call, offload=None)


def told(
    models: Any,
    out: Any,
    prompts: Any,
    only: Sequence[str] | None,
    change: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> str:
    """The command that makes the page."""
    words = ["geoshrink", "bench", "paper"]
    words += ["--models", str(models)] if models else ["--dry-run"]
    words += ["--prompts", str(prompts)] if prompts else []
    words += ["--only", *only] if only else []
    words += ["--change", json.dumps(change, ensure_ascii=False)] if change else []
    for name, value in options.items():
        if value and value != USUAL.get(name):
            words += [f"--{name}", *([] if value is True else [str(value)])]
    return shlex.join([*words, "--out", str(out)])
