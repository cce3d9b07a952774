"""Corrected cells on the zoo: what each choice is worth, without calibration, on held-out samples.

    python benchmarks/correction.py --device cuda --out benchmarks/correction.md

geoshrink: the default. Then the same anchors with `correct`: in output space with K = 0 (x̂₀ held),
½, 1 − σ, the Gaussian's and 1 (a flow's output held), with caution 1 and 2; and in data space with
the mesh's clock, plain and corrected. dB is 10·log10 of the full run's energy over the error's, in
what the solver sees, mean over samples, then mean ± sd over seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from planning_common import SETTINGS, arguments, each, heading, held_out, scores, settings, shown

from geoshrink import METHODS, Correction, Plan, sample

DEFAULT = "geoshrink"
DATA = {"space": "data", "clock": "mesh"}
FORMS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "K = ½": {"correct": "half"},
    "K = 0": {"correct": 0.0},
    "K = 1 − σ": {"correct": "linear"},
    "Gaussian": {"correct": "gaussian"},
    "K = 1": {"correct": 1.0},
    "½, caution 1": {"correct": Correction("half", 1.0)},
    "½, caution 2": {"correct": Correction("half", 2.0)},
    "mesh's clock": {"clock": "mesh"},
    "mesh's clock, ½": {"clock": "mesh", "correct": "half"},
    "data": DATA,
    "data, ½": DATA | {"correct": "half"},
    "data, ½, caution 1": DATA | {"correct": Correction("half", 1.0)},
    "data, not signed, ½": DATA | {"correct": "half", "rule": "time"},
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
    for budget in SETTINGS[model.name]["budgets"]:
        direct = sample(velocity, case.noise, case.grid(budget))
        found = {"direct": scores(direct, goal, args.seeds)}
        for name, options in FORMS.items():
            try:
                plan = Plan.of(grid, budget, **{**METHODS["default"], **options})
            except ValueError:  # no noise levels, or no data space on this grid
                continue
            x, told = sample(velocity, case.noise, plan=plan, with_report=True)
            left = [why for _, why in told.reasons if "not corrected" in why]
            found[name] = [] if left else scores(x, goal, args.seeds)
        rows[str(budget)] = found
    return {"rows": rows}


def gains(cells: Sequence[dict[str, Any]], name: str) -> list[float]:
    """dB ahead of the default in every contest."""
    each_row = (row for cell in cells for row in cell["rows"].values())
    pairs = ((row.get(name), row[DEFAULT]) for row in each_row)
    return [statistics.mean(a) - statistics.mean(b) for a, b in pairs if a]


def verdicts(cells: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| against geoshrink | contests | ahead | mean dB | least | most |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for name in FORMS:
        won = gains(cells, name)
        if name != DEFAULT and won:
            numbers = (statistics.mean(won), min(won), max(won))
            ahead = sum(gain > 0 for gain in won)
            shown = " | ".join(f"{n:+.1f}" for n in numbers)
            lines.append(f"| {name} | {len(won)} | {ahead} | {shown} |")
    return lines


def report(cells: Sequence[dict[str, Any]], args: Any) -> str:
    lines = heading(__doc__ or "", "correction.py", args, cells, len(settings(args.models)))
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
