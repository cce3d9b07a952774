"""Corrected cells on the zoo: what each choice is worth, without calibration, on held-out samples.

    python benchmarks/correction.py --device cuda --out benchmarks/correction.md

uncorrected: the auto mesh, signed time. Then the same anchors with `correct`: K = ½, 0 (x̂₀ held),
1 − σ, the Gaussian's and 1 (a flow's output held), and ½ with caution 1 and 2, with the mesh's
clock, and in data space with the mesh's clock. Then the same on the mesh for corrected cells,
without its even belief. dB is 10·log10 of the full run's energy over the error's, in what the
solver sees, mean over samples, then mean ± sd over seeds. Nothing is calibrated; but K = ½ and the
share of the mesh were chosen on these models, so this page does not judge them.
benchmarks/default.md judges the default that came of it, on models of others, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from planning_common import arguments, each, heading, held_out, scores, settings, shown

from geoshrink import METHODS, Correction, Grid, Plan, sample
from geoshrink.meshes.corrected import corrected_anchors

DEFAULT = "uncorrected"
BUDGETS, MOST = (7, 10, 15, 20, 30), 0.7  # of the stages
CLOCK, DATA = {"clock": "mesh"}, {"space": "data", "clock": "mesh"}
MESH = {"anchors": "corrected"}
FORMS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "K = ½": {"correct": "half"},
    "K = 0": {"correct": 0.0},
    "K = 1 − σ": {"correct": "linear"},
    "Gaussian": {"correct": "gaussian"},
    "K = 1": {"correct": 1.0},
    "½, caution 1": {"correct": Correction("half", 1.0)},
    "½, caution 2": {"correct": Correction("half", 2.0)},
    "½, mesh's clock": CLOCK | {"correct": "half"},
    "½, data": DATA | {"correct": "half"},
    "data": DATA,
    "½, corrected mesh": MESH | {"correct": "half"},
    "½, caution 1, corrected mesh": MESH | {"correct": Correction("half", 1.0)},
    "½, corrected mesh, mesh's clock": MESH | CLOCK | {"correct": "half"},
    "½, corrected mesh, data": MESH | DATA | {"correct": "half"},
}
COLUMNS = ("direct", *FORMS)


def main() -> None:
    args = arguments("Corrected cells on the zoo.", "cells/correction", seeds=3).parse_args()
    cells = each(args, settings(args.models), work)
    if cells:
        args.out.write_text(report(cells, args), encoding="utf-8")
        print("\n".join(verdicts(cells)))


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    case = held_out(model, guidance, shift, args)
    grid, velocity, rows = case.grid(), case.velocity(), {}
    goal = sample(velocity, case.noise, grid)
    for budget in (b for b in BUDGETS if b <= MOST * (len(case.grid().kept))):
        direct = sample(velocity, case.noise, case.grid(budget))
        found = {"direct": scores(direct, goal, args.seeds)}
        for name, options in FORMS.items():
            try:
                plan = plan_of(grid, budget, options)
            except ValueError:  # no noise levels, or no data space on this grid
                continue
            x, told = sample(velocity, case.noise, plan=plan, with_report=True)
            left = [why for _, why in told.reasons if "not corrected" in why]
            found[name] = [] if left else scores(x, goal, args.seeds)
        rows[str(budget)] = found
    return {"rows": rows}


def plan_of(grid: Grid, budget: int, options: dict[str, Any]) -> Plan:
    if options.get("anchors") != "corrected":
        return Plan.of(grid, budget, **{**METHODS["uncorrected"], **options})
    anchors = corrected_anchors(grid, budget, even=0.0)
    return Plan.of(grid, rule="signed time", **{**options, "anchors": anchors})


def gains(cells: Sequence[dict[str, Any]], name: str, budget: str | None = None) -> list[float]:
    """dB ahead of the default in every contest, or in those with one budget."""
    rows = (pair for cell in cells for pair in cell["rows"].items())
    each_row = (row for own, row in rows if budget in (None, own))
    pairs = ((row.get(name), row[DEFAULT]) for row in each_row)
    return [statistics.mean(a) - statistics.mean(b) for a, b in pairs if a]


def verdicts(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Against the default: all contests, then the mean and the least for each budget."""
    budgets = [str(b) for b in BUDGETS]
    lines = ["| against uncorrected | contests | ahead | mean dB | least | most |"]
    lines[0] += "".join(f" {b} calls (least) |" for b in budgets)
    lines.append("|---|" + "--:|" * (5 + len(budgets)))
    for name in FORMS:
        won = gains(cells, name)
        if name != DEFAULT and won:
            parts = [f"{n:+.1f}" for n in (statistics.mean(won), min(won), max(won))]
            for budget in budgets:
                own = gains(cells, name, budget)
                parts.append(f"{statistics.mean(own):+.1f} ({min(own):+.1f})" if own else "–")
            ahead = sum(gain > 0 for gain in won)
            lines.append(f"| {name} | {len(won)} | {ahead} | {' | '.join(parts)} |")
    return lines


def report(cells: Sequence[dict[str, Any]], args: Any) -> str:
    lines = heading(__doc__ or "", "correction.py", args, cells, len(settings(args.models)))
    how = f"--device cuda --samples {args.samples} --seeds {args.seeds}"
    lines[2:4] = [  # the others of its kind have calibration samples
        f"Made by `python benchmarks/correction.py {how}` on {cells[0]['on']}: {args.samples} "
        f"held-out samples for each of {args.seeds} seeds (fewer of fruit-video and objects)."
    ]
    lines += [*verdicts(cells), ""]
    lines.append("| model, guidance, shift | B | " + " | ".join(COLUMNS) + " |")
    lines.append("|---|--:|" + "--:|" * len(COLUMNS))
    for cell in cells:
        name, guidance, shift = cell["setting"]
        for budget, row in cell["rows"].items():
            values = " | ".join(shown(row.get(column)) for column in COLUMNS)
            lines.append(f"| {name}, {guidance:g}, {shift} | {budget} | {values} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
