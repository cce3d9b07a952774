"""profile_pipeline(): a profile of a pipeline, recorded where its scheduler steps.

    profile = profile_pipeline(pipe, ["a lighthouse", "a dog", …], num_inference_steps=50)
    geoshrink.accelerate(pipe, plan=profile.plan(budget=10))

The first step of every call tells what profiling will cost. One full run of each call gives the
outputs. Reruns with an error added to the state give the gains. The tournament runs the pipeline
under accelerate(plan=…). Every rerun has the same seed. Cells are weighed as Euler weighs them; if
the scheduler is another solver, the plan says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..planning import Profile
from ..planning.gains import STAGES, check_stages, gain_stages
from ..planning.runs import FEWEST, RUN
from ..planning.tournament import Source, profiled
from .diffusers import find_denoisers
from .facts import GUIDANCE, facts_of, guidance_of, is_number
from .hooks import hook_of
from .recording import Calls, Recorder, check_call, quiet_host


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
    through: Callable[[Source], Source] = lambda source: source,
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
    through   given what is profiled, returns what is asked in its place: batch.Spread, on a cluster
    """
    runs = check_call(pipe, calls, options, target)
    check_stages(perturbed)
    before()
    if hook_of(pipe.scheduler, "set_timesteps") is not None:
        raise ValueError(
            f"this {type(pipe).__name__} is accelerated: profile it with handle.profile(…), or "
            "after handle.remove()"
        )
    with quiet_host(pipe):
        source = Calls(pipe, runs, seed)
        start = started(pipe, runs, source.begun, perturbed)
        return profiled(start, through(source), budgets, target, file, quiet)


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
    scales = [run.get(GUIDANCE) for run in runs]
    same = is_number(scales[0]) and all(each == scales[0] for each in scales)
    guidance = scales[0] if same else None
    called = {GUIDANCE: guidance_of(pipe, runs)}
    purpose = facts_of(pipe, pipe.scheduler, find_denoisers(pipe), grid.given, called)
    dtype = str(begun[0].start[0].dtype).removeprefix("torch.")
    made = f"{type(pipe).__name__} with {type(pipe.scheduler).__name__}"
    stages = gain_stages(grid, perturbed)
    told: dict[str, Any] = {"complete": False, "made": made, "purpose": purpose}
    return Profile(grid, (), stages, type(pipe).__name__, guidance, dtype, **told)
