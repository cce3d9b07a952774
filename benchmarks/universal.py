"""Planning without calibration: the universal mesh, fitted without the model's family, held-out.

    python benchmarks/universal.py --device cuda --out benchmarks/universal.md

The mesh's constants come from profiles of other families (benchmarks/universal_fit.py; all fruit
models are one family, all digits models another), so nothing of the model that is run has been
seen. auto: these anchors, signed time rule, output space: the library's default but for the
constants. Then other rules and spaces on the same anchors. σ-geometric: the default before, signed
chordal. planned: the model's own profile. dB is 10·log10 of the full run's energy over the error's,
in what the solver sees, mean over samples, then mean ± sd over seeds. The rule was chosen with this
table in view, the constants of the mesh were not.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planning_common import (
    SETTINGS,
    arguments,
    each,
    heading,
    held_out,
    scores,
    settings,
    shown,
)
from universal_fit import family

from geoshrink import METHODS, Plan, Profile, sample
from geoshrink.meshes.auto import Shape, universal_anchors

AUTO, SIGMA = "auto", "σ-geometric"
#: Rule and space on the universal anchors.
RULES: dict[str, tuple[str, str]] = {
    AUTO: ("signed time", "output"),
    "auto, data space": ("signed time", "data"),
    "auto, not signed, data space": ("time", "data"),
    "auto, signed chordal": ("signed chordal", "output"),
}
COLUMNS = ("direct", "published", SIGMA, *RULES, "planned")
WORSE = 0.3  # dB behind that pass for nothing
SMALL = 3  # a small budget is the stages over this, or less


def main() -> None:
    parser = arguments("The universal mesh on the zoo.", "cells/universal", seeds=5)
    here = Path(__file__).parent
    parser.add_argument("--fit", type=Path, default=here / "universal.json", help="the constants")
    args = parser.parse_args()
    cells = each(args, settings(args.models), work)
    if cells:
        args.out.write_text(report(cells, args), encoding="utf-8")
        print("\n".join(verdicts(cells)))


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    held = held_out(model, guidance, shift, args)
    velocity, noise, grid = held.velocity(), held.noise, held.grid()
    full, rows = sample(velocity, noise, grid), []
    fitted = json.loads(args.fit.read_text(encoding="utf-8"))["without"]
    shape = Shape(*fitted.get(family(model.name), fitted[""])["shape"])
    own = profile_of(args, model.name, guidance, shift)
    for budget in SETTINGS[model.name]["budgets"]:
        anchors = universal_anchors(grid, budget, shape)
        assert anchors is not None
        plans = {
            "published": Plan.of(grid, budget, **METHODS["paper"]),
            SIGMA: Plan.of(grid, budget, anchors="sigma", rule="signed chordal"),
        }
        for name, (rule, space) in RULES.items():
            plans[name] = Plan.of(grid, anchors=anchors, rule=rule, space=space)
        if own is not None:
            plans["planned"] = own.plan(budget)
        made = {name: sample(velocity, noise, plan=plan) for name, plan in plans.items()}
        made["direct"] = sample(velocity, noise, held.grid(budget))
        row: dict[str, Any] = {name: scores(x, full, args.seeds) for name, x in made.items()}
        rows.append(row | {"budget": budget, "stages": grid.steps, "anchors": anchors})
    return {"rows": rows, "shape": shape}


def profile_of(args: Any, name: str, guidance: float, shift: Any) -> Profile | None:
    """The profile of benchmarks/planning.py; None where it is missing or not whole."""
    file = args.profiles / f"{name}, guidance {guidance:g}, shift {shift}, run.json"
    try:
        return Profile.load(file)
    except (OSError, ValueError):
        return None


def report(cells: Sequence[dict[str, Any]], args: Any) -> str:
    lines = heading(__doc__ or "", "universal.py", args, cells, len(settings(args.models)))
    lines += ["## What came", "", *verdicts(cells), "", "## Every setting", ""]
    lines += [f"| model | guidance | shift | B | {' | '.join(COLUMNS)} |"]
    lines += ["|---" * (len(COLUMNS) + 4) + "|"]
    for cell in cells:
        for row in cell["rows"]:
            line = [*map(str, cell["setting"]), str(row["budget"])]
            line += [shown(row.get(name)) for name in COLUMNS]
            lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines) + "\n"


def verdicts(cells: Sequence[dict[str, Any]]) -> list[str]:
    """How each calibration-free plan compares with the others, and where it is behind."""
    rows = [(cell["setting"], row) for cell in cells for row in cell["rows"]]
    lines = []
    for name in RULES:
        against = [ahead(rows, name, other) for other in (SIGMA, "published", "direct")]
        if against[0]:
            lines.append(f"- {name}: {'; '.join(filter(None, map(said, against)))}")
            lines += worst(against[0])
    small = [at for at in rows if at[1]["budget"] * SMALL <= at[1]["stages"]]
    large = [at for at in rows if at not in small]
    for label, part in ((f"up to 1/{SMALL} of the stages", small), ("above", large)):
        for name in RULES:
            if gains := ahead(part, name, SIGMA):
                lines.append(f"- {label}, {name}: {said(gains)}")
    if gains := ahead(rows, AUTO, "planned"):
        values = list(gains.values())
        lines.append(
            f"- auto against the model's own profile: median {statistics.median(values):+.1f} dB, "
            f"from {min(values):+.1f} to {max(values):+.1f} dB"
        )
    return lines


Gains = dict[str, float]


def ahead(rows: Sequence[tuple[Any, dict[str, Any]]], name: str, other: str) -> Gains:
    """By how many dB one is ahead of the other, by setting; where both have run."""
    return {
        f"{', '.join(map(str, setting))}, B {row['budget']}, against {other}": statistics.mean(
            row[name]
        )
        - statistics.mean(row[other])
        for setting, row in rows
        if name in row and other in row
    }


def said(gains: Gains) -> str:
    if not gains:
        return ""
    values, other = list(gains.values()), next(iter(gains)).rsplit(" ", 1)[-1]
    return (
        f"against {other} median {statistics.median(values):+.1f} dB, least {min(values):+.1f}, "
        f"ahead in {sum(v > 0 for v in values)} of {len(values)}, more than {WORSE} dB behind in "
        f"{sum(v < -WORSE for v in values)}"
    )


def worst(gains: Gains) -> list[str]:
    behind = sorted((v, at) for at, v in gains.items() if v < -WORSE)
    return [f"  - {at}: {v:+.1f} dB" for v, at in behind[:8]]


if __name__ == "__main__":
    main()
