"""Run many prompts through a pipeline, here or on a Ray cluster; a second start does the rest."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..batch import run as run_batch
from ..compare.inputs import read_kwargs
from ..pointers import explained
from .arguments import PIPELINE, add_pipeline, add_ray, engine_of

EXAMPLES = """
geoshrink batch models/FLUX.1-dev prompts.txt --out pictures --budget 10
geoshrink batch mine:wan prompts.jsonl --out s3://bucket/run --target-db 30 --ray auto
"""
SETTINGS = ("steps", "guidance", *PIPELINE)
OPTIONS = ("budget", "speedup", "target_db", "plan", "rule", "space")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", help="a folder that diffusers saved, or a builder package.module:function"
    )
    parser.add_argument(
        "prompts", help="a file with a prompt on each line, JSON lines or Parquet; or an address"
    )
    parser.add_argument("--out", required=True, help="a folder, or an address like s3://bucket/run")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--budget", type=int, help="model calls")
    amount.add_argument("--speedup", type=float, help="or the steps divided by this")
    amount.add_argument("--target-db", type=float, help="or the quality to reach, in dB")
    amount.add_argument("--plan", help="or a plan file (geoshrink plan)")
    amount.add_argument("--plain", action="store_true", help="or every step: not accelerated")
    parser.add_argument("--learn", action="store_true", help="the first sample teaches the others")
    parser.add_argument("--rule", help="how skipped stages are predicted; default: signed time")
    parser.add_argument("--space", help="where: output or data; default: output")
    parser.add_argument(
        "--steps", type=int, help="of the solver; default: those that --plan is for, or 50"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first prompt without one; default: 0"
    )
    parser.add_argument("--guidance", type=float, help="guidance_scale of the call")
    add_pipeline(parser)
    add_ray(parser)


@explained("batch")
def run(args: argparse.Namespace) -> int:
    options: dict[str, Any] = {name: getattr(args, name) for name in OPTIONS}
    options = {name: value for name, value in options.items() if value is not None}
    if args.learn:
        options["learn"] = True
    settings = {name: getattr(args, name) for name in SETTINGS}
    settings = {name: value for name, value in settings.items() if value is not None}
    batch = run_batch(
        args.model,
        args.prompts,
        args.out,
        engine=engine_of(args),
        seed=args.seed,
        settings={**settings, "kwargs": read_kwargs(args.kwargs)},
        plain=args.plain,
        **options,
    )
    print(f"{args.out}: {batch.line()}; results.parquet has a row for each")
    for key, error in batch.failed[:5]:
        print(f"failed: {key}: {error}", file=sys.stderr)
    if batch.left:
        print("stopped: the same command goes on", file=sys.stderr)
        return 130
    return 1 if batch.failed else 0
