"""What it costs to hold a quality: one read of the device at every anchor, on a full-size FLUX.

    python benchmarks/gpu/target_cost.py --out benchmarks/gpu/target_cost.md

The same pipeline (random weights, bf16, 50 steps) with budget=10 and with target_db=200, most=10,
which makes 10 calls, too, and decides at each: wall time from the call of the pipeline until the
device is idle, in turns, and the ratio of the medians. The first run with a target lays out the
meshes of all budgets, once for a grid; it is told apart.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from machine import header
from models import build

import geoshrink

STEPS, CALLS = 50, 10


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to hold a quality.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="flux")
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--tiny", action="store_true", help="the same code on a CPU")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pipe, call, _ = build(args.model, args.tiny, device)
    pipe.set_progress_bar_config(disable=True)
    ways = {"budget": dict(budget=CALLS), "target": dict(target_db=200, most=CALLS)}
    first = {name: timed(pipe, call, device, way) for name, way in ways.items()}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.times):
        for name, way in ways.items():
            taken[name].append(timed(pipe, call, device, way)[0])
    middle = {name: statistics.median(times) for name, times in taken.items()}
    more = middle["target"] / middle["budget"] - 1
    args.out.write_text(
        f"# {str(__doc__).splitlines()[0]}\n\n"
        f"Made by `python benchmarks/gpu/target_cost.py --model {args.model} --times {args.times}` "
        f"on {told(header())}.\n" + "\n".join(str(__doc__).splitlines()[3:]) + "\n\n"
        "| | calls | first run, s | median, s | all, s |\n|---|--:|--:|--:|---|\n"
        + "".join(
            f"| {name} | {first[name][1]} | {first[name][0]:.3f} | {middle[name]:.4f} | "
            f"{', '.join(f'{t:.4f}' for t in taken[name])} |\n"
            for name in ways
        )
        + f"\nHolding a quality costs {more:+.2%} (asked: below 0.5 %).\n",
        encoding="utf-8",
    )
    print(args.out.read_text(encoding="utf-8"))


def told(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {about['versions'][name]}" for name in ("torch", "diffusers"))
    return f"{about['device']}, {about['date']}: {versions}"


def timed(pipe: Any, call: dict[str, Any], device: str, way: dict[str, Any]) -> tuple[float, int]:
    """(seconds, model calls) of one run."""
    with geoshrink.accelerate(pipe, **way) as handle:
        wait(device)
        begun = time.perf_counter()
        generator = torch.Generator(device).manual_seed(0)
        pipe(**call, num_inference_steps=STEPS, generator=generator, output_type="latent")
        wait(device)
        seconds = time.perf_counter() - begun
        report = handle.report
    assert report is not None
    return seconds, report.evaluations


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
