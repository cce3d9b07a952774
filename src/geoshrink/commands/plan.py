"""Profile a model or a pipeline, and plan its anchors.

A model of the zoo comes with a profile; if that does not fit, one is made, as for a pipeline. The
plan goes to stdout as JSON, or to a file; everything else goes to stderr. If no plan is asked for,
the table goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from ..batch.spread import spread
from ..compare import Settings, read_kwargs, read_prompts
from ..compare.inputs import check_amount, check_device, check_out
from ..compare.pipeline import load as load_host
from ..hosts.host import STEPS, call_pipeline
from ..hosts.profiling import profile_pipeline
from ..hosts.recording import Calls, check_call
from ..plan_json import sealed
from ..planning import Profile
from ..planning.runs import check_target
from ..planning.tournament import Source
from ..pointers import explained
from .arguments import add_ray, engine_of

EXAMPLES = """
geoshrink plan fruit --budget 10 --plan fruit10.json
geoshrink plan models/FLUX.1-dev --prompts-file prompts.txt --out flux.json --target-db 30
"""
MODELS = "geoshrink.models"
SAMPLES = 16  # of a pipeline without prompts
#: Options of one kind of model; giving them for the other is an error.
ZOO, PIPELINE = ("samples", "shift"), ("prompts", "prompts_file", "dtype", "kwargs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", help="of the zoo, by its name; or a folder that diffusers saved, or a builder"
    )
    parser.add_argument("--budget", type=int, help="model calls: print the plan as JSON")
    parser.add_argument("--target-db", type=float, help="or the quality that it must reach")
    parser.add_argument("--plan", type=Path, help="write the plan here, not to stdout")
    parser.add_argument(
        "--target", default="run", help="run: the full run (default); flow: the exact flow"
    )
    parser.add_argument(
        "--steps", type=int, help="of the solver; default: 50, or the zoo model's own"
    )
    parser.add_argument("--guidance", type=float, help="guidance scale of the runs")
    parser.add_argument("--device", help="default: cpu for the zoo, else cuda if there is one")
    parser.add_argument(
        "--out", type=Path, help="keep the profile here, or go on with it; default: not kept"
    )
    parser.add_argument("--curve", type=Path, help="draw quality against calls into this HTML file")
    zoo = parser.add_argument_group("models of the zoo")
    zoo.add_argument("--samples", type=int, help="to profile on anew; default: 16")
    zoo.add_argument("--shift", type=float, help="of the σ-grid")
    pipeline = parser.add_argument_group("pipelines")
    pipeline.add_argument("--prompts", nargs="+", help="to profile on: 4 or more, better 16")
    pipeline.add_argument("--prompts-file", type=Path, help="one prompt on each line")
    pipeline.add_argument("--dtype", help="bf16, fp16 or fp32; default: bf16 on a GPU")
    pipeline.add_argument("--kwargs", help="more arguments of the call, as JSON")
    parser.add_argument(
        "--batch",
        type=int,
        help="samples of a zoo model in one batch; default: all, with --workers or --ray 4",
    )
    add_ray(parser)


@explained("planning")
def run(args: argparse.Namespace) -> int:
    if args.budget is not None and args.target_db is not None:
        raise ValueError(f"give --budget {args.budget} or --target-db {args.target_db}, not both")
    asked = args.budget is not None or args.target_db is not None
    if args.plan is not None and not asked:
        raise ValueError(f"--plan {args.plan} is for a plan: give --budget or --target-db, too")
    check_target(args.target, None, "euler")
    check_amount(args.budget, target_db=args.target_db)
    for file in (args.plan, args.out, args.curve):
        if file is not None:
            check_out(file)
    check_device(args.device)
    own = Path(args.model).is_dir() or ":" in args.model
    known = {entry.name: entry for entry in entry_points(group=MODELS)}
    if not own and args.model not in known:
        names = ", ".join(known) or "none: pip install geoshrink-bench"
        raise ValueError(
            f"no folder {args.model!r}, and no model of that name; the models are {names}"
        )
    kind, others = ("a pipeline", ZOO) if own else ("a model of the zoo", PIPELINE)
    for name in others:
        if getattr(args, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is not an option of {kind}")
    found = of_pipeline(args) if own else of_model(known[args.model], args)
    curve = found.curve(target=args.target)
    print(curve, file=sys.stderr if asked else sys.stdout)
    if args.curve:
        curve.write(args.curve)
    if asked:
        if args.budget is not None and args.budget > found.grid.steps:
            words = f"--budget {args.budget} is more than the {found.grid.steps} steps: all are run"
            print(words, file=sys.stderr)
        plan = found.plan(args.budget, target_db=args.target_db, target=args.target)
        if args.plan is None:
            print(json.dumps(sealed(plan)))
        else:
            plan.save(args.plan)
            print(f"wrote {args.plan}", file=sys.stderr)
    return 0


def of_model(entry: EntryPoint, args: argparse.Namespace) -> Profile:
    """A profile of a model that comes with a distribution, by the group geoshrink.models."""
    if args.samples is not None and args.samples < 1:
        raise ValueError(f"--samples must be at least 1, got {args.samples}")
    engine = engine_of(args)
    return entry.load()(entry.name, args.device or "cpu").profile(
        args.budget,
        samples=args.samples,
        steps=args.steps,
        shift=args.shift,
        guidance=args.guidance,
        target=args.target,
        file=args.out,
        batch=args.batch or (None if engine is None else 4),
        engine=engine,
    )


def of_pipeline(args: argparse.Namespace) -> Profile:
    """A profile of a diffusers pipeline, given as for `geoshrink compare`."""
    if args.prompts and args.prompts_file:
        raise ValueError("give --prompts or --prompts-file, not both")
    prompts = read_prompts(args.prompts_file) if args.prompts_file else args.prompts or ()
    settings = Settings(
        args.model,
        tuple(prompts),
        steps=args.steps or 50,
        budgets=(4,),
        guidance=args.guidance,
        dtype=args.dtype,
        device=args.device,
        kwargs=read_kwargs(args.kwargs or "{}"),
    )
    loaded = load_host(settings)
    if loaded.way.call is not call_pipeline:
        raise ValueError(
            f"{loaded.kind} is not called as a diffusers pipeline is: profile the model itself, "
            "with geoshrink.profile(velocity, noise, sigmas)"
        )
    calls = settings.prompts or [{}] * SAMPLES
    options = {STEPS: settings.steps, **loaded.call}
    with spread(engine_of(args), PipelineCalls(settings, calls)) as through:
        told: dict[str, Any] = {"target": args.target, "file": args.out, "through": through}
        return profile_pipeline(loaded.host, calls, **told, **options)


@dataclass(frozen=True)
class PipelineCalls:
    """What is profiled, made anew where a worker is."""

    settings: Settings
    calls: Sequence[Any]

    def __call__(self) -> Source:
        loaded = load_host(self.settings)
        options = {STEPS: self.settings.steps, **loaded.call}
        runs = check_call(loaded.host, self.calls, options)
        return quiet_calls(loaded.host, runs)


def quiet_calls(host: Any, runs: Sequence[dict[str, Any]]) -> Source:
    """For good: a worker's bars would be seen by nobody."""
    vars(host)["_progress_bar_config"] = {"disable": True}
    return Calls(host, runs, seed=0)
