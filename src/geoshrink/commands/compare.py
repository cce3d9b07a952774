"""Compare full, direct and geoshrink runs of your own pipeline, as one page."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..compare.bench import run_compare
from ..compare.inputs import Settings, read_kwargs, read_prompts
from ..pointers import explained
from .arguments import add_pipeline

EXAMPLES = """
geoshrink compare models/FLUX.1-dev --prompts "a lighthouse at dawn" --budgets 10 15
geoshrink compare mine:build --prompts-file prompts.txt --steps 28 --out page/index.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", help="a folder that diffusers saved, or a builder package.module:function"
    )
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--prompts", nargs="+", default=[], help="what to make")
    prompts.add_argument("--prompts-file", type=Path, help="one prompt on each line")
    page = Path("compare/index.html")
    parser.add_argument("--out", type=Path, default=page, help=f"the page; default: {page}")
    parser.add_argument(
        "--budgets", type=int, nargs="+", default=[7, 10, 15], help="model calls; default: 7 10 15"
    )
    parser.add_argument("--steps", type=int, default=50, help="of the full run; default: 50")
    parser.add_argument("--guidance", type=float, help="guidance_scale of the call")
    parser.add_argument("--seed", type=int, default=0, help="of the noise; default: 0")
    add_pipeline(parser)


@explained("compare")
def run(args: argparse.Namespace) -> int:
    given: dict[str, Any] = {f.name: getattr(args, f.name) for f in fields(Settings)}
    given["kwargs"] = read_kwargs(args.kwargs)
    if args.prompts_file:
        given["prompts"] = read_prompts(args.prompts_file)
    run_compare(Settings(**given), args.out)
    return 0
