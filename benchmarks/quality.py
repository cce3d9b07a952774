"""A quality in place of a budget: is it reached, and with how many calls?

    python -m geoshrink_bench.foreign fetch
    python benchmarks/quality.py --device cuda --out benchmarks/quality.md

For every model of ours and of others, at the guidances and shifts of planning_common.SETTINGS, and
targets of 20 to 40 dB: `sample(…, target_db=…)` on a batch of 16 held-out samples, one decision for
the batch. The constants of the estimate and of the prior are those fitted without the model's
family (quality_constants.json, quality_priors.json; what the prior trusts was fitted to estimates
with the constants of all); two of the controller were chosen with all in
view (RATE and LEAN of quality/goal.py, among about 40 choices). "fixed" is the default with as many
calls; "planned" the plan of the profile that comes with the model, with as many calls, on the
settings that have one. Then every sample by itself, as a job or a server would run it, against one
budget for all with the same mean number of calls: what the 10 % worst samples gain (hard prompts
get more). dB is 10·log10 of the full run's energy over the error's, in what the solver sees, of
each sample, then the mean.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from planning_common import (
    SETTINGS,
    ZOO,
    arguments,
    case_of,
    each,
    family_of,
    held_out,
    settings,
)

from geoshrink import sample
from geoshrink.aim import Prior
from geoshrink.outputs import flatten
from geoshrink.planning.tournament import decibels
from geoshrink.quality.estimate import Constants
from geoshrink_bench import foreign
from geoshrink_bench.zoo.profiles import fitted

TARGETS = (20, 25, 30, 35, 40)
ALONE = (25, 30, 35)  # targets at which every sample is run by itself
REACHED, ASKED = 3.0, 0.9  # dB off, in this part of the settings
CONSTANTS = Path(__file__).parent / "quality_constants.json"
PRIORS = Path(__file__).parent / "quality_priors.json"
WORST = 0.1  # of the samples


def main() -> None:
    parser = arguments("A quality in place of a budget.", "cells/targets", 1)
    parser.add_argument("--alone", type=int, default=32, help="samples that are run by themselves")
    parser.set_defaults(models=[*foreign.RECIPES, *ZOO], samples=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = settings(args.models)
    cells = each(args, chosen, work)
    if cells:
        args.out.write_text(report(cells, args, len(chosen)), encoding="utf-8")


@contextlib.contextmanager
def without(family: str) -> Iterator[None]:
    """The constants fitted without a family; those of all where it had no part in the fit."""
    known, priors = (json.loads(f.read_text(encoding="utf-8")) for f in (CONSTANTS, PRIORS))
    own = known.get(family, known["all"])
    with contextlib.ExitStack() as stack:
        for name in ("corrected", "uncorrected"):
            constants = Constants(**own[name])
            stack.enter_context(mock.patch(f"geoshrink.quality.estimate.{name.upper()}", constants))
        prior = Prior(**priors.get(family, priors["all"]))
        stack.enter_context(mock.patch("geoshrink.aim.PRIOR", prior))
        yield


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    case = held_out(model, guidance, shift, args)
    grid, velocity = case.grid(), case.velocity()
    goal = sample(velocity, case.noise, grid)
    fixed = budgeted(lambda b: decibels(sample(velocity, case.noise, grid, b), goal).numpy())
    plan, rows = profile_plan(model, guidance, grid), []
    planned = budgeted(lambda b: decibels(sample(velocity, case.noise, plan=plan(b)), goal).numpy())
    with without(family_of(model.name)):
        for target in TARGETS:
            x, seen = sample(velocity, case.noise, grid, target_db=target, with_report=True)
            db, calls = decibels(x, goal).numpy(), seen.evaluations
            found = dict(target=target, calls=calls, estimated=seen.estimated_db)
            found |= {"db": db.tolist(), "fixed": fixed(calls).tolist()}
            if plan is not None:
                found["planned"] = planned(calls).tolist()
            rows.append(found)
        return {"rows": rows, "alone": list(alone(model, guidance, shift, args))}


def budgeted(run: Any) -> Any:
    """run(b), remembered."""
    known: dict[int, Any] = {}

    def at(budget: int) -> Any:
        if budget not in known:
            known[budget] = run(budget)
        return known[budget]

    return at


def profile_plan(model: Any, guidance: float, grid: Any) -> Any:
    """budget → plan of the profile that comes with a model; None if it is of another setting."""
    profile = fitted(model.name, grid, guidance)[0] if model.name in ZOO else None
    return None if profile is None else lambda budget: profile.plan(min(budget, grid.steps))


def alone(model: Any, guidance: float, shift: Any, args: Any) -> Iterator[dict[str, Any]]:
    """Samples run by themselves, at the setting that the model is judged at."""
    first = SETTINGS[model.name]
    if (guidance, shift) != (first["guidance"][0], first["shift"][0]) or not args.alone:
        return
    many = held_out(model, guidance, shift, args_with(args, args.alone))
    grid = many.grid()
    goal = sample(many.velocity(), many.noise, grid)
    fixed = budgeted(lambda b: decibels(sample(many.velocity(), many.noise, grid, b), goal).numpy())
    for target in ALONE:
        calls, db = [], []
        for i, label in enumerate(many.labels):
            labels: Any = [label]
            one = case_of(model, labels, row_of(many.noise, i), guidance, shift)
            x, seen = sample(one.velocity(), one.noise, grid, target_db=target, with_report=True)
            calls.append(seen.evaluations)
            db.append(float(decibels(x, row_of(goal, i))[0]))
        mean = statistics.mean(calls)
        low, part = math.floor(mean), mean - math.floor(mean)
        even = (1 - part) * fixed(low) + part * fixed(min(low + 1, grid.steps))
        yield {"target": target, "calls": calls, "db": db, "fixed": np.minimum(even, 99).tolist()}


def args_with(args: Any, samples: int) -> Any:
    return type("Args", (), {**vars(args), "samples": samples})


def row_of(x: Any, i: int) -> Any:
    leaves, unflatten = flatten(x)
    return unflatten([leaf[i : i + 1] for leaf in leaves])


def worst(values: Sequence[float]) -> float:
    """The mean of the 10 % worst."""
    ordered = sorted(values)
    return statistics.mean(ordered[: max(1, round(WORST * len(ordered)))])


def report(cells: Sequence[dict[str, Any]], args: Any, asked: int) -> str:
    about = str(__doc__).splitlines()
    on = " and ".join(sorted({cell["on"] for cell in cells}))
    return "\n".join(
        [
            f"# {about[0]}",
            "",
            f"Made by `python benchmarks/quality.py --samples {args.samples} --alone {args.alone}` "
            f"on {on}. {len(cells)} of {asked} settings have run.",
            "",
            *about[5:],
            "",
            *misses(cells),
            *hard(cells),
            "## Every setting",
            "",
            "| model, guidance, shift | target | calls | dB (10th percentile) | estimated | "
            "fixed | planned |",
            "|---|--:|--:|--:|--:|--:|--:|",
            *(line for cell in cells for line in lines_of(cell)),
            "",
        ]
    )


def lines_of(cell: dict[str, Any]) -> Iterator[str]:
    name, guidance, shift = cell["setting"]
    for row in cell["rows"]:
        planned = f"{mean_of(row['planned'])}" if "planned" in row else "–"
        estimated = row["estimated"]
        told = "exact" if estimated is None or math.isinf(estimated) else f"{estimated:.1f}"
        low = np.quantile(np.minimum(row["db"], 99), 0.1)
        yield (
            f"| {name}, {guidance:g}, {shift} | {row['target']} | {row['calls']} | "
            f"{mean_of(row['db'])} ({low:.1f}) | {told} | {mean_of(row['fixed'])} | {planned} |"
        )


def mean_of(values: Sequence[float]) -> str:
    return f"{np.minimum(values, 99).mean():.1f}"


def misses(cells: Sequence[dict[str, Any]]) -> list[str]:
    """How often the target is reached, the farthest first."""
    off = [
        (float(np.mean(np.minimum(row["db"], 99))) - row["target"], cell["setting"], row["target"])
        for cell in cells
        for row in cell["rows"]
    ]
    lines = ["## Misses first", ""]
    for words, mine in (("models of others", False), ("our models", True), ("all", None)):
        own = [o for o, (name, *_), _ in off if mine is None or (name in ZOO) == mine]
        if own:
            near = sum(abs(o) <= REACHED for o in own) / len(own)
            lines.append(
                f"- {words}: within ±{REACHED:g} dB in {near:.0%} of {len(own)} contests (asked: "
                f"{ASKED:.0%}); mean {statistics.mean(own):+.1f}, sd {statistics.pstdev(own):.1f} "
                f"dB; more than 3 dB below in {sum(o < -REACHED for o in own)}"
            )
    for target in TARGETS:
        own = [o for o, _, t in off if t == target]
        near = sum(abs(o) <= REACHED for o in own) / len(own)
        lines.append(f"- target {target}: {near:.0%}, mean {statistics.mean(own):+.1f} dB")
    gains = [
        float(np.mean(np.minimum(row["db"], 99)) - np.mean(np.minimum(row["fixed"], 99)))
        for cell in cells
        for row in cell["rows"]
    ]
    lines.append(
        f"- against a fixed budget with as many calls: {statistics.mean(gains):+.1f} dB in the "
        f"mean, {statistics.median(gains):+.1f} in the median, behind by more than 0.5 in "
        f"{sum(g < -0.5 for g in gains)} of {len(gains)}"
    )
    lines += ["", "| farthest | target | off by |", "|---|--:|--:|"]
    for o, (name, guidance, shift), target in sorted(off, key=lambda m: -abs(m[0]))[:12]:
        lines.append(f"| {name}, {guidance:g}, {shift} | {target} | {o:+.1f} |")
    return [*lines, ""]


def hard(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Every sample by itself against one budget for all."""
    lines = [
        "## Hard samples get more calls",
        "",
        "| model | target | calls (least to most) | mean dB | fixed | gain | 10 % worst | fixed | "
        "gain |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    means, tails = [], []
    for cell in cells:
        for row in cell.get("alone", []):
            db, even, calls = np.minimum(row["db"], 99), row["fixed"], row["calls"]
            gain, tail = float(np.mean(db) - np.mean(even)), worst(db) - worst(even)
            means.append(gain)
            tails.append(tail)
            lines.append(
                f"| {cell['setting'][0]} | {row['target']} | {statistics.mean(calls):.1f} "
                f"({min(calls)} to {max(calls)}) | {np.mean(db):.1f} | {np.mean(even):.1f} | "
                f"{gain:+.1f} | {worst(db):.1f} | {worst(even):.1f} | {tail:+.1f} |"
            )
    if means:
        lines.insert(
            2,
            f"Over {len(means)} contests the mean gains {statistics.mean(means):+.1f} dB (asked: "
            f"≥ 0; behind in {sum(g < 0 for g in means)}), the 10 % worst samples "
            f"{statistics.mean(tails):+.1f} (asked: ≥ 1.5; reached in "
            f"{sum(t >= 1.5 for t in tails)}, behind in {sum(t < 0 for t in tails)}).\n",
        )
    return [*lines, ""]


if __name__ == "__main__":
    main()
