"""Models that nobody here trained: what each choice is worth, without calibration.

    python -m geoshrink_bench.foreign fetch
    python benchmarks/foreign.py --out benchmarks/foreign.md

Every model of geoshrink_bench.foreign that is on the machine, 50 steps, guidance as its authors
sample it and none. Those that are not here are named and skipped. dB is 10·log10 of the full run's
energy over the error's, in what the solver sees, of each sample, then the mean ± sd over seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from planning_common import HEAVY, SETTINGS, arguments, each, held_out, scores, settings, shown

from geoshrink import METHODS, Correction, sample
from geoshrink_bench import foreign

FORMS: dict[str, dict[str, Any]] = {
    "paper": dict(METHODS["paper"]),
    "default": {},
    "corrected": {"correct": True},
    "½, caution 1": {"correct": Correction("half", 1.0)},
    "mesh's clock, corrected": {"clock": "mesh", "correct": True},
    "data, mesh's clock, corrected": {"space": "data", "clock": "mesh", "correct": True},
}
COLUMNS = ("direct", *FORMS)


def main() -> None:
    parser = arguments("Models that nobody here trained.", "cells/foreign", seeds=3)
    parser.set_defaults(models=list(foreign.RECIPES), samples=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = settings(args.models)
    cells = each(args, chosen, work)
    if cells:
        args.out.write_text(report(cells, args, len(chosen)), encoding="utf-8")
        print("\n".join(verdicts(cells)))


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    case = held_out(model, guidance, shift, args)
    grid, velocity, rows = case.grid(), case.velocity(), {}
    goal = sample(velocity, case.noise, grid)
    for budget in SETTINGS[model.name]["budgets"]:
        direct = sample(velocity, case.noise, case.grid(budget))
        found = {"direct": scores(direct, goal, args.seeds)}
        for name, options in FORMS.items():
            made = sample(velocity, case.noise, grid, budget, **{**METHODS["default"], **options})
            found[name] = scores(made, goal, args.seeds)
        rows[budget] = found
    return {"rows": rows}


def rows_of(cells: Sequence[dict[str, Any]]) -> list[tuple[str, str, dict[str, float]]]:
    """(setting, budget, mean dB by column)."""
    return [
        (title(cell), budget, {c: statistics.mean(row[c]) for c in COLUMNS})
        for cell in cells
        for budget, row in cell["rows"].items()
    ]


def title(cell: dict[str, Any]) -> str:
    name, guidance, _ = cell["setting"]
    return f"{name}, guidance {guidance:g}" if foreign.RECIPES[name].guided else name


def verdicts(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Losses first: how often and how far each form is behind direct and behind the default."""
    rows, lines = rows_of(cells), []
    for column in FORMS:
        parts = []
        for rival in ("direct", "default"):
            if column == rival:
                continue
            gains = [found[column] - found[rival] for _, _, found in rows]
            worst = min(range(len(gains)), key=gains.__getitem__)
            behind = sum(gain < -0.3 for gain in gains)
            parts.append(
                f"more than 0.3 dB behind {rival} in {behind} of {len(rows)}, "
                f"least {gains[worst]:+.1f} ({rows[worst][0]}, {rows[worst][1]} calls), "
                f"median {statistics.median(gains):+.1f}"
            )
        lines.append(f"- **{column}**: {'; '.join(parts)}.")
    return lines


def report(cells: Sequence[dict[str, Any]], args: Any, asked: int) -> str:
    about = str(__doc__).splitlines()
    heavy = [f"{name}: 1/{n}" for name, n in HEAVY.items() if name in args.models]
    fewer = ", ".join(heavy) or "of every model"
    on = ", ".join(sorted({cell["on"] for cell in cells}))
    lines = [
        f"# {about[0]}",
        "",
        f"Made by `python benchmarks/foreign.py --samples {args.samples} --seeds {args.seeds}` on "
        f"{on}: {args.samples} samples for each of {args.seeds} seeds ({fewer}).",
        f"{len(cells)} of {asked} settings have run.",
        "",
        *about[5:],
        "",
        "| model | what it is | predicts | licence | source |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(cell["setting"][0] for cell in cells):
        it = foreign.RECIPES[name]
        path = "variance preserving" if it.alphas == "vp" else "linear path"
        said = {"epsilon": "ε", "sample": "x₀"}.get(it.prediction, it.prediction)
        lines.append(f"| {name} | {it.about} | {said}, {path} | {it.licence} | {it.source} |")
    lines += ["", "## Losses first", "", *verdicts(cells), "", "## dB to the full run", ""]
    lines += [
        f"| model | calls | {' | '.join(COLUMNS)} |",
        f"|---|--:|{'--:|' * len(COLUMNS)}",
    ]
    for cell in cells:
        for budget, row in cell["rows"].items():
            values = " | ".join(shown(row[column]) for column in COLUMNS)
            lines.append(f"| {title(cell)} | {budget} | {values} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
