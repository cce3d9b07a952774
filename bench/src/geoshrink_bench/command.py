"""geoshrink bench run | resume | report | status | list."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from geoshrink.batch.jobs import Engine
from geoshrink.page import Table

from .asked import Asked
from .lab import Lab
from .methods.registry import METHODS
from .report import draw, load, markdown, spreadsheet, write
from .report.about import counted
from .report.staleness import standing
from .runner import Attempts, Progress, Runner, shard_of
from .store import put
from .suite import source_of, suites

SHOWN = 3  # cells that failed for one reason are named, at most


def run(
    source: Any,
    out: str | Path | None = None,
    *,
    change: Mapping[str, Any] | None = None,
    shard: str = "1/1",
    summary: str | Path | None = None,
    quiet: bool = False,
    engine: Engine | None = None,
    stale: bool = False,
    only: str | Sequence[str] = (),
    **options: Any,
) -> Progress:
    """Runs a suite into a folder, or goes on with it.

        run("rivals", device="cuda")
        run("flux", "cells/flux", checkpoint="models/FLUX.1-dev", prompts="pickapic.csv")

    source    a name of suites(), a YAML file or a dictionary
    out       the folder of its cells; cells/NAME unless given
    change    keys of the suite to change, such as {"seeds": 1, "prompts": {"count": 8}}
    shard     "2/8": the second of eight parts of the cells, in the same folder
    summary   a file that gets the tables, too
    engine    where the cells run: in this process, batch.OnProcesses(workers), or batch.OnRay(…)
              with the folder shared
    stale     also makes anew what other code than today's made (code.py)
    only      names of models or methods: no other cells are run now
    options   of the suite's lab: cases.zoo.Zoo or cases.checkpoint.Checkpoint

    The tables are written to summary.md and results.csv.
    """
    name = str(source) if isinstance(source, (str, Path)) else ""
    asked = Asked(name, source_of(source), dict(change or {}), *plain(summary, options))
    folder = Path(out or Path("cells") / (Path(name).stem or "suite"))
    return go(asked, folder, shard, quiet, engine, stale, only)


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

        rows = compare({"motion": {"budgets": [10]}}, ["direct", "GeoShrink (corrected)", "FORA"])

    `settings` are those of a suite: samples, seeds, converged, metrics, latency, repeats. What is
    in the folder already is not run again. A row has the setting, method, options, budget, and
    what the cell holds: evaluations, forwards, evaluated, held, …; a failed one has the error. Each
    metric is a score.Score by its reference, or "skipped: reason".
    """
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


def plain(summary: Any, options: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Paths as texts; options that were not given are left out."""
    found = {key: str(v) if isinstance(v, Path) else v for key, v in options.items()}
    return summary and str(summary), {key: v for key, v in found.items() if v is not None}


def resume(
    out: str | Path,
    *,
    shard: str = "1/1",
    summary: str | Path | None = None,
    quiet: bool = False,
    engine: Engine | None = None,
    stale: bool = False,
    only: str | Sequence[str] = (),
    **options: Any,
) -> Progress:
    """Goes on with the suite and the options that a folder was begun with, but for those given."""
    asked, (copy, given) = Asked.load(out), plain(summary, options)
    asked = replace(asked, options={**asked.options, **given}, summary=copy or asked.summary)
    return go(asked, Path(out), shard, quiet, engine, stale, only)


@dataclass(frozen=True)
class Bench:
    """Makes a worker on another machine: a lab of its own, over the same folder."""

    asked: Asked
    folder: Path
    stale: bool = False

    def __call__(self) -> Attempts:
        lab = self.asked.lab(self.folder)
        lab.anew = self.stale
        lab.specs()  # some know their cells only then
        return Attempts(lab)


def go(
    asked: Asked,
    folder: Path,
    shard: str,
    quiet: bool,
    engine: Engine | None = None,
    stale: bool = False,
    only: str | Sequence[str] = (),
) -> Progress:
    part, copy = shard_of(shard), asked.found("summary", asked.summary)
    check_summary(copy)
    asked.check_folder(folder)
    lab = asked.lab(folder)
    lab.anew = stale
    there = replace(asked, within=str(Path(asked.within).resolve()))
    elsewhere = Bench(there, folder.resolve(), stale)
    runner = Runner(lab, part, engine, None if engine is None else elsewhere, only)
    count = len(runner.specs())
    asked.save(folder, **lab.kept())
    with bar(count, quiet) as progress_bar:

        def tick(title: str) -> None:
            progress_bar.set_postfix_str(title)
            progress_bar.update()

        progress = runner.run(tick)
    if not quiet:
        tell(folder, lab, progress)
    if any(folder.glob("*.cell.json")) or any(folder.glob("*.error.json")):
        results = load([folder])
        text = markdown(results).encode()
        for path in (folder / "summary.md", *([Path(copy)] if copy else [])):
            put(path, text)
        put(folder / "results.csv", spreadsheet(results).encode())
    return progress


def tell(folder: Path, lab: Lab, progress: Progress) -> None:
    """What was done; what was skipped; the failures by their reason."""
    print(f"{folder}: {progress.line()}")
    for title, reason in progress.skipped.items():
        print(f"skipped: {title}: {reason}", file=sys.stderr)
    reasons = defaultdict(list)
    for spec, reason in progress.failed:
        reasons[reason].append(lab.place(spec))
    for reason, places in reasons.items():
        more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
        print(f"failed: {'; '.join(places[:SHOWN])}{more}: {reason}", file=sys.stderr)


def report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    plots: str | Path | None = None,
    samples: int | None = None,
    quiet: bool = False,
) -> list[Path]:
    """results.csv, calls.csv, losses.md, report.md, .tex and .html of folders of cells, in the
    folder `out`: the first of them unless given. In the folder `plots`, where given, a drawing of
    each setting. The page shows `samples` of each setting at most. No model is needed.
    """
    if samples is not None and samples < 0:
        raise ValueError(f"--samples must be at least 0, got {samples}")
    paths = [Path(folder) for folder in folders]
    cells = sum(len(list(path.glob("*.cell.json"))) for path in paths)
    with bar(cells, quiet) as progress_bar:
        results = load(paths, progress_bar.update)
    place = Path(out or paths[0])
    written = write(results, place, lambda total: bar(total, quiet, "method"), samples)
    if plots is not None:
        written += draw(results, Path(plots))
    if not quiet:
        print(f"{counted(results)}: " + ", ".join(str(path) for path in written))
        for path in results.damaged:
            print(f"damaged: {path}: `geoshrink bench resume` makes it anew", file=sys.stderr)
    return written


def status(folders: Sequence[str | Path]) -> Table:
    """A line for each folder: how many of its cells are done, missing, stale, of unknown code."""
    return standing([load([folder], empty=True) for folder in folders])


def check_summary(path: str | Path | None) -> None:
    if path is not None and Path(path).is_dir():
        raise ValueError(f"--summary {path} is a folder: name a file")
    if path is not None and not Path(path).parent.is_dir():
        raise FileNotFoundError(f"--summary {path}: there is no folder {Path(path).parent}")


def listing() -> str:
    zoo, papers = ("\n".join(f"  {name}" for name in suites(kind)) for kind in ("zoo", "paper"))
    names = "\n".join(f"  {name}" for name in METHODS)
    return (
        f"suites on the models of the zoo:\n{zoo}\n"
        f"suites of the paper, with --checkpoint and --prompts:\n{papers}\nmethods:\n{names}"
    )


def bar(total: int, quiet: bool, unit: str = "cell") -> Any:
    from tqdm import tqdm

    return tqdm(total=total, unit=unit, disable=quiet or None)
