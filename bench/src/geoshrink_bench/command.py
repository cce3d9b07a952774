"""geoshrink bench run | resume | report | list."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from geoshrink.compare.inputs import check_device

from . import paper
from .methods.registry import METHODS
from .report import counted, draw, load, markdown, write
from .report.reading import suite_of
from .runner import Progress, Runner
from .setting import REFERENCES
from .shard import shard_of
from .store import put
from .suite import Suite, read

SUITE, OPTIONS = "suite.json", "options.json"  # what a folder was begun with
SHOWN = 3  # cells that failed for one reason are named, at most


def suites() -> dict[str, Any]:
    """The suites that come with the package, by name."""
    folder = files("geoshrink_bench") / "suites"
    found = [f for f in folder.iterdir() if f.name.endswith(".yaml")] if folder.is_dir() else []
    return {f.name[:-5]: f for f in sorted(found, key=lambda f: f.name)}


def run(
    source: Any,
    out: str | Path,
    device: str = "cpu",
    shard: str = "1/1",
    weights: str | Path | None = None,
    summary: str | Path | None = None,
    quiet: bool = False,
    references: Sequence[str] = REFERENCES,
) -> Progress:
    """Runs a suite (a name, a YAML file or a dictionary) into a folder, or goes on with it.

    The summary is written there, and to the file `summary` where given. Without the reference
    "converged" a run is much shorter; the next one with it makes its cells anew.
    """
    suite, folder, part = read(found(source)), Path(out), shard_of(shard)
    check_device(device)
    check_summary(summary)
    check_weights(suite, weights)
    check_folder(suite, folder)
    keep_options(folder, device, weights, summary, references)
    runner = Runner(suite, folder, device, part, weights, references)
    specs = runner.specs()
    with bar(len(specs), quiet) as progress_bar:

        def tick(spec: dict[str, Any]) -> None:
            progress_bar.set_postfix_str(f"{spec['setting']['model']}, {spec['method']}")
            progress_bar.update()

        progress = runner.run(tick)
    if not quiet:
        tell(folder, progress)
    if any(folder.glob("*.cell.json")) or any(folder.glob("*.error.json")):
        text = markdown(load([folder]))
        for path in (folder / "summary.md", *([Path(summary)] if summary else [])):
            put(path, text.encode())
    return progress


def found(source: Any) -> Any:
    """The file of a suite that is given by its name."""
    known = suites()
    if isinstance(source, str) and source in known:
        return str(known[source])
    if isinstance(source, (str, Path)) and not Path(source).is_file():
        names = ", ".join([*known, *paper.suites()])
        raise FileNotFoundError(f"no suite {str(source)!r}: give a YAML file, or one of {names}")
    return source


def tell(folder: Path, progress: Progress) -> None:
    """What was done; the failures by their reason."""
    print(f"{folder}: {progress.line()}")
    reasons = defaultdict(list)
    for spec, reason in progress.failed:
        where = f"{spec['setting']['model']}, {spec['method']}, B = {spec['budget']}"
        reasons[reason].append(where)
    for reason, places in reasons.items():
        more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
        print(f"failed: {'; '.join(places[:SHOWN])}{more}: {reason}", file=sys.stderr)


def resume(out: str | Path, **options: Any) -> Progress:
    """Goes on with the suite and the options that a folder was begun with, but for those given."""
    suite, kept = Path(out) / SUITE, Path(out) / OPTIONS
    if not suite.is_file():
        raise FileNotFoundError(f"{out} is no folder of a bench: it has no {SUITE}")
    before = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    return run(json.loads(suite.read_text(encoding="utf-8")), out, **{**before, **options})


def report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    plots: str | Path | None = None,
    samples: int | None = None,
    quiet: bool = False,
) -> list[Path]:
    """results.csv, report.md, report.tex and report.html of folders of cells, in the folder `out`:
    the first of them unless given. In the folder `plots`, where given, a drawing of each setting.
    The page shows `samples` of each setting at most.
    """
    if samples is not None and samples < 0:
        raise ValueError(f"--samples must be at least 0, got {samples}")
    paths = [Path(folder) for folder in folders]
    cells = sum(len(list(path.glob("*.cell.json"))) for path in paths)
    with bar(cells, quiet) as progress_bar:
        results = load(paths, progress_bar.update)
    written = write(
        results, Path(out or paths[0]), lambda total: bar(total, quiet, "sample"), samples
    )
    if plots is not None:
        written += draw(results, Path(plots))
    if not quiet:
        print(f"{counted(results)}: " + ", ".join(str(path) for path in written))
        for path in results.damaged:
            print(f"damaged: {path}: `geoshrink bench resume` makes it anew", file=sys.stderr)
    return written


def check_summary(path: str | Path | None) -> None:
    if path is not None and Path(path).is_dir():
        raise ValueError(f"--summary {path} is a folder: name a file")
    if path is not None and not Path(path).parent.is_dir():
        raise FileNotFoundError(f"--summary {path}: there is no folder {Path(path).parent}")


def check_weights(suite: Suite, folder: str | Path | None) -> None:
    """A folder with the weights of some model of the suite; the cells of others fail one by one."""
    if folder is None:
        return
    names = [f"{model}.safetensors" for model in dict.fromkeys(name for name, _ in suite.models)]
    if not any((Path(folder) / name).is_file() for name in names):
        raise FileNotFoundError(f"--weights {folder} has none of {', '.join(names)}")


def check_folder(suite: Suite, folder: Path) -> None:
    """A folder belongs to one suite; a changed one keeps every cell that is still in it."""
    if paper.is_folder(folder):
        raise ValueError(f"{folder} holds a suite of the paper: name another folder with --out")
    there = None
    with suppress(FileNotFoundError, ValueError):  # none yet, or a damaged one
        there = suite_of(folder).name
    if there not in (None, suite.name):
        raise ValueError(
            f"{folder} holds the suite {there!r}, not {suite.name!r}: name another folder with "
            "--out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(suite.source, ensure_ascii=False, indent=1)
    put(folder / SUITE, text.encode())


def keep_options(
    folder: Path, device: str, weights: Any, summary: Any, references: Sequence[str]
) -> None:
    """For resume; paths as they are from anywhere. A shard is each process's own."""
    paths = dict(weights=weights, summary=summary)
    kept: dict[str, Any] = {k: str(Path(v).absolute()) for k, v in paths.items() if v is not None}
    kept |= dict(device=device, references=list(references))
    put(folder / OPTIONS, json.dumps(kept, ensure_ascii=False, indent=1).encode())


def specs_of(
    suite: Suite, folder: str | Path, device: str, weights: Any, models: Any = None
) -> list[dict[str, Any]]:
    """Every cell of a suite, of all shards."""
    everything = Runner(suite, folder, device, weights=weights)
    everything.models = models or {}
    return everything.specs()


def listing() -> str:
    names = "\n".join(f"  {name}" for name in METHODS)
    own = "\n".join(f"  {name}" for name in suites())
    papers = "\n".join(f"  {name}" for name in paper.suites())
    return (
        f"suites on the models of the zoo:\n{own}\n"
        f"suites of the paper, with --checkpoint and --prompts:\n{papers}\nmethods:\n{names}"
    )


def bar(total: int, quiet: bool, unit: str = "cell") -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("bench needs tqdm: pip install geoshrink-bench") from None
    return tqdm(total=total, unit=unit, disable=quiet or None)
