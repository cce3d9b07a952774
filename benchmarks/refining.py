"""Closer to the exact flow than the full run, with fewer model calls: refined plans, held-out.

    python benchmarks/refining.py --device cuda --out benchmarks/refining.md

A profile of each model with target="flow": rule and anchors are chosen by real runs on calibration
samples. Then, on other labels and seeds, the distance to the converged flow (AB2 with eight times
the steps) of the full Euler run, of refined plans, and of fast solvers on grids of 20 and of T
steps. dB is 10·log10 of the flow's energy over the error's, in what the solver sees, mean over
samples, then mean ± sd over seeds. "equal at" is the number of model calls with which ours is as
close as the full run, interpolated between the budgets run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from planning_common import (
    SETTINGS,
    Setting,
    arguments,
    each,
    heading,
    held_out,
    profile_of,
    scores,
    shown,
)

from geoshrink import sample
from geoshrink.planning.tournament import converged
from geoshrink_bench.methods.solvers import NAMES, Solver

TRIED = (7, 10, 14, 20, 30)
BUDGETS = (5, 7, 10, 12, 14, 17, 20, 25, 30)
AT = 20
REFERENCE = 8
RIVALS = ("ab2", "dpm++2m", "unipc")


def main() -> None:
    parser = arguments("Refined plans on the zoo.", "cells/refining", seeds=3)
    parser.add_argument("--strong", action="store_true", help="the judged guidance, too")
    args = parser.parse_args()
    cells = each(args, chosen(args.models, args.strong), work)
    if cells:
        args.out.write_text(report(cells, args), encoding="utf-8")
        print("\n".join(verdicts(cells)))


def chosen(models: Sequence[str], strong: bool) -> list[Setting]:
    """Every model at moderate guidance and its own shift."""
    found: list[Setting] = []
    for name in models:
        at = SETTINGS[name]
        scales = at["guidance"] if strong else at["guidance"][1:]
        found += [(name, guidance, at["shift"][0]) for guidance in scales]
    return found


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    held = held_out(model, guidance, shift, args)
    steps = held.grid().steps
    budgets = [b for b in TRIED if b < steps]
    found = profile_of(model, guidance, shift, args, budgets=budgets, target="flow")
    velocity, noise, grid = held.velocity(), held.noise, held.grid()
    goal = converged(velocity, noise, grid, REFERENCE)
    nearer = converged(velocity, noise, grid, REFERENCE // 2)
    made: dict[str, Any] = {
        "full": scores(sample(velocity, noise, grid), goal, args.seeds),
        "half the reference": scores(nearer, goal, args.seeds),
    }
    ours = {}
    for budget in [b for b in BUDGETS if b < steps] + [steps]:
        plan = found.plan(budget, target="flow")
        ours[budget] = scores(sample(velocity, noise, plan=plan), goal, args.seeds)
    for solver in RIVALS:
        for budget in (AT, steps):
            x = Solver(solver).run(held, budget).x
            made[f"{solver} {'T' if budget == steps else budget}"] = scores(x, goal, args.seeds)
    expected = found.predict(AT, "flow")
    made |= {"ours": ours, "steps": steps, "recipe": expected.recipe}
    return made | {"predicted": expected.db, "error": expected.error}


def equal_at(cell: dict[str, Any]) -> str:
    """Where our curve crosses the full run's accuracy."""
    goal = statistics.mean(cell["full"])
    points = [(int(b), statistics.mean(db)) for b, db in cell["ours"].items()]
    if points[0][1] >= goal:
        return f"< {points[0][0]}"
    for (b, low), (c, high) in pairwise(points):
        if high >= goal:
            return f"{b + (c - b) * (goal - low) / (high - low):.0f}"
    return "not reached"


def report(cells: Sequence[dict[str, Any]], args: Any) -> str:
    lines = heading(
        __doc__ or "", "refining.py", args, cells, len(chosen(args.models, args.strong))
    )
    lines += ["## What was asked for, and what came", "", *verdicts(cells), "", "## Table", ""]
    head = ["model", "guidance", "shift", "T", "Euler, T calls", f"ours, {AT}", "ours, T"]
    head += [f"{NAMES[s]}, {b}" for s in RIVALS for b in (AT, "T")]
    head += ["equal at", f"predicted, {AT}", "recipe"]
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cell in cells:
        row = [*map(str, cell["setting"]), str(cell["steps"]), shown(cell["full"])]
        row += [shown(cell["ours"][str(b)]) for b in (AT, cell["steps"])]
        row += [shown(cell[f"{s} {b}"]) for s in RIVALS for b in (AT, "T")]
        row += [equal_at(cell), f"{cell['predicted']:.1f} ± {cell['error']:.1f}", cell["recipe"]]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "## Ours by model calls", ""]
    shared = [str(b) for b in BUDGETS]
    lines += [f"| model | guidance | {' | '.join(shared)} | converged by |"]
    lines += ["|---" * (len(shared) + 3) + "|"]
    for cell in cells:
        row = [*map(str, cell["setting"][:2]), *(shown(cell["ours"].get(b)) for b in shared)]
        lines.append(f"| {' | '.join([*row, shown(cell['half the reference'])])} |")
    lines += ["", "converged by: how close half as fine a reference is to the reference."]
    return "\n".join(lines) + "\n"


def verdicts(cells: Sequence[dict[str, Any]]) -> list[str]:
    def mean(cell: dict[str, Any], name: str) -> float:
        return statistics.mean(cell[name])

    gains = [statistics.mean(c["ours"][str(AT)]) - mean(c, "full") for c in cells]
    lines = [
        f"- {AT} calls are closer to the converged flow than the full Euler run in "
        f"{sum(g > 0 for g in gains)} of {len(cells)} settings: by {min(gains):.1f} to "
        f"{max(gains):.1f} dB, median {statistics.median(gains):.1f}"
    ]
    for solver in RIVALS:
        over = [statistics.mean(c["ours"][str(AT)]) - mean(c, f"{solver} {AT}") for c in cells]
        lines.append(
            f"- over {NAMES[solver]} with {AT} calls: ahead in {sum(g > 0 for g in over)} of "
            f"{len(cells)}, by {min(over):.1f} to {max(over):.1f} dB"
        )
    return lines


if __name__ == "__main__":
    main()
