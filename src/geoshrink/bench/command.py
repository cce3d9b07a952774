"""geoshrink bench run | resume | list."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from .methods.registry import METHODS
from .runner import Progress, Runner, device_name
from .store import put
from .suite import Suite, read
from .summary import tables, wins


def suites() -> dict[str, Any]:
    """The suites that come with the package, by name."""
    folder = files("geoshrink.bench") / "suites"
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
) -> Progress:
    """Runs a suite (a name, a YAML file or a dictionary) into a folder, or goes on with it.

    The summary is written there, and to the file `summary` where given.
    """
    named = source if isinstance(source, str) else "SUITE"
    known = suites()
    if isinstance(source, str) and source in known:
        source = str(known[source])
    suite, folder = read(source), Path(out)
    check_folder(suite, folder)
    runner = Runner(suite, folder, device, shard_of(shard), weights)
    specs = runner.specs()
    with bar(len(specs), quiet) as progress_bar:

        def tick(spec: dict[str, Any]) -> None:
            progress_bar.set_postfix_str(f"{spec['setting']['model']}, {spec['method']}")
            progress_bar.update()

        progress = runner.run(tick)
    text = summarise(suite, runner, named)
    for path in (folder / "summary.md", *([Path(summary)] if summary else [])):
        put(path, text.encode())
    if not quiet:
        print(f"{folder}: {progress.line()}")
        for spec, reason in progress.failed:
            where = f"{spec['setting']['model']}, {spec['method']}, B = {spec['budget']}"
            print(f"failed: {where}: {reason}", file=sys.stderr)
    return progress


def resume(out: str | Path, **options: Any) -> Progress:
    """Goes on with the suite that a folder was begun with."""
    kept = Path(out) / "suite.json"
    if not kept.is_file():
        raise FileNotFoundError(f"{out} is no folder of a bench: it has no suite.json")
    return run(json.loads(kept.read_text(encoding="utf-8")), out, **options)


def check_folder(suite: Suite, folder: Path) -> None:
    """A folder belongs to one suite; a changed one keeps every cell that is still in it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(suite.source, ensure_ascii=False, indent=1)
    put(folder / "suite.json", text.encode())


def shard_of(text: str) -> tuple[int, int]:
    """(i − 1, n) of "i/n"."""
    try:
        i, n = (int(part) for part in text.split("/"))
    except ValueError:
        raise ValueError(f"--shard is i/n, such as 2/8; got {text!r}") from None
    if not 1 <= i <= n:
        raise ValueError(f"--shard is i/n with i from 1 to n; got {text!r}")
    return i - 1, n


def summarise(suite: Suite, runner: Runner, named: str) -> str:
    """All cells of the suite, whichever shard made them."""
    specs = specs_of(suite, runner.store.folder, runner.device, runner.weights, runner.models)
    missing = sum(runner.store.read(spec) is None for spec in specs)
    lines = [
        f"# {suite.name}",
        "",
        f"Made by `geoshrink bench run {named}`: {len(specs) - missing} of {len(specs)} cells, "
        f"{suite.samples} samples × {suite.seeds} seeds, on {device_name(runner.device)}, torch "
        f"{torch.__version__}. Mean ± sd over seeds. The converged flow has {suite.converged} "
        "steps.",
        "",
        *wins(specs, runner.store),
    ]
    lines += ["", "## Distance to the full run", *tables(specs, runner.store, "full")]
    lines += ["", "## Distance to the converged flow", *tables(specs, runner.store, "converged")]
    return "\n".join(lines) + "\n"


def specs_of(
    suite: Suite, folder: str | Path, device: str, weights: Any, models: Any = None
) -> list[dict[str, Any]]:
    """Every cell of a suite, of all shards."""
    everything = Runner(suite, folder, device, weights=weights)
    everything.models = models or {}
    return everything.specs()


def listing() -> str:
    names = "\n".join(f"  {name}" for name in METHODS)
    found = "\n".join(f"  {name}" for name in suites()) or "  none"
    return f"suites:\n{found}\nmethods:\n{names}"


def bar(total: int, quiet: bool) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("bench needs tqdm: pip install 'geoshrink[bench]'") from None
    return tqdm(total=total, unit="cell", disable=quiet or None)
