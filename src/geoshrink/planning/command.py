"""geoshrink plan: a model of the zoo, by the profile that comes with it or by one made now."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .profiles import Profile
from .ship import SAMPLES, fitted, profiled
from .targets import check_budget, check_target


def run(args: argparse.Namespace) -> int:
    from ..zoo import load

    model = load(args.model, args.device)
    if args.samples is not None and args.samples < 1:
        raise ValueError(f"--samples must be at least 1, got {args.samples}")
    if args.budget is not None and args.target_db is not None:
        raise ValueError(f"give --budget {args.budget} or --target-db {args.target_db}, not both")
    check_target(args.target, None, "euler")
    if args.budget is not None:
        check_budget(args.budget, model.grid(args.steps, interval=model.judged_at.get("interval")))
    found = ready(model, args)
    if found is None:
        found = profiled(
            model,
            SAMPLES if args.samples is None else args.samples,
            args.steps,
            guidance=args.guidance,
            target=args.target,
            file=args.out,
        )
    curve = found.curve(target=args.target)
    print(curve)
    if args.curve:
        curve.write(args.curve)
    if args.budget is not None or args.target_db is not None:
        print(found.plan(args.budget, target_db=args.target_db, target=args.target).to_json())
    return 0


def ready(model: Any, args: argparse.Namespace) -> Profile | None:
    """The model's own profile, where it fits and nobody asked for another."""
    if args.out is not None or args.samples is not None:
        return None
    guidance = model.judged_at["guidance"] if args.guidance is None else args.guidance
    grid = model.grid(args.steps, interval=model.judged_at.get("interval"))
    found, reason = fitted(args.model, grid, guidance)
    if found is not None and not found.tried(args.target):
        found, reason = None, f"it has no real runs for target={args.target!r}"
    if found is None:
        print(f"not by the profile that comes with {args.model}: {reason}", file=sys.stderr)
        return None
    words = f"the profile that comes with {args.model}: {found}; --samples or --out make one anew"
    print(words, file=sys.stderr)
    return found
