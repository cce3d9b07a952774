"""What a profile needs and what it is good for: samples, classes, guidance, steps, shift, gains.

    python benchmarks/planning_transfer.py --device cuda --out benchmarks/planning_transfer.md

Each model at its judged setting, planned from profiles of other kinds and run on held-out labels
and seeds: dB of the full run's energy over the error's, in what the solver sees, mean over samples.
The profiles are those of benchmarks/planning.py, taken from its folder where they are, made here
where not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from planning_common import (
    HEAVY,
    SETTINGS,
    Setting,
    arguments,
    calibration,
    case_of,
    each,
    heading,
    held_out,
    profile_of,
)

from geoshrink import Grid, Plan, Profile, profile, sample
from geoshrink.planning.planner import knows_data
from geoshrink.planning.space import resampled
from geoshrink.planning.tournament import decibels
from geoshrink_bench import zoo
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.zoo.carried import pooled, subset

SAMPLES = (4, 8, 16)
SIGMA = "σ-geometric"
ALIKE = ("fruit", "motion", "digits-audio", "objects", "fruit-latent", "fruit-video")  # one flow


def main() -> None:
    parser = arguments("What a profile needs.", "cells/planning-transfer", seeds=1)
    args = parser.parse_args()
    cells = each(args, [judged(name) for name in args.models], work)
    if cells:
        args.out.write_text(report(cells, args), encoding="utf-8")


def judged(name: str) -> Setting:
    at = SETTINGS[name]
    return name, at["guidance"][0], at["shift"][0]


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    at = SETTINGS[model.name]
    held = held_out(model, guidance, shift, args)
    own = own_profile(model, guidance, shift, args)
    rows: list[dict[str, Any]] = []
    for budget in (at["budgets"][0], at["budgets"][-1]):
        goal = sample(held.velocity(), held.noise, held.grid())
        plans = dict(
            chain(variants(own, budget), others(model, own, guidance, shift, budget, args))
        )
        row = {name: measured(held, plan, goal) for name, plan in plans.items()}
        row[f"{SIGMA}, 2 in reserve"] = measured(
            held, sigma_plan(own.grid, budget - 2), goal, reserve=2
        )
        row |= by_classes(model, own, guidance, shift, budget, args)
        rows.append({"budget": budget} | row)
    return {"rows": rows, "steps": fewer_steps(model, own, guidance, shift, args)} | gains(own)


def sigma_plan(grid: Grid, budget: int) -> Plan:
    return Plan.of(grid, budget, anchors="sigma", rule="signed chordal")


def own_profile(model: Any, guidance: float, shift: Any, args: Any) -> Profile:
    budgets = SETTINGS[model.name]["budgets"]
    return profile_of(model, guidance, shift, args, budgets=budgets)


def measured(held: ZooCase, plan: Plan, goal: Any, reserve: int = 0) -> float:
    made = sample(held.velocity(), held.noise, plan=plan, reserve=reserve)
    return float(decibels(made, goal).mean())


def variants(own: Profile, budget: int) -> Iterator[tuple[str, Plan]]:
    """From the own profile: what each part of the planner adds, and how few samples suffice."""
    yield SIGMA, sigma_plan(own.grid, budget)
    yield "planned", own.plan(budget)
    yield "time", named(own, "time", budget)
    if knows_data(own.grid):
        yield "data space", named(own, "time, data space", budget)
    yield "any rule", named(own, "any rule", budget)
    yield "no tournament", replace(own, trials=()).plan(budget)
    yield "no gain", flat(own).plan(budget)
    for count in [c for c in SAMPLES if c < own.samples]:
        step = own.samples // count
        yield f"{count} samples", subset(own, range(0, own.samples, step)[:count]).plan(budget)


def others(
    model: Any, own: Profile, guidance: float, shift: Any, budget: int, args: Any
) -> Iterator[tuple[str, Plan]]:
    """From profiles of another guidance, another shift and other models."""
    at = SETTINGS[model.name]
    elsewhere = own_profile(model, at["guidance"][1], shift, args)
    yield "other guidance", elsewhere.plan(budget)
    shifted = resampled(own_profile(model, guidance, at["shift"][1], args), own.grid)
    yield "other shift", shifted.plan(budget)
    foreign = []
    for name in [n for n in ALIKE if n in args.models and n not in (model.name, "digits-av")]:
        _, g, s = judged(name)
        found = own_profile(zoo.load(name, args.device), g, s, args)
        if not found.grid.regimes:
            foreign.append(found)
    if not foreign or own.slots > 1 or model.name not in ALIKE or own.grid.regimes:
        return
    both = pooled(foreign, own.grid)
    yield "others' gain", with_gains_of(own, both).plan(budget)
    for recipe in ("time", "any rule", "hold"):
        yield f"others' profile, {recipe}", replace(named(both, recipe, budget), grid=own.grid)


def named(profile: Profile, recipe: str, budget: int) -> Plan:
    plan = profile.planner.named(recipe, budget)
    assert plan is not None
    return plan


def flat(own: Profile) -> Profile:
    """As if errors neither grew nor shrank."""
    ones = [replace(b, gains=tuple(torch.ones_like(g) for g in b.gains)) for b in own.batches]
    return replace(own, batches=tuple(ones), _planners={})


def with_gains_of(own: Profile, other: Profile) -> Profile:
    """The other's gains at the stages where they were measured, the same for every sample."""
    stages = tuple(n for n in own.stages)
    a = torch.from_numpy(other.gains())[list(stages)]
    batches = [
        replace(b, gains=tuple(a[:, None].expand(-1, b.samples).clone() for _ in b.gains))
        for b in own.batches
    ]
    return replace(own, batches=tuple(batches), _planners={})


