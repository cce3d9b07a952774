"""Runs of every model at many budgets, with what each saw of itself, for the fit of the estimate.

    python -m geoshrink_bench.foreign fetch
    python benchmarks/quality_runs.py --device cuda --cells cells/quality

For every model of ours and of others, at the guidances and shifts of planning_common.SETTINGS and
its own number of steps (the first of them also at 28 and 100 steps): six forms of the method with
Euler, the default with AB2 and DPM++(2M), 4 to 40 calls, 32 samples. A file per setting keeps, for
every run and sample, the dB to the full run, those of direct step reduction with as many calls, and
the cells as quality/cells.py sees them. quality_fit.py fits the constants to them.
"""

from __future__ import annotations

import argparse
import dataclasses
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from planning_common import HEAVY, SETTINGS, ZOO, Setting, case_of, settings

from geoshrink import METHODS, sample
from geoshrink.history import on_host
from geoshrink.planning.tournament import decibels
from geoshrink.quality.cells import slots_of
from geoshrink.sampling import Loop, SolverRun
from geoshrink_bench import foreign
from geoshrink_bench.models import load

BUDGETS = (4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40)
MOST = 0.8  # of the stages
FORMS: dict[str, dict[str, Any]] = {
    "geoshrink": {},
    "uncorrected": dict(METHODS["uncorrected"]),
    "paper": dict(METHODS["paper"]),
    "uniform": dict(anchors="uniform", rule="signed time"),
    "data": dict(anchors="corrected", space="data", correct=True, clock="mesh"),
}
SOLVED = [(form, "euler") for form in FORMS]
SOLVED += [("geoshrink", "ab2"), ("geoshrink", "dpm++2m"), ("uncorrected", "ab2")]


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs with what each saw of itself.")
    parser.add_argument("--cells", type=Path, default=Path("cells/quality"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--models", nargs="+", default=[*foreign.RECIPES, *ZOO])
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS)
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts of the settings")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.cells.mkdir(parents=True, exist_ok=True)
    part, parts = map(int, args.shard.split("/"))
    for setting, steps in list(all_settings(args.models))[part - 1 :: parts]:
        name, guidance, shift = setting
        file = args.cells / f"{name}, guidance {guidance:g}, shift {shift}, {steps or 'own'}.pickle"
        if file.exists():
            continue
        start = time.time()
        try:
            body = work(setting, steps, args)
        except foreign.Missing as error:
            print(f"SKIPPED: {error}", file=sys.stderr, flush=True)
            continue
        beside = file.with_suffix(".part")
        beside.write_bytes(pickle.dumps(body))
        beside.replace(file)
        print(f"{file.stem}: {time.time() - start:.0f} s", flush=True)


def all_settings(models: list[str]) -> Iterator[tuple[Setting, int | None]]:
    for setting in settings(models):
        name, guidance, shift = setting
        yield setting, None
        first = SETTINGS[name]
        if (guidance, shift) == (first["guidance"][0], first["shift"][0]):
            yield setting, 28
            if name not in HEAVY:
                yield setting, 100


def work(setting: Setting, steps: int | None, args: Any) -> dict[str, Any]:
    name, guidance, shift = setting
    model = load(name, args.device)
    count, classes = max(4, args.samples // HEAVY.get(name, 1)), len(model.classes)
    labels = [(2 * i + 1) * classes // (2 * count) % classes for i in range(count)]
    case = case_of(model, labels, model.noise(count, seed=30_000), guidance, shift)
    case = dataclasses.replace(case, steps=steps)
    grid, velocity, rows = case.grid(), case.velocity(), []
    full = {
        solver: sample(velocity, case.noise, grid, solver=solver)
        for solver in dict.fromkeys(solver for _, solver in SOLVED)
    }
    for budget in (b for b in args.budgets if b <= MOST * grid.steps):
        direct = decibels(sample(velocity, case.noise, case.grid(budget)), full["euler"])
        for form, solver in SOLVED:
            if steps is not None and solver != "euler":
                continue
            try:
                run = SolverRun(grid, budget, solver=solver, **FORMS[form])
            except ValueError:  # a mesh that needs more
                continue
            x = Loop(velocity, case.noise, run, solver, None, False).go()
            found = dict(form=form, solver=solver, budget=budget, corrected=run.corrects)
            found |= dict(db=decibels(x, full[solver]).numpy(), direct=direct.numpy())
            rows.append(found | {"slots": slots_of(on_host(run._record))})
    return dict(model=name, guidance=guidance, shift=shift, steps=grid.steps, rows=rows)


if __name__ == "__main__":
    main()
