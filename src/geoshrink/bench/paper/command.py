"""run("flux", checkpoint, prompts, folder): a suite of the paper from beginning to table."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ...compare.inputs import DTYPES, check_device
from ...comparing import progress_bar
from ..runner import device_name
from ..store import put
from . import prompts as asked
from .columns import Tools
from .hosts import HOSTS
from .results import Result, results
from .runner import Progress, Runner
from .suite import Suite, check_choice, read
from .summary import summary


def run(
    suite: Any,
    checkpoint: str | Path = "",
    prompts: str | Path | Sequence[str] | None = None,
    out: str | Path = "bench/paper",
    *,
    change: Mapping[str, Any] | None = None,
    device: str | None = None,
    dtype: str | None = None,
    clip: str | Path | None = None,
    clap: str | Path | None = None,
    keep: bool = True,
    quiet: bool = False,
) -> Progress:
    """Runs a suite of the paper into a folder, or goes on with it.

        run("flux", "models/FLUX.1-dev", "pickapic.csv", "bench/flux")

    suite        a name of suites(), a YAML file or a dictionary
    checkpoint   a folder as diffusers saves it, or as the model's own library loads it
    prompts      a file of prompts (prompts.py), a list of them, or a folder of pictures
    change       keys of the suite to change, such as {"seeds": 1, "prompts": {"count": 8}}
    clip, clap   folders of the checkpoints that those columns need
    keep         whether samples stay on disk, for tools outside and for metrics that come later

    The table, with the paper's numbers in brackets, is written to summary.md and results.json.
    """
    given, folder = read(suite, change), Path(out)
    check_device(device)
    check_choice("dtype", dtype or "bf16", DTYPES)
    named = [str(suite) if isinstance(suite, (str, Path)) else "SUITE", "--checkpoint"]
    file = str(prompts) if isinstance(prompts, (str, Path)) else "FILE"
    command = shlex.join(
        ["geoshrink", "bench", "run", *named, str(checkpoint) or "FOLDER", "--prompts", file]
    )
    host = HOSTS[given.host]()
    if dtype and host.precision:
        raise ValueError(f"{host.kind} runs in {host.precision} only: give no dtype")
    if not checkpoint:
        raise ValueError(f"the suite needs the folder of a checkpoint: {given.checkpoint}")
    host.check(checkpoint)
    if prompts is None:
        raise ValueError(f"the suite needs prompts: {given.count} of {given.source}")
    everything = asked.read(prompts)
    chosen = asked.taken(everything, given.count, given.take)
    host.check_prompts(chosen)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = host.precision or dtype
    dtype = dtype or ((given.dtype or "bf16") if device.startswith("cuda") else "fp32")
    tools = Tools(clip, clap, device)
    runner = Runner(given, folder, checkpoint, chosen, everything, device, dtype, tools, keep)
    total = given.seeds * len(chosen) * (1 + len(given.rows))
    tqdm, how = progress_bar("benchmark"), dict(unit="sample", disable=quiet or None)
    with tqdm(total=total, **how) as bar:

        def tick(row: Any) -> None:
            bar.set_postfix_str(row.label)
            bar.update()

        progress = runner.run(tick)
    where = f"On {device_name(device)}, {dtype}, torch {torch.__version__}."
    if change:
        where += f" Changed from the paper's protocol: {', '.join(change)}."

    def watch(samples: Any, count: int, tool: str) -> Any:
        return tqdm(samples, f"exported for {tool}", count, **how)

    write(folder, given, results(runner, watch), command, where)
    if not quiet:
        tell(folder, progress)
    return progress


def write(folder: Path, suite: Suite, found: list[Result], command: str, where: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = json.dumps({"suite": asdict(suite), "results": [asdict(r) for r in found]}, indent=1)
    put(folder / "results.json", rows.encode())
    put(folder / "summary.md", summary(suite, found, command, where).encode())


def tell(folder: Path, progress: Progress) -> None:
    print(f"{folder}: {progress.line()}")
    for label, reason in progress.skipped.items():
        print(f"skipped: {label}: {reason}", file=sys.stderr)
    for spec, reason in progress.failed:
        where = f"{spec['method']}, prompt {spec['prompt']!r:.60}, seed {spec['seed']}"
        print(f"failed: {where}: {reason}", file=sys.stderr)
