"""geoshrink on the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="geoshrink",
        description="Diffusion and flow sampling with a fraction of the model calls.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="our own model: full, direct and GeoShrink, as one page"
    )
    demo.add_argument("--out", type=Path, default=Path("demo/index.html"), help="the page")
    demo.add_argument(
        "--strip", type=Path, help="also write reference | direct | ours as a picture"
    )
    demo.add_argument("--budgets", type=int, nargs="+", default=[7, 10, 15])
    demo.add_argument("--steps", type=int, default=50)
    demo.add_argument("--guidance", type=float, default=3.0)
    demo.add_argument("--shift", type=float, default=3.0)
    demo.add_argument("--seed", type=int, default=0)
    demo.set_defaults(run=run_demo)
    args = parser.parse_args(argv)
    try:
        return args.run(args)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"geoshrink {args.command}: {error}", file=sys.stderr)
        return 2


def run_demo(args: argparse.Namespace) -> int:
    from .demo import Settings, run_demo

    settings = Settings(
        budgets=tuple(args.budgets),
        steps=args.steps,
        guidance=args.guidance,
        shift=args.shift,
        seed=args.seed,
    )
    run_demo(settings, args.out, args.strip)
    return 0


if __name__ == "__main__":
    sys.exit(main())
