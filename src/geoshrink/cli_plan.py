"""Profile a model or a pipeline, and plan its anchors.

A model of the zoo comes with a profile; if that does not fit, one is made, as for a pipeline. The
plan goes to stdout as JSON, or to a file; everything else goes to stderr. If no plan is asked for,
the table goes to stdout.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .adapters.profiling import profile_pipeline
from .compare import Settings, read_kwargs, read_prompts
from .compare.inputs import check_device
from .compare.manners import PIPELINE as MANNER
from .compare.pipeline import load as load_host
from .planning import Profile
from .planning.runs import check_budget, check_target
from .zoo import load
from .zoo.profiles import SAMPLES, fitted, profiled
from .zoo.recipes import RECIPES

#: Options of one kind of model; giving them for the other is an error.
ZOO, PIPELINE = ("samples", "shift"), ("prompts", "prompts_file", "dtype", "kwargs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", help="of the zoo, by its name; or a folder that diffusers saved, or a builder"
    )
    parser.add_argument("--budget", type=int, help="model calls: print the plan as JSON")
    parser.add_argument("--target-db", type=float, help="or the quality that it must reach")
    parser.add_argument("--plan", type=Path, help="write the plan here, not to stdout")
    parser.add_argument("--target", default="run", help="run: the full run; flow: the exact flow")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--guidance", type=float)
    parser.add_argument("--device", help="zoo: cpu unless said; else cuda where there is one")
    parser.add_argument("--out", type=Path, help="keep the profile here, or go on with it")
    parser.add_argument("--curve", type=Path, help="draw quality against calls into this HTML file")
    zoo = parser.add_argument_group("models of the zoo")
    zoo.add_argument("--samples", type=int, help="to profile on, 16 unless one comes with it")
    zoo.add_argument("--shift", type=float, help="of the σ-grid")
    pipeline = parser.add_argument_group("pipelines")
    pipeline.add_argument("--prompts", nargs="+", help="to profile on: 4 or more, better 16")
    pipeline.add_argument("--prompts-file", type=Path, help="one prompt on each line")
    pipeline.add_argument("--dtype", help="bf16, fp16 or fp32; bf16 on a GPU unless said")
    pipeline.add_argument("--kwargs", help="more arguments of the call, as JSON")


def run(args: argparse.Namespace) -> int:
    if args.budget is not None and args.target_db is not None:
        raise ValueError(f"give --budget {args.budget} or --target-db {args.target_db}, not both")
    asked = args.budget is not None or args.target_db is not None
    if args.plan is not None and not asked:
        raise ValueError(f"--plan {args.plan} is for a plan: give --budget or --target-db, too")
    check_target(args.target, None, "euler")
    check_device(args.device)
    own = args.model not in RECIPES and (Path(args.model).is_dir() or ":" in args.model)
    kind, others = ("a pipeline", ZOO) if own else ("a model of the zoo", PIPELINE)
    for name in others:
        if getattr(args, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is not an option of {kind}")
    found = of_pipeline(args) if own else of_zoo(args)
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
            print(plan.to_json())
        else:
            args.plan.parent.mkdir(parents=True, exist_ok=True)
            args.plan.write_text(plan.to_json() + "\n", encoding="utf-8")
    return 0


def of_zoo(args: argparse.Namespace) -> Profile:
    model = load(args.model, args.device or "cpu")
    if args.samples is not None and args.samples < 1:
        raise ValueError(f"--samples must be at least 1, got {args.samples}")
    grid = model.grid(args.steps, args.shift, model.judged_at.get("interval"))
    if args.budget is not None:
        check_budget(args.budget, grid)
    return ready(model, grid, args) or profiled(
        model,
        SAMPLES if args.samples is None else args.samples,
        args.steps,
        shift=args.shift,
        guidance=args.guidance,
        target=args.target,
        file=args.out,
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
    if loaded.manner is not MANNER:
        raise ValueError(
            f"{loaded.kind} is not called as a diffusers pipeline is: profile the model itself, "
            "with geoshrink.profile(velocity, noise, sigmas)"
        )
    return profile_pipeline(
        loaded.host,
        settings.prompts or [{}] * SAMPLES,
        num_inference_steps=settings.steps,
        target=args.target,
        file=args.out,
        **loaded.call,
    )


def ready(model: Any, grid: Any, args: argparse.Namespace) -> Profile | None:
    """The profile that comes with the model, if it fits and no other is asked for."""
    if args.out is not None or args.samples is not None:
        return None
    guidance = model.judged_at["guidance"] if args.guidance is None else args.guidance
    found, reason = fitted(args.model, grid, guidance)
    if found is not None and not found.tried(args.target):
        found, reason = None, f"it has no real runs for target={args.target!r}"
    if found is None:
        print(f"not by the profile that comes with {args.model}: {reason}", file=sys.stderr)
        return None
    words = f"the profile that comes with {args.model}: {found}; --samples or --out make a new one"
    print(words, file=sys.stderr)
    return found
