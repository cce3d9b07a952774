"""Run every method on trained models, and make their tables."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geoshrink.compare import read_kwargs

from .. import command, paper

#: Options that only one kind of suite has.
PAPER_ONLY = ("checkpoint", "prompts", "dtype", "change", "clip", "clap")
ZOO_ONLY = ("weights", "full_only")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    acts = parser.add_subparsers(dest="act", required=True)
    run = acts.add_parser("run", help="run a suite, or what is missing of it")
    run.add_argument("suite", help="a YAML file, or the name of a suite (see list)")
    run.add_argument("--out", type=Path, help="folder of the cells; default: cells/NAME")
    paper = run.add_argument_group("suites of the paper, on a real checkpoint")
    paper.add_argument("--checkpoint", help="its folder, as its library has it")
    paper.add_argument(
        "--prompts", type=Path, help="a .txt, .csv, .tsv or .json file, or a folder of pictures"
    )
    paper.add_argument("--dtype", help="bf16, fp16 or fp32; the paper's on a GPU unless said")
    paper.add_argument("--change", help='of its protocol, as JSON: {"seeds": 1}')
    paper.add_argument("--clip", type=Path, help="folder of a CLIP checkpoint")
    paper.add_argument("--clap", type=Path, help="folder of a CLAP checkpoint")
    resume = acts.add_parser("resume", help="go on with a folder")
    resume.add_argument("out", type=Path)
    for part in (run, resume):
        part.add_argument(
            "--device", help="cpu unless said; cuda where there is one for --checkpoint"
        )
        part.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts of the cells")
        part.add_argument("--weights", type=Path, help="folder of the zoo's weights")
        part.add_argument("--summary", type=Path, help="write the tables here, too")
        part.add_argument(
            "--full-only",
            action=argparse.BooleanOptionalAction,
            help="without the converged flow, for now: quicker",
        )
    report = acts.add_parser("report", help="tables and a page of what was run")
    report.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of bench run")
    report.add_argument("--out", type=Path, help="folder of the report; the first FOLDER if not")
    report.add_argument("--plots", type=Path, help="folder of an SVG file per setting")
    report.add_argument("--samples", type=int, help="shown of each setting, at most")
    acts.add_parser("list", help="the suites and methods there are")


def run(args: argparse.Namespace) -> int:
    if args.act == "list":
        print(command.listing())
        return 0
    if args.act == "report":
        return run_report(args)
    of_paper = paper.is_suite(args.suite) if args.act == "run" else paper.is_folder(args.out)
    if of_paper:
        return run_paper(args)
    refuse(args, PAPER_ONLY, "is for the suites of the paper (see geoshrink bench list)")
    given = {name: getattr(args, name) for name in ("device", "shard", "weights", "summary")}
    options: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if args.full_only is not None:
        options["references"] = command.REFERENCES[: 1 if args.full_only else None]
    if args.act == "resume":
        progress = command.resume(args.out, **options)
    else:
        progress = command.run(args.suite, folder_of(args), **options)
    return 1 if progress.failed else 0


def folder_of(args: argparse.Namespace) -> Path:
    return args.out or Path("cells") / Path(args.suite).stem


def stopped(args: argparse.Namespace) -> str:
    """How a bench that was stopped goes on; its folder has kept the options."""
    if getattr(args, "act", "") not in ("run", "resume") or not folder_of(args).is_dir():
        return ""
    words = ["geoshrink", "bench", "resume", str(folder_of(args))]
    words += ["--shard", args.shard] if args.shard != "1/1" else []
    return f"; resume with: {shlex.join(words)}"


def run_paper(args: argparse.Namespace) -> int:
    refuse(args, ZOO_ONLY, "is for suites on the models of the zoo, not for those of the paper")
    common: dict[str, Any] = dict(device=args.device, shard=args.shard, summary=args.summary)
    if args.act == "resume":
        progress = paper.resume(args.out, **common)
    else:
        progress = paper.run(
            args.suite,
            args.checkpoint or "",
            args.prompts,
            args.out or Path("cells") / Path(args.suite).stem,
            change=read_kwargs(args.change or "{}", "--change"),
            dtype=args.dtype,
            clip=args.clip,
            clap=args.clap,
            **common,
        )
    return 1 if progress.failed else 0


def run_report(args: argparse.Namespace) -> int:
    of_paper = [folder for folder in args.folders if paper.is_folder(folder)]
    if not of_paper:
        command.report(args.folders, args.out, args.plots, args.samples)
        return 0
    others = [str(folder) for folder in args.folders if folder not in of_paper]
    if others:
        raise ValueError(f"{of_paper[0]} is of a suite of the paper: report {others[0]} apart")
    refuse(args, ("plots",), "is for suites on the models of the zoo")
    paper.report(args.folders, args.out, args.samples)
    return 0


def refuse(args: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """An option that a suite of this kind would ignore."""
    for name in names:
        if getattr(args, name, None):
            raise ValueError(f"--{name.replace('_', '-')} {why}")
