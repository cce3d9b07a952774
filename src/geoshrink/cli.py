"""geoshrink on the command line."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import __version__

#: Options of `bench` that only one kind of suite has.
PAPER_ONLY = ("checkpoint", "prompts", "dtype", "change", "clip", "clap")
ZOO_ONLY = ("weights", "full_only")


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
    compare = commands.add_parser(
        "compare", help="your own pipeline: full, direct and GeoShrink, as one page"
    )
    compare.add_argument(
        "model", help="a folder that diffusers saved, or a builder package.module:function"
    )
    prompts = compare.add_mutually_exclusive_group()
    prompts.add_argument("--prompts", nargs="+", default=[])
    prompts.add_argument("--prompts-file", type=Path, help="one prompt on each line")
    compare.add_argument("--out", type=Path, default=Path("compare/index.html"), help="the page")
    compare.add_argument("--budgets", type=int, nargs="+", default=[7, 10, 15])
    compare.add_argument("--steps", type=int, default=50)
    compare.add_argument("--guidance", type=float, help="guidance_scale of the call")
    compare.add_argument("--seed", type=int, default=0)
    compare.add_argument("--height", type=int)
    compare.add_argument("--width", type=int)
    compare.add_argument("--frames", type=int, help="of a video")
    compare.add_argument("--dtype", help="bf16, fp16 or fp32; bf16 on a GPU unless said")
    compare.add_argument("--device", help="cuda where there is one unless said")
    compare.add_argument("--kwargs", default="{}", help="more arguments of the call, as JSON")
    compare.set_defaults(run=run_compare)
    plan = commands.add_parser("plan", help="profile a model, and plan its anchors")
    plan.add_argument(
        "model", help="of the zoo, by its name; or a folder that diffusers saved, or a builder"
    )
    plan.add_argument("--budget", type=int, help="model calls: print the plan as JSON")
    plan.add_argument("--target-db", type=float, help="or the quality that it must reach")
    plan.add_argument("--plan", type=Path, help="write the plan here, not to stdout")
    plan.add_argument("--target", default="run", help="run: the full run; flow: the exact flow")
    plan.add_argument("--steps", type=int)
    plan.add_argument("--guidance", type=float)
    plan.add_argument("--device", help="zoo: cpu unless said; else cuda where there is one")
    plan.add_argument("--out", type=Path, help="keep the profile here, or go on with it")
    plan.add_argument("--curve", type=Path, help="draw quality against calls into this HTML file")
    zoo = plan.add_argument_group("models of the zoo")
    zoo.add_argument("--samples", type=int, help="to profile on, 16 unless one comes with it")
    zoo.add_argument("--shift", type=float, help="of the σ-grid")
    pipeline = plan.add_argument_group("pipelines")
    pipeline.add_argument("--prompts", nargs="+", help="to profile on: 4 or more, better 16")
    pipeline.add_argument("--prompts-file", type=Path, help="one prompt on each line")
    pipeline.add_argument("--dtype", help="bf16, fp16 or fp32; bf16 on a GPU unless said")
    pipeline.add_argument("--kwargs", help="more arguments of the call, as JSON")
    plan.set_defaults(run=run_plan)
    bench = commands.add_parser("bench", help="every method on trained models, and its tables")
    acts = bench.add_subparsers(dest="act", required=True)
    run = acts.add_parser("run", help="run a suite, or what is missing of it")
    run.add_argument("suite", help="a YAML file, or the name of a suite (see list)")
    run.add_argument("--out", type=Path, help="folder of the cells; bench/NAME unless given")
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
            "--full-only", action="store_true", help="without the converged flow, for now: quicker"
        )
    report = acts.add_parser("report", help="tables and a page of what was run")
    report.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of bench run")
    report.add_argument("--out", type=Path, help="folder of the report; the first FOLDER if not")
    report.add_argument("--plots", type=Path, help="folder of an SVG file per setting")
    report.add_argument("--samples", type=int, help="shown of each setting, at most")
    acts.add_parser("list", help="the suites and methods there are")
    bench.set_defaults(run=run_bench)
    args = parser.parse_args(argv)
    try:
        return args.run(args)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"geoshrink {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"geoshrink {args.command}: stopped{resuming(args)}", file=sys.stderr)
        return 130


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


def run_compare(args: argparse.Namespace) -> int:
    from .compare import Settings, read_kwargs, read_prompts, run_compare

    prompts = read_prompts(args.prompts_file) if args.prompts_file else args.prompts
    settings = Settings(
        model=args.model,
        prompts=tuple(prompts),
        steps=args.steps,
        budgets=tuple(args.budgets),
        guidance=args.guidance,
        seed=args.seed,
        height=args.height,
        width=args.width,
        frames=args.frames,
        dtype=args.dtype,
        device=args.device,
        kwargs=read_kwargs(args.kwargs),
    )
    run_compare(settings, args.out)
    return 0


def run_plan(args: argparse.Namespace) -> int:
    from .planning.command import run

    return run(args)


def run_bench(args: argparse.Namespace) -> int:
    from .bench import command, paper

    if args.act == "list":
        print(command.listing())
        return 0
    if args.act == "report":
        return run_report(args)
    of_paper = paper.is_suite(args.suite) if args.act == "run" else paper.is_folder(args.out)
    if of_paper:
        return run_paper(args)
    refuse(args, PAPER_ONLY, "is for the suites of the paper (see geoshrink bench list)")
    options: dict[str, Any] = dict(
        device=args.device or "cpu",
        shard=args.shard,
        weights=args.weights,
        summary=args.summary,
    )
    if args.full_only:
        options["references"] = ("full",)
    if args.act == "resume":
        progress = command.resume(args.out, **options)
    else:
        progress = command.run(args.suite, folder_of(args), **options)
    return 1 if progress.failed else 0


def folder_of(args: argparse.Namespace) -> Path:
    return args.out or Path("bench") / Path(args.suite).stem


def resuming(args: argparse.Namespace) -> str:
    """How a bench that was stopped goes on, with the options that it had."""
    if getattr(args, "act", "") not in ("run", "resume") or not folder_of(args).is_dir():
        return ""
    words = ["geoshrink", "bench", "resume", str(folder_of(args))]
    for name in ("device", "weights", "summary"):
        words += [f"--{name}", str(getattr(args, name))] if getattr(args, name) else []
    words += ["--shard", args.shard] if args.shard != "1/1" else []
    words += ["--full-only"] if args.full_only else []
    return f"; resume with: {shlex.join(words)}"


def run_paper(args: argparse.Namespace) -> int:
    from .bench import paper
    from .compare import read_kwargs

    refuse(args, ZOO_ONLY, "is for suites on the models of the zoo, not for those of the paper")
    common: dict[str, Any] = dict(device=args.device, shard=args.shard, summary=args.summary)
    if args.act == "resume":
        progress = paper.resume(args.out, **common)
    else:
        progress = paper.run(
            args.suite,
            args.checkpoint or "",
            args.prompts,
            args.out or Path("bench") / Path(args.suite).stem,
            change=read_kwargs(args.change or "{}", "--change"),
            dtype=args.dtype,
            clip=args.clip,
            clap=args.clap,
            **common,
        )
    return 1 if progress.failed else 0


def run_report(args: argparse.Namespace) -> int:
    from .bench import command, paper

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


if __name__ == "__main__":
    sys.exit(main())
