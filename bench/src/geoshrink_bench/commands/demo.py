"""Run our own model: full, direct and geoshrink, as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..demo import NUMBERS, Settings, run_demo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    own = Settings()
    parser.add_argument("--out", type=Path, default=Path("demo/index.html"), help="the page")
    parser.add_argument(
        "--strip", type=Path, help="also write reference, direct and geoshrink as a picture"
    )
    parser.add_argument("--budgets", type=int, nargs="+", default=own.budgets)
    for name in NUMBERS:
        default = getattr(own, name)
        parser.add_argument(f"--{name}", type=type(default), default=default)


def run(args: argparse.Namespace) -> int:
    numbers = {name: getattr(args, name) for name in NUMBERS}
    run_demo(Settings(tuple(args.budgets), **numbers), args.out, args.strip)
    return 0