def by_classes(
    model: Any, own: Profile, guidance: float, shift: Any, budget: int, args: Any
) -> dict[str, float]:
    """Held-out samples of the later half of the classes, planned from either half of them."""
    half, classes = own.samples // 2, len(model.classes)
    count = max(4, args.samples // HEAVY.get(model.name, 1))
    labels = [classes // 2 + i * (classes - classes // 2) // count for i in range(count)]
    held = case_of(model, labels, model.noise(count, seed=30_000), guidance, shift)
    goal = sample(held.velocity(), held.noise, held.grid())
    plans = {
        "same classes": subset(own, range(half, own.samples)).plan(budget),
        "other classes": subset(own, range(half)).plan(budget),
    }
    return {name: measured(held, plan, goal) for name, plan in plans.items()}


def fewer_steps(
    model: Any, own: Profile, guidance: float, shift: Any, args: Any
) -> dict[str, float]:
    """The profile resampled to 0.56 times the steps (50 → 28), against one made there."""
    steps, budget = round(0.56 * own.grid.steps), SETTINGS[model.name]["budgets"][0]
    held, training = (f(model, guidance, shift, args) for f in (held_out, calibration))
    held, training = replace(held, steps=steps), replace(training, steps=steps)
    there = profile(
        training.velocity(), training.noise, training.grid(), budgets=[budget], quiet=True
    )
    goal = sample(held.velocity(), held.noise, held.grid())
    grid: Grid = held.grid()
    row = {
        SIGMA: measured(held, sigma_plan(grid, budget), goal),
        "resampled": measured(held, resampled(own, grid).plan(budget), goal),
        "profiled there": measured(held, there.plan(budget), goal),
    }
    return {"steps": steps, "budget": budget} | row


def gains(own: Profile) -> dict[str, Any]:
    """a(σ) at some progress along τ, over its value at the middle."""
    tau = torch.tensor(own.grid.tracks[own.grid.lead].tau, dtype=torch.float64)
    done = ((tau - tau[0]) / (tau[-1] - tau[0])).tolist()
    a = own.gains()
    at = {
        p: a[min(range(len(done)), key=lambda n: abs(done[n] - p))] for p in (0.05, 0.2, 0.5, 0.8)
    }
    return {"gains": {str(p): float(value / at[0.5]) for p, value in at.items()}}


def report(cells: Sequence[dict[str, Any]], args: Any) -> str:
    lines = heading(__doc__ or "", "planning_transfer.py", args, cells, len(args.models))
    names = list(dict.fromkeys(k for c in cells for row in c["rows"] for k in row if k != "budget"))
    heads = [f"{c['setting'][0]}, {row['budget']}" for c in cells for row in c["rows"]]
    rows = [row for c in cells for row in c["rows"]]
    lines += [
        "## dB by how the plan was made (model, calls)",
        "",
        table_head(["plan from", *heads]),
    ]
    for name in names:
        shown = [f"{row[name]:.1f}" if name in row else "–" for row in rows]
        lines.append(f"| {' | '.join([name, *shown])} |")
    lines += ["", "## Fewer steps", ""]
    keys = (SIGMA, "resampled", "profiled there")
    lines += [table_head(["model", "steps", "calls", *keys])]
    for cell in cells:
        at = cell["steps"]
        shown = [cell["setting"][0], str(at["steps"]), str(at["budget"])]
        lines.append(f"| {' | '.join([*shown, *(f'{at[k]:.1f}' for k in keys)])} |")
    lines += ["", "## The gain a over its value half-way in τ, by progress", ""]
    lines += [table_head(["model", *cells[0]["gains"]])]
    for cell in cells:
        shown = [f"{value:.2f}" for value in cell["gains"].values()]
        lines.append(f"| {' | '.join([cell['setting'][0], *shown])} |")
    return "\n".join(lines) + "\n"


def table_head(names: Sequence[str]) -> str:
    return f"| {' | '.join(names)} |\n{'|---' * len(names)}|"


if __name__ == "__main__":
    main()
