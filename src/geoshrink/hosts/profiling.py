"""profile_pipeline(): a profile of a pipeline, recorded where its scheduler steps.

    profile = profile_pipeline(pipe, ["a lighthouse", "a dog", …], num_inference_steps=50)
    geoshrink.accelerate(pipe, plan=profile.plan(budget=10))

The first step of every call tells what profiling will cost. One full run of each call gives the
outputs. Reruns with an error added to the state give the gains. The tournament runs the pipeline
under accelerate(plan=…). Every rerun has the same seed. Cells are weighed as Euler weighs them; if
the scheduler is another solver, the plan says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..planning import Profile
from ..planning.gains import STAGES, check_stages, gain_stages, perturbation
from ..planning.profiling import FACTS, RUNS, resumed
from ..planning.runs import FEWEST, RUN, Batch, Trial
from ..planning.space import gram
from ..planning.tournament import SLATE, Counter, affordable, decibels, default_budgets, entrants
from .recording import Beginning, Calls, Recorder, check_call, check_plain, check_run, quiet_host

EULER = 1e-3  # a step is Euler's if it differs by less than this part of its length


def profile_pipeline(
    pipe: Any,
    calls: Sequence[str | Mapping[str, Any]],
    *,
    budgets: Sequence[int] | None = None,
    seed: int = 0,
    perturbed: int = STAGES,
    target: str = RUN,
    file: str | Path | None = None,
    quiet: bool = False,
    before: Callable[[], None] = lambda: None,
    **options: Any,
) -> Profile:
    """Profiles a diffusers pipeline on a few calls; each is a batch.

    calls     prompts, or dicts of arguments; `options` are arguments of all of them
    seed      call i gets a generator with seed + i, the same in every rerun
    budgets   at which plans are tried in real runs, as in profile()
    target    "run": a pipeline's loop cannot make the finer run that the exact flow needs
    perturbed the number of stages at which the gains are measured
    file      written after every call and every trial; if it exists, profiling goes on from it
    quiet     print neither the cost nor a progress bar
    before    called after the arguments have been checked, before anything runs
    """
    runs = check_call(pipe, calls, options, target)
    check_stages(perturbed)
    before()
    check_plain(pipe)
    each = Calls(pipe, runs, seed)
    with quiet_host(pipe):
        begun = [each.run(i, kind=Beginning) for i in range(len(runs))]
        start = started(pipe, runs, begun, perturbed)
        found = start if file is None else resumed_pipeline(start, file, begun)
        wanted = default_budgets(found.grid) if budgets is None else tuple(budgets)
        tried = found.tried(RUN) if found.complete else set()
        if found.complete and (tried if budgets is None else not {*budgets} - tried):
            return found
        steps, known = found.grid.given, len(found.batches)
        own = (1 + len(found.stages)) * steps
        left = RUNS * steps - own - 1 if budgets is None else None
        rest = found if found.complete else replace(found, trials=())
        chosen = affordable(rest, wanted, left)
        found = found if found.complete else without_half(found, chosen)
        total = own * (len(runs) - known) + steps * known + len(runs) * sum(chosen.values())
        pairs = [(None, recorder.start[0]) for recorder in begun]
        with Counter(total, found.grid, pairs, quiet) as counter:
            each.tick = counter.tick
            for i in range(known, len(runs)):
                found = with_call(found, each, i)
                keep(found, file)
            found = replace(found, complete=True)
            for budget in chosen:
                found = tournament(found, each, budget, file)
    if file is not None:
        found.save(file)
    return found


def keep(found: Profile, file: str | Path | None) -> None:
    """Saves what there is so far, marked as not complete."""
    if file is not None:
        replace(found, complete=False).save(file)


def without_half(found: Profile, budgets: Collection[int]) -> Profile:
    """Drops the last tournament, which was interrupted, unless its budget is asked for again."""
    half = {t.budget for t in found.trials[-1:]} - {*budgets}
    return replace(found, trials=tuple(t for t in found.trials if t.budget not in half))


def started(
    pipe: Any, runs: Sequence[dict[str, Any]], begun: Sequence[Recorder], perturbed: int
) -> Profile:
    """The empty profile, after the first steps have shown that there can be one."""
    grid: Any = None
    for recorder in begun:
        if recorder.grid is None:
            raise ValueError(
                "the pipeline never stepped its scheduler: there is nothing to profile"
            )
        if recorder.reason is not None:
            raise ValueError(f"this pipeline cannot be planned: {recorder.reason}")
        if grid is not None and recorder.grid != grid:
            raise ValueError("the calls ran on different grids: profile each on its own")
        grid = recorder.grid
    samples = sum(len(recorder.start[0]) for recorder in begun)
    if samples < FEWEST:
        raise ValueError(f"{samples} samples are too few to plan from: give {FEWEST} calls")
    scale = {run.get("guidance_scale") for run in runs}
    guidance = scale.pop() if len(scale) == 1 else None
    dtype = str(begun[0].start[0].dtype).removeprefix("torch.")
    made = f"{type(pipe).__name__} with {type(pipe.scheduler).__name__}"
    stages = gain_stages(grid, perturbed)
    return Profile(
        grid, (), stages, type(pipe).__name__, guidance, dtype, complete=False, made=made
    )


def resumed_pipeline(start: Profile, file: str | Path, begun: Sequence[Recorder]) -> Profile:
    """What the file has of these calls: the same noise, and nearly the same first outputs."""
    same = [name for name in FACTS if name != "solver"]  # not known before a full run

    def begin(i: int) -> list[list[list[Tensor]]]:
        x, output = begun[i].start
        return [[[x]], *[[[x, output]]] * (start.grid.kept[0] == 0)]

    return resumed(start, file, len(begun), begin, [*same, "made"])


def with_call(found: Profile, calls: Calls, i: int) -> Profile:
    """The profile with one call more: its full run, and the reruns for its gains."""
    grid, full = found.grid, calls.run(i, keep=True)
    check_run(full, grid)
    kept = [full.outputs[n] for n in grid.kept]
    gains = []
    for n in found.stages:
        (error,) = perturbation(grid, n, lambda m: [kept[m]])
        moved = calls.run(i, error=(grid.kept[n], error))
        change = (moved.end.double() - full.end.double()).flatten(1).norm(dim=1)
        gains.append((change / moved.put).where(moved.put > 0, float("nan")))
    rows = gram([full.start[0], *kept])
    energy = full.end.double().flatten(1).square().sum(1)
    empty = torch.zeros(0, len(energy), dtype=torch.float64)
    batch = Batch((rows,), (energy,), (torch.stack(gains) if gains else empty,))
    calls.ends[i] = full.end
    solver = found.solver if full.off < EULER else type(calls.pipe.scheduler).__name__
    return replace(found, batches=(*found.batches, batch), solver=solver)


def tournament(found: Profile, calls: Calls, budget: int, file: str | Path | None) -> Profile:
    """The profile with real runs at a budget, saved after each; none is made twice."""
    scores: dict[Any, list[float]] = {}
    sizes = [batch.samples for batch in found.batches]
    for name, plan in entrants(found.planner, budget, SLATE).items():
        others = [t for t in found.trials if (t.recipe, t.budget) != (name, budget)]
        mine = [t.db for t in found.trials if (t.recipe, t.budget) == (name, budget)]
        db = scores.setdefault(plan, [*mine[0]] if mine else [])
        surrogate = found.planner.surrogate(name, budget)
        found = replace(found, trials=tuple(others))
        for i in range(len(sizes)):
            if len(db) == sum(sizes[:i]):
                try:
                    anchors = {found.grid.kept[a] for a in plan.anchors}
                    made = calls.run(i, plan, anchors=anchors)
                except ValueError:  # this host cannot run it: data space, for one
                    break
                db += decibels(made.end, calls.end(i)).tolist()
            if not all(map(math.isfinite, db)):  # an overflow cannot win
                break
            trial = Trial(name, budget, plan.anchors, surrogate, tuple(db))
            found = replace(found, trials=(*others, trial))
            keep(found, file)
        whole = len(db) == found.samples and all(map(math.isfinite, db))
        found = found if whole else replace(found, trials=tuple(others))
    return found
