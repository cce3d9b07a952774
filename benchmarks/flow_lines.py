"""The exact flow: fewer calls than the full run, and nearer to what the model really says.

    python benchmarks/flow_lines.py --device cuda --out benchmarks/flow_lines.md

The line of the docs, as it stands there, on every model of the zoo and on those of others:

    x0 = geoshrink.sample(velocity, noise, sigmas, budget=20, target="flow")

It needs no calibration. Beside it the full Euler run, AB2, UniPC and DPM-Solver++(2M) on grids of
as many steps as they have calls; with --plans also a profile made with target="flow", on other
samples. dB is 10·log10 of the flow's energy over the error's, in what the solver sees, mean over
samples, then mean ± sd over seeds. The flow is AB2 with eight times the steps; "known to" is how
near AB2 with four times the steps is to it. Numbers near that limit are those of the reference.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from planning_common import (
    HEAVY,
    SETTINGS,
    ZOO,
    Setting,
    arguments,
    each,
    held_out,
    profile_of,
    scores,
    shown,
)

from geoshrink import sample
from geoshrink.planning.tournament import converged
from geoshrink_bench.methods.solvers import NAMES, Solver

BUDGETS, AT = (10, 15, 20), 20
REFERENCE = 8
RIVALS = ("ab2", "unipc", "dpm++2m")
FULL, OURS, PLAN = "full", "ours", "plan"
BEYOND, EQUAL = 4.0, -0.5  # dB over the full run: asked for with 20 calls; "equal" with 10
MODERATE, STRONG, OTHERS = "moderate guidance", "strong guidance", "models of others"


def main() -> None:
    parser = arguments("The exact flow.", "cells/flow_lines", seeds=1)
    parser.set_defaults(models=list(SETTINGS), samples=16, calibration=16)
    parser.add_argument("--plans", action="store_true", help="a profile's plans, too (slow)")
    args = parser.parse_args()
    if args.plans:  # cells of their own: they hold more
        args.cells = args.cells / "plans"
    if args.device == "cpu":
        torch.set_num_threads(1)
    asked = chosen(args.models)
    cells = each(args, asked, work)
    if cells:
        args.out.write_text(report(cells, args, len(asked)), encoding="utf-8")
        print("\n".join(verdicts(cells)))


def chosen(models: Sequence[str]) -> list[Setting]:
    """Every model at its own shift, with moderate guidance first."""
    return [
        (name, guidance, SETTINGS[name]["shift"][0])
        for name in models
        for guidance in SETTINGS[name]["guidance"][::-1]
    ]


def kind(cell: dict[str, Any]) -> str:
    name, guidance, _ = cell["setting"]
    if name not in ZOO:
        return OTHERS
    return STRONG if guidance == SETTINGS[name]["guidance"][0] else MODERATE


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    held = held_out(model, guidance, shift, args)
    velocity, noise, grid = held.velocity(), held.noise, held.grid()
    budgets = [b for b in BUDGETS if b < grid.steps]
    goal = converged(velocity, noise, grid, REFERENCE)

    def judged(x: Any) -> list[float]:
        return scores(x, goal, args.seeds)

    made: dict[str, Any] = {
        "steps": grid.steps,
        "known to": judged(converged(velocity, noise, grid, REFERENCE // 2)),
        FULL: judged(sample(velocity, noise, grid)),
        OURS: {b: judged(sample(velocity, noise, grid, b, target="flow")) for b in budgets},
    }
    for solver in RIVALS:
        made[solver] = {b: judged(Solver(solver).run(held, b).x) for b in budgets}
    if args.plans:
        found = profile_of(model, guidance, shift, args, budgets=budgets, target="flow")
        plans = {b: found.plan(b, target="flow") for b in budgets}
        made[PLAN] = {b: judged(sample(velocity, noise, plan=plan)) for b, plan in plans.items()}
        made["recipe"] = found.predict(AT, "flow").recipe
    return made


def over(cell: dict[str, Any], rival: str, budget: int = AT, mine: str = OURS) -> float:
    """dB by which a form of ours is nearer to the flow."""
    ours = statistics.mean(cell[mine][str(budget)])
    return ours - statistics.mean(cell[FULL] if rival == FULL else cell[rival][str(budget)])


def title(cell: dict[str, Any]) -> str:
    name, guidance, _ = cell["setting"]
    return f"{name}, {guidance:g}"


def called(rival: str) -> str:
    return "the full Euler run" if rival == FULL else NAMES[rival]


def losses(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Every contest that is lost: with 20 calls to anybody, with fewer to a solver."""
    lines = []
    for budget in BUDGETS[::-1]:
        for rival in (FULL, *RIVALS) if budget == AT else RIVALS:
            lost = [(title(c), over(c, rival, budget)) for c in cells]
            words = [f"{name} ({gain:+.1f})" for name, gain in lost if gain < 0]
            if words:
                lines.append(f"- {budget} calls, behind {called(rival)}: {'; '.join(words)}.")
    return lines or ["- none."]


