"""Run our own model: full, direct and geoshrink, as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..demo import Settings, run_demo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo/index.html"), help="the page")
    parser.add_argument(
        "--strip", type=Path, help="also write reference, direct and geoshrink as a picture"
    )
    parser.add_argument("--budgets", type=int, nargs="+", default=[7, 10, 15])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--shift", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> int:
    settings = Settings(
        budgets=tuple(args.budgets),
        steps=args.steps,
        guidance=args.guidance,
        shift=args.shift,
        seed=args.seed,
    )
    run_demo(settings, args.out, args.strip)
    return 0
