"""Planned anchors against our default, corrected cells, direct and calibrated rivals, held-out.

    python benchmarks/planning.py --device cuda --out benchmarks/planning.md

A profile of each model, guidance and shift on calibration samples, with real runs at the budgets of
the table; then every method on other labels and other seeds. dB is 10·log10 of the full run's
energy over the error's, in what the solver sees, mean over samples, then mean ± sd over seeds.
`--between` adds budgets at which nothing was tried. corrected: the auto mesh with correct=True.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from planning_common import (
    SETTINGS,
    arguments,
    calibration,
    each,
    heading,
    held_out,
    profile_of,
    scores,
    settings,
    shown,
)

from geoshrink import METHODS, sample
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods.registry import METHODS as RIVALS

CALIBRATED = ("MeanCache", "MagCache", "TeaCache")
FORMS: dict[str, dict[str, Any]] = {
    "published": dict(METHODS["paper"], correct=False),
    "σ-geometric": dict(anchors="sigma", rule="signed chordal", correct=False),
    "default": {},
    "corrected": dict(anchors="auto", rule="signed time", correct=True),
}
COLUMNS = ("direct", *FORMS, *CALIBRATED, "planned")
CLOSE = 0.3  # dB behind the default that is no loss


def main() -> None:
    """Profiles from before plans could correct their cells are read as they are: give --profiles
    another folder to make them anew.
    """
    parser = arguments("Planned anchors on the zoo.", "cells/planning", seeds=5)
    parser.add_argument(
        "--rivals", nargs="*", default=["MeanCache"], choices=CALIBRATED, help="that calibrate"
    )
    parser.add_argument("--budgets", nargs="+", type=int, help="tried; default: the paper's")
    parser.add_argument(
        "--between", nargs="*", type=int, default=[], help="budgets at which nothing is tried"
    )
    args = parser.parse_args()
    cells = each(args, settings(args.models), work)
    if cells:
        args.out.write_text(report(cells, args), encoding="utf-8")
        print("\n".join(verdicts([row for cell in cells for row in cell["rows"]])))


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    budgets = tuple(args.budgets or SETTINGS[model.name]["budgets"])
    training, held = (f(model, guidance, shift, args) for f in (calibration, held_out))
    found = profile_of(model, guidance, shift, args, budgets=budgets)
    velocity, noise, grid = held.velocity(), held.noise, held.grid()
    full, rows = sample(velocity, noise, grid), []
    for budget in sorted({*budgets, *(b for b in args.between if b < grid.steps)}):
        made = {
            "direct": sample(velocity, noise, held.grid(budget)),
            "planned": sample(velocity, noise, grid, plan=found.plan(budget)),
        }
        for name, options in FORMS.items():
            made[name] = sample(velocity, noise, grid, budget, **options)
        for name in args.rivals:
            if (x := rival(name, training, held, budget)) is not None:
                made[name] = x
        expected = found.predict(budget)
        row: dict[str, Any] = {name: scores(x, full, args.seeds) for name, x in made.items()}
        row |= {"budget": budget, "predicted": expected.db, "error": expected.error}
        row |= {"how": expected.how}
        rows.append(row | {"recipe": expected.recipe})
    return {"rows": rows}


def rival(name: str, training: ZooCase, held: ZooCase, budget: int) -> Any:
    """What a rival makes of the held-out samples; None if it is not for this model."""
    try:
        return RIVALS[name]({}, lambda: [training], budget).run(held, budget).x
    except (TypeError, ValueError):  # MeanCache is for flows, the others are for known networks
        return None


def report(cells: Sequence[dict[str, Any]], args: Any) -> str:
    lines = heading(__doc__ or "", "planning.py", args, cells, len(settings(args.models)))
    rows = [(cell["setting"], row) for cell in cells for row in cell["rows"]]
    lines += ["## What was asked for, and what came", "", *verdicts([row for _, row in rows])]
    lines += ["", "## Losses", "", *losses(rows), "", "## Every setting", ""]
    lines += [f"| model | guidance | shift | B | {' | '.join(COLUMNS)} | predicted | recipe |"]
    lines += ["|---" * (len(COLUMNS) + 6) + "|"]
    for setting, row in rows:
        line = [*map(str, setting), str(row["budget"])]
        line += [shown(row.get(name)) for name in COLUMNS]
        line += [f"{row['predicted']:.1f} ± {row['error']:.1f}", row["recipe"]]
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines) + "\n"


def means_of(row: dict[str, Any]) -> dict[str, float]:
    return {name: statistics.mean(row[name]) for name in COLUMNS if name in row}


def losses(rows: Sequence[tuple[Any, dict[str, Any]]]) -> list[str]:
    """Where planned is behind direct, behind a rival, or behind the default by more than CLOSE."""
    found = []
    for (model, guidance, shift), row in rows:
        means = means_of(row)
        for name in (n for n in COLUMNS[:-1] if n in means):
            behind = means[name] - means["planned"]
            if behind > (CLOSE if name in ("default", "corrected") else 0.0):
                where = f"{model}, guidance {guidance:g}, shift {shift}, {row['budget']} calls"
                how = f"{row['recipe']}, {row.get('how', 'measured')}"
                found.append((behind, f"- {where}: {behind:.1f} dB behind {name} ({how})"))
    return [line for _, line in sorted(found, reverse=True)] or ["None."]


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Against each method: how often planned is behind, the least gain and the median."""
    means, lines = [means_of(row) for row in rows], []
    for name in COLUMNS[:-1]:
        gains = [m["planned"] - m[name] for m in means if name in m]
        if gains:
            behind = sum(g < -CLOSE for g in gains)
            lines.append(
                f"- against {name}: behind by more than {CLOSE} dB in {behind} of {len(gains)}; "
                f"least {min(gains):+.1f} dB, median {statistics.median(gains):+.1f} dB"
            )
    near = sum(abs(m["planned"] - row["predicted"]) <= 2 for m, row in zip(means, rows))
    lines.append(f"- predicted within 2 dB of measured in {near} of {len(means)} (asked: 90 %)")
    return lines


if __name__ == "__main__":
    main()
