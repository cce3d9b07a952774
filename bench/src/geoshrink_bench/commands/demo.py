"""Run our own model: full, direct and geoshrink, as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from geoshrink.compare.inputs import check_out

from ..demo import NUMBERS, Settings, run_demo
from ..playground import BUDGETS, write_playground

EXAMPLES = """
geoshrink demo
geoshrink demo --budgets 7 10 15 --out page/index.html
"""
LEAST = 4  # calls that every method takes
#: What each of NUMBERS is.
HELP = {
    "steps": "of the full run",
    "guidance": "guidance scale",
    "shift": "of the σ-grid",
    "seed": "of the noise",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    own = Settings()
    page = Path("demo/index.html")
    parser.add_argument("--out", type=Path, default=page, help=f"the page; default: {page}")
    parser.add_argument(
        "--strip", type=Path, help="also write reference, direct and geoshrink as a picture"
    )
    usual = " ".join(map(str, own.budgets))
    parser.add_argument(
        "--budgets",
        type=int,
        nargs="+",
        help=f"model calls; default: {usual}, with --play {BUDGETS[0]} to {BUDGETS[-1]}",
    )
    parser.add_argument(
        "--play", type=Path, help="also write a page with a dial over many budgets, for a website"
    )
    for name in NUMBERS:
        default, told = getattr(own, name), f"{HELP[name]}; default: {getattr(own, name):g}"
        parser.add_argument(f"--{name}", type=type(default), default=default, help=told)


def run(args: argparse.Namespace) -> int:
    numbers = {name: getattr(args, name) for name in NUMBERS}
    budgets = budgets_of(args)
    files = [path for path in (args.out, args.strip, args.play) if path is not None]
    for i, path in enumerate(files):
        if path.resolve() in [other.resolve() for other in files[:i]]:
            raise ValueError(f"{path} is named twice: --out, --strip and --play are files each")
    if args.play:
        check_out(args.play)
    demo = run_demo(Settings(budgets, **numbers), args.out, args.strip)
    if args.play:
        print(f"a page with a dial: {write_playground(demo, args.play)}")
    return 0


def budgets_of(args: argparse.Namespace) -> tuple[int, ...]:
    """Those that were given, or the usual ones below the steps; each once, in order."""
    if args.steps <= LEAST:
        raise ValueError(f"--steps {args.steps} is too few: at least {LEAST + 1}")
    usual = BUDGETS if args.play else Settings().budgets
    budgets = sorted({*(args.budgets or (b for b in usual if b < args.steps))}) or [LEAST]
    for budget in budgets:
        if budget < LEAST:
            raise ValueError(f"--budgets: budget {budget} is too small: at least {LEAST} calls")
        if budget >= args.steps:
            raise ValueError(f"--budgets: budget {budget} is not below the {args.steps} steps")
    return tuple(budgets)
