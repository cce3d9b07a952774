"""What Ray costs a batch: benchmarks/batch.md.

    python benchmarks/batch.py [--prompts 24 --rounds 5 --steps 28 --budget 10]

The fruit model as a diffusers pipeline, with a builder. The same prompts are run by two actors of
Ray with one torch thread each, and by two plain processes with one thread each, of which one has
the even prompts and the other the odd ones. Both write every sample and its row. Workers begin
together, and the clock runs from there to the last row: starting Ray, importing and loading are
left out on both sides. The rounds alternate within one run, and the ratio is taken within each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORKERS = 2
MODULE = "geoshrink_batch_builder"
#: Workers begin together; each sample's beginning is noted, the rows say when it has ended.
BUILDER = """
import os
import time
from pathlib import Path

import torch

from geoshrink_bench.zoo.pipelines import pipeline

HERE = Path(__file__).parent


def fruit():
    pipe = pipeline("fruit")

    def call(steps, seed, label=0):
        (HERE / f"ready.{os.getpid()}").touch()
        while len(list(HERE.glob("ready.*"))) < WORKERS:
            time.sleep(0.01)
        file = os.open(HERE / "begun.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(file, f"{time.time():.6f}\\n".encode())
        os.close(file)
        drawn = torch.Generator().manual_seed(seed)
        return pipe(label, num_inference_steps=steps, generator=drawn, output_type="np")

    return pipe, call
""".replace("WORKERS", str(WORKERS))
ENV = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "TOKENIZERS_PARALLELISM": "false"}


def start(folder: Path, prompts: Path, args: argparse.Namespace, *more: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "geoshrink.cli", "batch", f"{MODULE}:fruit", str(prompts)]
    words += ["--out", str(folder / "out"), "--steps", str(args.steps)]
    words += ["--budget", str(args.budget), *more]
    env = {**os.environ, **ENV, "PYTHONPATH": str(folder)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, cwd=folder, env=env, text=True, **quiet)  # pyright: ignore


def seconds(
    args: argparse.Namespace, rows: list[dict[str, Any]], on_ray: bool
) -> tuple[float, float]:
    """(from the first sample's beginning to the last row, the share of it spent in no pipeline)"""
    from pyarrow import parquet

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / f"{MODULE}.py").write_text(BUILDER, "utf-8")
        parts = [rows] if on_ray else [rows[i::WORKERS] for i in range(WORKERS)]
        more = ["--ray", "local", "--workers", str(WORKERS)] if on_ray else []
        going = []
        for i, part in enumerate(parts):
            prompts = folder / f"prompts{i}.jsonl"
            prompts.write_text("\n".join(map(json.dumps, part)), "utf-8")
            going.append(start(folder, prompts, args, *more))
        for process in going:
            _, said = process.communicate()
            if process.returncode:
                raise RuntimeError(said)
        begun = (folder / "begun.log").read_text("utf-8").split()
        ended = [path.stat().st_mtime for path in (folder / "out").glob("*.row.parquet")]
        assert len(begun) == len(ended) == len(rows), (len(begun), len(ended))
        whole = max(ended) - min(map(float, begun))
        kept = (folder / "out").glob("*.row.parquet")
        busy = sum(parquet.read_table(path)["seconds"][0].as_py() for path in kept)
        return whole, 1 - busy / (WORKERS * whole)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    args = parser.parse_args()
    import ray
    import torch

    rows: list[dict[str, Any]] = [{"seed": i, "label": i % 4} for i in range(args.prompts)]
    found: dict[bool, list[float]] = {True: [], False: []}
    idle: dict[bool, list[float]] = {True: [], False: []}
    load = os.getloadavg()[0]
    for n in range(args.rounds):
        for on_ray in (True, False) if n % 2 else (False, True):
            whole, share = seconds(args, rows, on_ray)
            found[on_ray].append(whole)
            idle[on_ray].append(share)
        print(f"round {n + 1}: Ray {found[True][-1]:.1f} s, plain {found[False][-1]:.1f} s")
    ratios = [a / b for a, b in zip(found[True], found[False])]
    rates = {on: [args.prompts / each for each in times] for on, times in found.items()}
    lines = [
        "# What Ray costs a batch",
        "",
        f"Made by `python benchmarks/batch.py --prompts {args.prompts} --rounds {args.rounds} "
        f"--steps {args.steps} --budget {args.budget}` on {os.cpu_count()} cores "
        f"({platform.machine()}, load {load:.1f} at the start), torch {torch.__version__}, ray "
        f"{ray.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}.",
        "",
        *(line for line in (__doc__ or "").splitlines()[4:]),
        "",
        "| | samples a second | smallest–largest | of the workers' time outside the pipeline |",
        "|---|---|---|---|",
        *(
            f"| {name} | {statistics.median(rates[on]):.2f} | {min(rates[on]):.2f}–"
            f"{max(rates[on]):.2f} | {statistics.median(idle[on]):.1%} ({min(idle[on]):.1%}–"
            f"{max(idle[on]):.1%}) |"
            for name, on in (("two actors of Ray", True), ("two plain processes", False))
        ),
        "",
        "Outside the pipeline: encoding and writing a sample and its row, waiting for the next "
        "prompt, and the end, when one worker has nothing left.",
        "",
        f"Seconds of Ray over those of plain processes, in each round: "
        f"{', '.join(f'{ratio:.3f}' for ratio in ratios)}; median {statistics.median(ratios):.3f}.",
    ]
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(*lines[-5:], sep="\n")


if __name__ == "__main__":
    main()
