"""profile_pipeline(): a profile of a pipeline, recorded where its scheduler steps.

    profile = profile_pipeline(pipe, [dict(prompt=p) for p in prompts], num_inference_steps=50)
    geoshrink.accelerate(pipe, plan=profile.plan(budget=10))

One run of every call in full gives the outputs; reruns with an error added to the state at the end
of a step give the gains; the tournament runs the pipeline under accelerate(plan=…). Every rerun has
the same seed. Cells are weighed as Euler weighs them, which the plan says where the scheduler is
another solver.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from .gains import STAGES, gain_stages, heard, perturbation
from .profiles import FEWEST, Batch, Profile, Trial
from .profiling import RUNS, check_finite
from .space import gram
from .tournament import SLATE, affordable, decibels, default_budgets, entrants

EULER = 1e-3  # a step that differs by less, relative to its length, is Euler's


class Recorder:
    """The scheduler's step, noted down: outputs, first and last state, the grid of the loop.

    error   (n, tensor): added to the state that stage n begins with
    """

    def __init__(self, pipe: Any, error: tuple[int, Tensor] | None = None, keep: bool = True):
        self.pipe, self.error, self.keep = pipe, error, keep
        self.outputs: list[Tensor] = []
        self.states: list[Tensor] = []
        self.steps, self.off = 0, 0.0  # how many were made, and how far they were from Euler's
        self.grid: Any = None
        self.reason: str | None = None
        self.end: Any = None  # the last state
        self.put: Any = None  # ‖error‖ of each sample, as rounded

    def step(self, scheduler: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        output, x = next(iter(given.values())), given.get("sample")
        if not isinstance(output, Tensor) or not isinstance(x, Tensor):
            raise ValueError(
                f"{type(scheduler).__name__}.step was not given a model output and a sample: "
                "profile the model itself, with geoshrink.profile(velocity, noise, sigmas)"
            )
        result = original(*args, **kwargs)
        if self.grid is None:
            self.grid, self.reason = self.read_grid(scheduler, given.get("timestep"))
        after = result[0] if isinstance(result, tuple) else result.prev_sample
        self.steps += 1
        if self.keep:
            self.outputs.append(output.detach().cpu())
            self.states.append(x.detach().cpu())
            self.compare(x, output, after)
        if self.error is not None and self.error[0] == self.steps:
            moved = after + heard(self.error[1].to(after.device), after).to(after.dtype)
            self.put = (moved.double() - after.double()).flatten(1).norm(dim=1).cpu()
            result = replaced(result, moved)
            after = moved
        self.end = after.detach().cpu()
        return result

    def read_grid(self, scheduler: Any, timestep: Any) -> tuple[Grid, str | None]:
        from ..adapters import diffusers

        order = max(1, getattr(scheduler, "order", 1))
        if order > 1:
            return Grid.of([1.0, 0.0]), f"{type(scheduler).__name__} evaluates twice a stage"
        return diffusers.grid_of(scheduler, self.pipe, order, timestep)

    def compare(self, x: Tensor, output: Tensor, after: Tensor) -> None:
        """How far the solver's step is from Euler's on the grid."""
        n = self.grid.effective.get(self.steps - 1)
        if n is None or n >= self.grid.steps or len(self.grid.tracks) > 1:
            return
        p, g = self.grid.tracks[0].euler(n)
        made = p * x.double() + g * output.double()
        moved = float((after.double() - x.double()).norm())
        self.off = max(self.off, float((after.double() - made).norm()) / max(moved, 1e-12))


def profile_pipeline(
    pipe: Any,
    calls: Sequence[Mapping[str, Any]],
    *,
    budgets: Sequence[int] | None = None,
    seed: int = 0,
    perturbed: int = STAGES,
    file: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> Profile:
    """Profiles a diffusers pipeline on a few calls; each is a batch.

    calls     the arguments of each call; `options` are arguments of all of them
    seed      call i gets a generator with seed + i, the same in every rerun
    budgets   at which plans are tried in real runs, as in profile()
    file      written at the end
    """
    runs = [dict(options) | dict(call) for call in calls]
    if not runs or any("generator" in run for run in runs):
        raise ValueError(
            "give at least one call, without a generator: seed= makes them, run by run"
        )
    check_host(pipe)
    if not quiet:
        print(f"profiling: at most {RUNS} full runs of {len(runs)} calls", file=sys.stderr)
    found, ends = record(pipe, runs, seed, perturbed)
    if found.samples < FEWEST:
        raise ValueError(f"{found.samples} samples are too few to plan from: give {FEWEST} calls")
    wanted = default_budgets(found.grid) if budgets is None else tuple(budgets)
    left = (RUNS - 1 - len(found.stages)) * found.grid.steps if budgets is None else None
    trials = []
    for budget in affordable(found, wanted, left):
        trials += tournament(found, pipe, runs, seed, ends, budget)
    found = found.with_trials(trials)
    if file is not None:
        found.save(file)
    return found


def record(
    pipe: Any, runs: Sequence[dict[str, Any]], seed: int, perturbed: int
) -> tuple[Profile, list[Tensor]]:
    batches: list[Batch] = []
    ends: list[Tensor] = []
    grid: Any = None
    stages, off = (), 0.0
    for i, run in enumerate(runs):
        full = recorded(pipe, run, seed + i, Recorder(pipe))
        check_run(full, grid)
        grid, off = full.grid, max(off, full.off)
        stages = gain_stages(grid, perturbed)
        kept = [full.outputs[n] for n in grid.kept]
        gains = []
        for n in stages:
            (error,) = perturbation(grid, n, lambda m, kept=kept: [kept[m]])
            moved = recorded(pipe, run, seed + i, Recorder(pipe, (grid.kept[n], error), keep=False))
            change = (moved.end.double() - full.end.double()).flatten(1).norm(dim=1)
            gains.append((change / moved.put).where(moved.put > 0, float("nan")))
        rows = gram([full.states[0], *kept])
        energy = full.end.double().flatten(1).square().sum(1)
        empty = torch.zeros(0, len(energy), dtype=torch.float64)
        batches.append(Batch((rows,), (energy,), (torch.stack(gains) if gains else empty,)))
        ends.append(full.end)
    scale = {run.get("guidance_scale") for run in runs}
    guidance = scale.pop() if len(scale) == 1 else None
    solver = "euler" if off < EULER else type(pipe.scheduler).__name__
    dtype = str(ends[0].dtype).removeprefix("torch.")
    name = type(pipe).__name__
    return Profile(grid, tuple(batches), stages, name, guidance, dtype, solver=solver), ends


def check_host(pipe: Any) -> None:
    from ..adapters import diffusers

    count = len(diffusers.find_schedulers(pipe))
    if count != 1 or not hasattr(pipe, "scheduler"):
        raise ValueError(
            f"{type(pipe).__name__} has {count} schedulers, profile_pipeline needs one: profile "
            "the model itself, with geoshrink.profile(velocity, noise, sigmas)"
        )


def check_run(full: Recorder, grid: Grid | None) -> None:
    if full.grid is None or full.end is None:
        raise ValueError("the pipeline never stepped its scheduler: there is nothing to profile")
    if full.reason is not None:
        raise ValueError(f"this pipeline cannot be planned: {full.reason}")
    if full.steps != full.grid.given:
        raise ValueError(
            f"the scheduler stepped {full.steps} times on a grid of {full.grid.given} stages: "
            "pipelines with several outputs a stage cannot be profiled yet"
        )
    if grid is not None and full.grid != grid:
        raise ValueError("the calls ran on different grids: profile each on its own")
    for n, output in enumerate(full.outputs):
        check_finite([output], f"stage {n}")


def tournament(
    found: Profile,
    pipe: Any,
    runs: Sequence[dict[str, Any]],
    seed: int,
    ends: Sequence[Tensor],
    budget: int,
) -> list[Trial]:
    from .. import accelerate

    trials, scores = [], {}
    for name, plan in entrants(found.planner, budget, SLATE).items():
        if plan not in scores:
            db = []
            for i, (run, end) in enumerate(zip(runs, ends)):
                try:
                    made = recorded(
                        pipe, run, seed + i, Recorder(pipe, keep=False), plan, accelerate
                    )
                except ValueError:  # this host cannot run it: data space, for one
                    break
                db += decibels(made.end, end).tolist()
            scores[plan] = tuple(db)
        if len(scores[plan]) == found.samples:
            surrogate = found.planner.surrogate(name, budget)
            trials.append(Trial(name, budget, plan.anchors, surrogate, scores[plan]))
    return trials


def recorded(
    pipe: Any,
    run: dict[str, Any],
    seed: int,
    recorder: Recorder,
    plan: Any = None,
    accelerate: Any = None,
) -> Recorder:
    """One call of the pipeline, seeded, with its scheduler noted down; as it was afterwards."""
    call = {"generator": torch.Generator().manual_seed(seed)} | run
    if "output_type" in inspect.signature(type(pipe).__call__).parameters:
        call = {"output_type": "latent"} | call
    with stepping(pipe.scheduler, recorder), torch.no_grad():
        handle = None if plan is None else accelerate(pipe, plan=plan)
        try:
            pipe(**call)
        finally:
            if handle is not None:
                handle.remove()
    return recorder


@contextmanager
def stepping(scheduler: Any, recorder: Recorder) -> Iterator[None]:
    before = scheduler.__dict__.get("step")
    original = scheduler.step

    def step(*args: Any, **kwargs: Any) -> Any:
        return recorder.step(scheduler, original, args, kwargs)

    step.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    scheduler.__dict__["step"] = step
    try:
        yield
    finally:
        scheduler.__dict__.pop("step", None)
        if before is not None:
            scheduler.__dict__["step"] = before


def replaced(result: Any, x: Tensor) -> Any:
    if isinstance(result, tuple):
        return (x, *result[1:])
    result.prev_sample = x
    return result
