"""Run every method on trained models, and make their tables."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from geoshrink.commands.arguments import add_ray, engine_of
from geoshrink.compare import read_kwargs
from geoshrink.terminal import show_table

from .. import command

EXAMPLES = """
geoshrink bench run rivals --device cuda
geoshrink bench report cells/rivals
"""
#: Options of a lab.
OPTIONS = ("device", "weights", "full_only", "checkpoint", "prompts", "dtype", "clip", "clap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    acts = parser.add_subparsers(dest="act", required=True)
    run = acts.add_parser("run", help="run a suite, or what is missing of it")
    run.add_argument("suite", help="a YAML file, or the name of a suite (see list)")
    run.add_argument("--out", type=Path, help="folder of the cells; default: cells/NAME")
    run.add_argument("--change", help='of the suite, as JSON: {"seeds": 1}')
    paper = run.add_argument_group("suites of the paper, on a real checkpoint")
    paper.add_argument("--checkpoint", help="its folder, as its library has it")
    paper.add_argument(
        "--prompts", help="a .txt, .csv, .tsv or .json file, or a folder of pictures"
    )
    paper.add_argument("--dtype", help="bf16, fp16 or fp32; default: the paper's on a GPU")
    paper.add_argument("--clip", help="folder of a CLIP checkpoint")
    paper.add_argument("--clap", help="folder of a CLAP checkpoint")
    resume = acts.add_parser("resume", help="go on with a folder")
    resume.add_argument("out", type=Path, help="folder of the cells, of bench run")
    usual = "default: cpu; with --checkpoint, cuda where there is one"
    for part, device in ((run, usual), (resume, "default: as the folder was begun")):
        part.add_argument("--device", help=device)
        part.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts of the cells")
        part.add_argument("--weights", help="folder of the zoo's weights")
        part.add_argument("--summary", type=Path, help="write the tables here, too")
        part.add_argument(
            "--full-only",
            action=argparse.BooleanOptionalAction,
            help="without the converged flow, for now: quicker",
        )
        part.add_argument(
            "--stale",
            action="store_true",
            help="make anew what other code than today's made, too (see status)",
        )
        part.add_argument(
            "--only",
            nargs="+",
            default=(),
            metavar="NAME",
            help="models or methods, as tables or the suite name them: no other cells now",
        )
        add_ray(part)
    add_paper(acts.add_parser("paper", help="the paper's tables on its checkpoints, as one page"))
    report = acts.add_parser("report", help="tables and a page of what was run")
    report.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of bench run")
    report.add_argument("--out", type=Path, help="folder of the report; default: the first FOLDER")
    report.add_argument("--plots", type=Path, help="folder of an SVG file per setting")
    report.add_argument("--samples", type=int, help="shown of each setting, at most")
    status = acts.add_parser("status", help="what is done, missing, and made by other code")
    status.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of bench run")
    acts.add_parser("list", help="the suites and methods there are")


def add_paper(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", type=Path, help="folder of the checkpoints, a folder each")
    parser.add_argument("--prompts", type=Path, help="folder of the prompts; default: --models")
    parser.add_argument(
        "--out", type=Path, default=Path("paper"), help="for the page and cells; default: paper"
    )
    parser.add_argument("--only", nargs="+", metavar="SUITE", help="default: Table 1 to 5")
    parser.add_argument("--list", action="store_true", help="what is there, missing, and its cost")
    parser.add_argument("--change", help='of every suite, as JSON: {"seeds": 1}')
    parser.add_argument("--dry-run", action="store_true", help="on tiny models, random weights")
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts of the cells")
    parser.add_argument("--stale", action="store_true", help="make anew what other code made")
    for name in ("device", "dtype", "clip", "clap"):
        parser.add_argument(f"--{name}", help="as for bench run")


def run_paper(args: argparse.Namespace) -> int:
    from ..reproduce import reproduce

    names = ("device", "dtype", "clip", "clap", "shard", "stale")
    options = {name: getattr(args, name) for name in names}
    done = reproduce(
        args.models, args.out, prompts=args.prompts, only=args.only, dry_run=args.dry_run,
        look_only=args.list, change=read_kwargs(args.change or "{}", "--change"), **options,
    )  # fmt: skip
    return 1 if done.failed else 0


def run(args: argparse.Namespace) -> int:
    if args.act == "paper":
        return run_paper(args)
    if args.act == "list":
        print(command.listing())
        return 0
    if args.act == "status":
        show_table(command.status(args.folders))
        print()
        return 0
    if args.act == "report":
        command.report(args.folders, args.out, args.plots, args.samples)
        return 0
    options: dict[str, Any] = {name: getattr(args, name, None) for name in OPTIONS}
    options = {name: value for name, value in options.items() if value is not None}
    options |= dict(
        shard=args.shard, summary=args.summary, engine=engine_of(args), stale=args.stale,
        only=args.only,
    )  # fmt: skip
    if args.act == "resume":
        progress = command.resume(args.out, **options)
    else:
        change = read_kwargs(args.change or "{}", "--change")
        progress = command.run(args.suite, folder_of(args), change=change, **options)
    return 1 if progress.failed else 0


def folder_of(args: argparse.Namespace) -> Path:
    return args.out or Path("cells") / Path(args.suite).stem


def stopped(args: argparse.Namespace) -> str:
    """How a bench that was stopped goes on; its folder knows the options that it had."""
    if getattr(args, "act", "") == "paper":
        return "; the same command goes on"
    if getattr(args, "act", "") not in ("run", "resume") or not folder_of(args).is_dir():
        return ""
    words = ["geoshrink", "bench", "resume", str(folder_of(args))]
    words += ["--shard", args.shard] if args.shard != "1/1" else []
    words += ["--stale"] if args.stale else []
    words += ["--only", *args.only] if args.only else []
    return f"; resume with: {shlex.join(words)}"
