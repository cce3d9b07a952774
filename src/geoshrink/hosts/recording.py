"""Recorder: runs the calls of a pipeline and records them where its scheduler steps."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..plan import Plan
from ..planning.gains import heard, perturbation
from ..planning.profiling import Begun, check_finite
from ..planning.runs import RUN, Batch, Kind, Runs, check_target
from ..planning.space import gram
from ..planning.tournament import Source
from . import diffusers
from .hooks import Hooks

EULER = 1e-3  # a step is Euler's if it differs by less than this part of its length


class Recorder:
    """Records a pipeline at its scheduler's step: the grid, the first state and the last.

    keep      records all outputs, too
    error     (n, tensor): added to the state that stage n begins with
    anchors   the steps at which the model is called (default: all); tick() is called at each
    """

    def __init__(
        self,
        pipe: Any,
        error: tuple[int, Tensor] | None = None,
        keep: bool = False,
        anchors: Collection[int] | None = None,
        tick: Callable[[], None] = lambda: None,
    ):
        self.pipe, self.error, self.keep, self.anchors, self.tick = pipe, error, keep, anchors, tick
        self.outputs: list[Tensor] = []
        self.steps, self.off = 0, 0.0  # how many were made, and how far they were from Euler's
        self.grid: Any = None
        self.reason: str | None = None
        self.start: Any = None  # the first state and output
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
            self.start = x.detach().cpu(), output.detach().cpu()
        after = result[0] if isinstance(result, tuple) else result.prev_sample
        if self.anchors is None or self.steps in self.anchors:
            self.tick()
        self.steps += 1
        if self.keep:
            self.outputs.append(output.detach().cpu())
            self.compare(x, output, after)
        if self.error is not None and self.error[0] == self.steps:
            moved = after + heard(self.error[1].to(after.device), after).to(after.dtype)
            self.put = (moved.double() - after.double()).flatten(1).norm(dim=1).cpu()
            result = replaced(result, moved)
            after = moved
        self.end = after.detach().cpu()
        return result

    def read_grid(self, scheduler: Any, timestep: Any) -> tuple[Grid, str | None]:
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


class Beginning(Recorder):
    """Records a run and ends it after its first step."""

    def step(self, scheduler: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        super().step(scheduler, original, args, kwargs)
        raise Begun


def replaced(result: Any, x: Tensor) -> Any:
    if isinstance(result, tuple):
        return (x, *result[1:])
    result.prev_sample = x
    return result


class Calls(Source):
    """The calls of a pipeline, which can be run again and are profiled, each as a batch."""

    facts = ("model", "guidance", "dtype", "stages", "made")  # the solver shows in a full run
    spent, saves = 1, True  # the first step

    def __init__(self, pipe: Any, runs: Sequence[dict[str, Any]], seed: int):
        self.pipe, self.runs, self.seed = pipe, runs, seed
        self.ends: dict[int, Tensor] = {}
        self.tick = lambda: None
        self.begun = [self.run(i, kind=Beginning) for i in range(len(runs))]
        self.states = [recorder.start[0] for recorder in self.begun if recorder.start]

    def cost(self, profile: Runs) -> tuple[int, int]:
        return profile.grid.given, (1 + len(profile.stages)) * profile.grid.given

    def begin(self, i: int) -> list[list[list[Tensor]]]:
        x, output = self.begun[i].start
        return [[[x]], *[[[x, output]]] * (self.begun[i].grid.kept[0] == 0)]

    def run(self, i: int, plan: Any = None, kind: type[Recorder] = Recorder, **options: Any):
        """Runs and records call i, under a plan if there is one; the pipeline stays as it was."""
        recorder = kind(self.pipe, tick=self.tick, **options)
        call = {"generator": torch.Generator().manual_seed(self.seed + i)} | self.runs[i]
        if "output_type" in inspect.signature(type(self.pipe).__call__).parameters:
            call = {"output_type": "latent"} | call
        with Hooks() as hooks, torch.no_grad(), suppress(Begun), ExitStack() as attached:
            hooks.place(self.pipe.scheduler, "step", recorder.step)
            if plan is not None:
                attached.enter_context(diffusers.attach(self.pipe, plan=plan))
            self.pipe(**call)
        return recorder

    def with_batch(self, profile: Kind, i: int) -> Kind:
        """The profile with one call more: its full run, and the reruns for its gains."""
        grid, full = profile.grid, self.run(i, keep=True)
        if full.steps != grid.given:
            raise ValueError(
                f"the scheduler stepped {full.steps} times on a grid of {grid.given} stages: "
                "pipelines with several outputs a stage cannot be profiled yet"
            )
        for n, output in enumerate(full.outputs):
            check_finite([output], f"stage {n}")
        kept = [full.outputs[n] for n in grid.kept]
        gains = []
        for n in profile.stages:
            (error,) = perturbation(grid, n, lambda m: [kept[m]])
            moved = self.run(i, error=(grid.kept[n], error))
            change = (moved.end.double() - full.end.double()).flatten(1).norm(dim=1)
            gains.append((change / moved.put).where(moved.put > 0, float("nan")))
        rows = gram([full.start[0], *kept])
        energy = full.end.double().flatten(1).square().sum(1)
        empty = torch.zeros(0, len(energy), dtype=torch.float64)
        batch = Batch((rows,), (energy,), (torch.stack(gains) if gains else empty,))
        self.ends[i] = full.end
        solver = profile.solver if full.off < EULER else type(self.pipe.scheduler).__name__
        return replace(profile, batches=(*profile.batches, batch), solver=solver)

    def end(self, i: int, target: str = RUN) -> Tensor:
        if i not in self.ends:
            self.ends[i] = self.run(i).end
        return self.ends[i]

    def made(self, i: int, plan: Plan) -> Tensor | None:
        try:
            return self.run(i, plan, anchors={plan.grid.kept[a] for a in plan.anchors}).end
        except ValueError:  # this host cannot run it: data space, for one
            return None


def check_call(
    pipe: Any, calls: Any, options: Mapping[str, Any], target: str = RUN
) -> list[dict[str, Any]]:
    """The arguments of every call, checked as far as possible without running any."""
    kind, takes = type(pipe).__name__, inspect.signature(type(pipe).__call__).parameters
    if isinstance(calls, (str, Mapping)) or not isinstance(calls, Sequence):
        raise TypeError(f"calls is a list of prompts, or of dicts of arguments, got {calls!r}")
    runs = []
    for call in calls:
        if not isinstance(call, (str, Mapping)):
            raise TypeError(f"a call is a prompt or a dict of arguments, got {call!r}")
        runs.append({**options, **({"prompt": call} if isinstance(call, str) else call)})
    if not runs or any("generator" in run for run in runs):
        raise ValueError(
            "give at least one call, without a generator: seed= makes them, run by run"
        )
    strange = [name for run in runs for name in run if name not in takes]
    if strange and not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        raise ValueError(f"{kind} takes no {strange[0]!r} in its call")
    check_target(target, None, "euler")
    if target != RUN:
        raise ValueError(
            f"a pipeline is profiled for target='run', not {target!r}: its loop cannot make the "
            f"finer run to compare with. Its profile.plan(budget, target={target!r}) is there, "
            f"untried; or profile the model itself: geoshrink.profile(…, target={target!r})"
        )
    count = len(diffusers.find_schedulers(pipe))
    if count != 1 or not hasattr(pipe, "scheduler"):
        raise ValueError(
            f"{kind} has {count} schedulers, profile_pipeline needs one: profile the model itself, "
            "with geoshrink.profile(velocity, noise, sigmas)"
        )
    return runs


@contextmanager
def quiet_host(host: Any) -> Iterator[None]:
    """Neither the host's progress bar nor our log lines, while a bar of ours is shown."""
    logger, name = logging.getLogger("geoshrink"), "_progress_bar_config"
    level, before = logger.level, vars(host).get(name)
    logger.setLevel(logging.ERROR)
    vars(host)[name] = {**(before or {}), "disable": True}
    try:
        yield
    finally:
        logger.setLevel(level)
        vars(host).pop(name)
        if before is not None:
            vars(host)[name] = before
