"""run("flux", checkpoint, prompts, folder): a suite of the paper from beginning to table."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from geoshrink.compare.inputs import DTYPES, check_device
from geoshrink.comparing import progress_bar

from ..shard import shard_of
from ..store import put
from . import asked as asking
from . import prompts as prompting
from .asked import Asked
from .columns import Tools
from .hosts import HOSTS
from .results import results
from .runner import Progress, Runner
from .suite import check_choice, source_of
from .summary import summary


def run(
    suite: Any,
    checkpoint: str | Path = "",
    prompts: str | Path | Sequence[str] | None = None,
    out: str | Path = "cells/paper",
    *,
    change: Mapping[str, Any] | None = None,
    device: str | None = None,
    dtype: str | None = None,
    clip: str | Path | None = None,
    clap: str | Path | None = None,
    keep: bool = True,
    shard: str = "1/1",
    summary: str | Path | None = None,
    quiet: bool = False,
) -> Progress:
    """Runs a suite of the paper into a folder, or goes on with it.

        run("flux", "models/FLUX.1-dev", "pickapic.csv", "cells/flux")

    suite        a name of suites(), a YAML file or a dictionary
    checkpoint   a folder as diffusers saves it, or as the model's own library loads it
    prompts      a file of prompts (prompts.py), a list of them, or a folder of pictures
    change       keys of the suite to change, such as {"seeds": 1, "prompts": {"count": 8}}
    clip, clap   folders of the checkpoints that those columns need
    keep         whether samples stay on disk, for tools outside and for metrics that come later
    shard        "2/8": the second of eight parts of the prompts and seeds, in the same folder
    summary      a file that gets the table, too

    The table beside the paper's numbers is written to summary.md and results.json.
    """
    asked = Asked(
        name=str(suite) if isinstance(suite, (str, Path)) else "",
        source=source_of(suite),
        checkpoint=str(checkpoint),
        prompts=str(prompts) if isinstance(prompts, (str, Path)) else listed(prompts),
        change=dict(change or {}),
        device=device,
        dtype=dtype,
        clip=str(clip) if clip else None,
        clap=str(clap) if clap else None,
        keep=keep,
    )
    return go(asked, Path(out), shard, summary, quiet)


def listed(prompts: Sequence[str] | None) -> list[str] | None:
    return None if prompts is None else list(prompts)


def resume(
    out: str | Path,
    *,
    device: str | None = None,
    shard: str = "1/1",
    summary: str | Path | None = None,
    quiet: bool = False,
) -> Progress:
    """Goes on with a folder, with the checkpoint and the prompts that it was begun with."""
    asked = asking.load(out)
    return go(replace(asked, device=device or asked.device), Path(out), shard, summary, quiet)


def go(asked: Asked, folder: Path, shard: str, copy: str | Path | None, quiet: bool) -> Progress:
    suite, part = asked.suite(), shard_of(shard)
    asking.check_folder(folder, suite)
    if copy and not Path(copy).parent.is_dir():
        raise FileNotFoundError(f"there is no folder {Path(copy).parent} for the summary {copy}")
    check_device(asked.device)
    check_choice("dtype", asked.dtype or "bf16", DTYPES)
    host = HOSTS[suite.host]()
    if asked.dtype and host.precision:
        raise ValueError(f"{host.kind} runs in {host.precision} only: give no dtype")
    checkpoint = asked.path(asked.checkpoint)
    if checkpoint is None:
        raise ValueError(f"the suite needs the folder of a checkpoint: {suite.checkpoint}")
    host.check(checkpoint)
    everything = asked.everything()
    chosen = prompting.taken(everything, suite.count, suite.take)
    host.check_prompts(chosen)
    device = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = host.precision or asked.dtype
    dtype = dtype or ((suite.dtype or "bf16") if device.startswith("cuda") else "fp32")
    tools = Tools(asked.path(asked.clip), asked.path(asked.clap), device)
    runner = Runner(
        suite, folder, checkpoint, chosen, everything, device, dtype, tools, asked.keep, part
    )
    asked = asked.save(folder, runner)
    tqdm, how = progress_bar("benchmark"), dict(unit="sample", disable=quiet or None)
    with tqdm(total=len(runner.mine()) * (1 + len(suite.rows)), **how) as bar:

        def tick(row: Any) -> None:
            bar.set_postfix_str(row.label)
            bar.update()

        progress = runner.run(tick)

    def watch(samples: Any, count: int, tool: str) -> Any:
        return tqdm(samples, f"exported for {tool}", count, **how)

    found = results(runner, watch)
    rows = json.dumps({"suite": asdict(suite), "results": [asdict(r) for r in found]}, indent=1)
    put(folder / "results.json", rows.encode())
    text = summary(suite, found, asked.command(folder), asked.where())
    for path in (folder / "summary.md", *([Path(copy)] if copy else [])):
        put(path, text.encode())
    if not quiet:
        tell(folder, progress)
    return progress


def tell(folder: Path, progress: Progress) -> None:
    print(f"{folder}: {progress.line()}")
    for label, reason in progress.skipped.items():
        print(f"skipped: {label}: {reason}", file=sys.stderr)
    for spec, reason in progress.failed:
        where = f"{spec['method']}, prompt {spec['prompt']!r:.60}, seed {spec['seed']}"
        print(f"failed: {where}: {reason}", file=sys.stderr)
