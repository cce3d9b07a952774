"""The default on our models and on models of others: without calibration, on held-out samples.

    python -m geoshrink_bench.foreign fetch
    python benchmarks/default.py --device cuda --out benchmarks/default.md

direct step reduction; the published method (paper); the default without correction (uncorrected:
what it was before, but for the regimes of `objects`, which this version treats otherwise); the
default (geoshrink). Then what it was chosen among: the weight of the even belief in its mesh
(meshes/corrected.py), with all of these models in view. Nine models of ours and every model of
others that is on the machine (docs/foreign.md), 7 to 30 calls. dB is 10·log10 of the full run's
energy over the error's, in what the solver sees, of each sample, then the mean ± sd over seeds.
Asked of a default: never more than 0.3 dB behind direct, never more than 0.5 dB behind the default
before it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from planning_common import HEAVY, ZOO, arguments, each, held_out, scores, settings, shown

from geoshrink import METHODS, Plan, sample
from geoshrink.meshes.corrected import EVEN, corrected_anchors
from geoshrink_bench import foreign

BUDGETS, MOST = (7, 10, 15, 20, 30), 0.7  # of the stages
WEIGHTS = (0.0, 0.03, EVEN, 0.3)
DIRECT, OURS, BEFORE = "direct", "geoshrink", "uncorrected"
TRIED = {weight: f"even {weight:g}" for weight in WEIGHTS if weight != EVEN} | {EVEN: OURS}
COLUMNS = (DIRECT, "paper", BEFORE, OURS, *(name for name in TRIED.values() if name != OURS))
BEHIND = {DIRECT: 0.3, BEFORE: 0.5}


class Contest(NamedTuple):
    """One setting at one budget: the mean over seeds of every column."""

    model: str
    guidance: float
    shift: Any
    budget: int
    db: dict[str, float]

    @property
    def family(self) -> str:
        return "fruit" if self.model.startswith("fruit") else self.model

    @property
    def ours(self) -> bool:
        return self.model in ZOO

    def gain(self, column: str, rival: str) -> float:
        return self.db[column] - self.db[rival]

    def __str__(self) -> str:
        shift = "" if self.shift == 1 else f", shift {self.shift}"
        return f"{self.model}, guidance {self.guidance:g}{shift}, {self.budget} calls"


def main() -> None:
    parser = arguments("The default on our models and on models of others.", "cells/default", 5)
    parser.set_defaults(models=[*foreign.RECIPES, *ZOO], samples=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = settings(args.models)
    cells = each(args, chosen, work)
    if cells:
        args.out.write_text(report(cells, args, len(chosen)), encoding="utf-8")
        print("\n".join(losses(list(contests(cells)))))


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    case = held_out(model, guidance, shift, args)
    grid, velocity, rows = case.grid(), case.velocity(), {}
    goal = sample(velocity, case.noise, grid)
    for budget in (b for b in BUDGETS if b <= MOST * grid.steps):
        direct = sample(velocity, case.noise, case.grid(budget))
        found = {DIRECT: scores(direct, goal, args.seeds)}
        plans = {name: Plan.of(grid, budget, **METHODS[name]) for name in ("paper", BEFORE, OURS)}
        for weight, name in TRIED.items():
            if name != OURS:
                anchors = corrected_anchors(grid, budget, even=weight)
                plans[name] = Plan.of(
                    grid, anchors=anchors, correct=plans[OURS].correct, clock="mesh"
                )
        for name, plan in plans.items():
            found[name] = scores(sample(velocity, case.noise, plan=plan), goal, args.seeds)
        rows[str(budget)] = found
    return {"rows": rows}


def contests(cells: Sequence[dict[str, Any]]) -> Iterator[Contest]:
    for cell in cells:
        for budget, row in cell["rows"].items():
            db = {column: statistics.mean(row[column]) for column in COLUMNS}
            model, guidance, shift = cell["setting"]
            yield Contest(model, guidance, shift, int(budget), db)


def losses(found: Sequence[Contest]) -> list[str]:
    """Every contest in which the default misses what is asked of it, the worst first."""
    missed = [
        (contest.gain(OURS, rival), contest, rival)
        for contest in found
        for rival, most in BEHIND.items()
        if contest.gain(OURS, rival) < -most
    ]
    lines = [
        f"In {len({str(c) for _, c, _ in missed})} of {len(found)} contests geoshrink misses what "
        "is asked:"
        if missed
        else f"In all {len(found)} contests geoshrink does what is asked."
    ]
    for gain, contest, rival in sorted(missed, key=lambda m: m[0]):
        told = f"{contest.db[OURS]:.1f} dB against {contest.db[rival]:.1f}"
        lines.append(f"- {contest}: {-gain:.1f} dB behind {rival} ({told})")
    return lines


def verdicts(found: Sequence[Contest]) -> list[str]:
    """Every column against direct and the default before: mean and least for each budget."""
    lines = []
    for words, mine in (("models of others", False), ("our models", True)):
        rows = [c for c in found if c.ours == mine]
        for rival in (DIRECT, BEFORE):
            head = f"| {words}, against {rival} | contests | behind by > {BEHIND[rival]} | median |"
            lines += [head + "".join(f" {b} calls (least) |" for b in BUDGETS)]
            lines.append("|---|" + "--:|" * (3 + len(BUDGETS)))
            for column in COLUMNS:
                gains = [c.gain(column, rival) for c in rows]
                if column == rival or not gains:
                    continue
                parts = [f"{len(gains)}", f"{sum(g < -BEHIND[rival] for g in gains)}"]
                parts.append(f"{statistics.median(gains):+.1f}")
                for budget in BUDGETS:
                    own = [c.gain(column, rival) for c in rows if c.budget == budget]
                    parts.append(f"{statistics.mean(own):+.1f} ({min(own):+.1f})" if own else "–")
                lines.append(f"| {column} | {' | '.join(parts)} |")
            lines.append("")
    return lines


def held_back(found: Sequence[Contest]) -> list[str]:
    """The weight that all other families would choose, judged on the one left out."""

    def worth(column: str, rows: Sequence[Contest]) -> tuple[int, float]:
        bad = sum(c.gain(column, rival) < -most for c in rows for rival, most in BEHIND.items())
        return -bad, statistics.mean(c.gain(column, BEFORE) for c in rows)

    lines = [
        "| left out | chosen by the others | contests | misses what is asked | mean over "
        f"{BEFORE} | mean over direct |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for family in dict.fromkeys(c.family for c in found):
        others = [c for c in found if c.family != family]
        if not others:
            continue
        rows = [c for c in found if c.family == family]
        column = max(TRIED.values(), key=lambda name: worth(name, others))
        weight = next(w for w, name in TRIED.items() if name == column)
        bad, gain = worth(column, rows)
        ahead = statistics.mean(c.gain(column, DIRECT) for c in rows)
        lines.append(
            f"| {family} | {weight:g} | {len(rows)} | {-bad} | {gain:+.1f} | {ahead:+.1f} |"
        )
    return lines


def otherwise(cells: Sequence[dict[str, Any]], args: Any) -> str:
    """The models that were run with other numbers of samples or seeds, in words."""
    usual = args.samples, args.seeds
    made = {c["setting"][0]: (c.get("samples", usual[0]), c.get("seeds", usual[1])) for c in cells}
    other = [
        f"{name} `--samples {n} --seeds {k}`" for name, (n, k) in made.items() if (n, k) != usual
    ]
    return f" Otherwise run: {', '.join(other)}." if other else ""


def report(cells: Sequence[dict[str, Any]], args: Any, asked: int) -> str:
    about, found = str(__doc__).splitlines(), list(contests(cells))
    fewer = ", ".join(f"{name}: 1/{n}" for name, n in HEAVY.items() if name in args.models)
    on = " and ".join(sorted({cell["on"] for cell in cells}))
    lines = [
        f"# {about[0]}",
        "",
        f"Made by `python benchmarks/default.py --samples {args.samples} --seeds {args.seeds}` on "
        f"{on}: {args.samples} samples for each of {args.seeds} seeds ({fewer or 'all alike'}).",
        f"{len(cells)} of {asked} settings have run.{otherwise(cells, args)}",
        "",
        *about[5:],
        "",
        "## Losses first",
        "",
        *losses(found),
        "",
        "## Against direct and the default before",
        "",
        *verdicts(found),
        "## The weight of the even belief, chosen without the family that it is judged on",
        "",
        *held_back(found),
        "",
        "## dB to the full run",
        "",
        f"| model, guidance, shift | calls | {' | '.join(COLUMNS)} |",
        f"|---|--:|{'--:|' * len(COLUMNS)}",
    ]
    for cell in cells:
        name, guidance, shift = cell["setting"]
        for budget, row in cell["rows"].items():
            values = " | ".join(shown(row[column]) for column in COLUMNS)
            lines.append(f"| {name}, {guidance:g}, {shift} | {budget} | {values} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