def verdicts(cells: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for group in (MODERATE, STRONG, OTHERS):
        some = [cell for cell in cells if kind(cell) == group]
        if not some:
            continue
        gains = [over(c, FULL) for c in some]
        parts = [
            f"{AT} calls are {BEYOND:g} dB or more beyond the full Euler run in "
            f"{sum(g >= BEYOND for g in gains)} of {len(some)} ({min(gains):+.1f} to "
            f"{max(gains):+.1f}, median {statistics.median(gains):+.1f})"
        ]
        for rival in RIVALS:
            found = [over(c, rival) for c in some]
            ahead = sum(g > 0 for g in found)
            parts.append(f"ahead of {called(rival)} in {ahead} (least {min(found):+.1f})")
        ten = [over(c, FULL, BUDGETS[0]) for c in some]
        parts.append(
            f"{BUDGETS[0]} calls are as near as the full run, to {-EQUAL:g} dB, in "
            f"{sum(g >= EQUAL for g in ten)} (least {min(ten):+.1f}, median "
            f"{statistics.median(ten):+.1f})"
        )
        lines.append(f"- **{group}**: {'; '.join(parts)}.")
    return lines


def report(cells: Sequence[dict[str, Any]], args: Any, asked: int) -> str:
    about = str(__doc__).splitlines()
    on = " and ".join(sorted({cell["on"] for cell in cells}))
    heavy = [f"{name}: 1/{n}" for name, n in HEAVY.items() if name in args.models]
    fewer = f" ({', '.join(heavy)})" if heavy else ""
    flags = f"--samples {args.samples} --seeds {args.seeds}"
    flags += f" --plans --calibration {args.calibration}" * args.plans
    if args.models != list(SETTINGS):
        flags += f" --models {' '.join(args.models)}"
    lines = [
        f"# {about[0]}",
        "",
        f"Made by `python benchmarks/flow_lines.py {flags}` on {on}: {args.samples} samples for "
        f"each of {args.seeds} seed{'s' * (args.seeds > 1)}{fewer}.",
        f"{len(cells)} of {asked} settings have run; models of others that are not on the machine "
        "are skipped.",
        *about[3:],
        "",
        "## Losses first",
        "",
        *losses(cells),
        "",
        "## What was asked for, and what came",
        "",
        *verdicts(cells),
        "",
    ]
    head = ["model, guidance", "T", "Euler, T calls", *(f"{NAMES[r]}, {AT}" for r in RIVALS)]
    head += [f"ours, {b}" for b in BUDGETS]
    head += [f"plan, {b}" for b in BUDGETS] * args.plans + ["recipe"] * args.plans + ["known to"]
    for group in (MODERATE, STRONG, OTHERS):
        some = [cell for cell in cells if kind(cell) == group]
        if not some:
            continue
        lines += [f"## {group[0].upper()}{group[1:]}: dB to the flow", ""]
        lines += [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
        for cell in some:
            row = [title(cell), str(cell["steps"]), shown(cell[FULL])]
            row += [shown(cell[rival].get(str(AT))) for rival in RIVALS]
            row += [shown(cell[OURS].get(str(b))) for b in BUDGETS]
            if args.plans:
                row += [*(shown(cell[PLAN].get(str(b))) for b in BUDGETS), cell["recipe"]]
            lines.append(f"| {' | '.join([*row, shown(cell['known to'])])} |")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


if __name__ == "__main__":
    main()
