"""The calls of a pipeline to be profiled: checked before any runs, run again and again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..grid import Grid
from .profiling import check_finite
from .recording import Recorder, recorded
from .targets import RUN, check_target


@dataclass
class Calls:
    """The calls of a pipeline, which can be run again and again; the ends of the full runs."""

    pipe: Any
    runs: Sequence[dict[str, Any]]
    seed: int
    ends: dict[int, Tensor] = field(default_factory=dict)
    tick: Callable[[], None] = lambda: None

    def run(self, i: int, plan: Any = None, kind: type[Recorder] = Recorder, **options: Any):
        recorder = kind(self.pipe, tick=self.tick, **options)
        return recorded(self.pipe, self.runs[i], self.seed + i, recorder, plan)

    def end(self, i: int) -> Tensor:
        if i not in self.ends:
            self.ends[i] = self.run(i).end
        return self.ends[i]


def check_call(
    pipe: Any, calls: Any, options: Mapping[str, Any], target: str = RUN
) -> list[dict[str, Any]]:
    """The arguments of every call; what can be refused without running any is refused."""
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
    from ..adapters import diffusers

    count = len(diffusers.find_schedulers(pipe))
    if count != 1 or not hasattr(pipe, "scheduler"):
        raise ValueError(
            f"{kind} has {count} schedulers, profile_pipeline needs one: profile the model itself, "
            "with geoshrink.profile(velocity, noise, sigmas)"
        )
    return runs


def check_plain(pipe: Any) -> None:
    if getattr(vars(pipe.scheduler).get("step"), "seam", None) is not None:
        raise ValueError(
            f"this {type(pipe).__name__} is accelerated: profile it with handle.profile(…), or "
            "after handle.remove()"
        )


def check_run(full: Recorder, grid: Grid) -> None:
    if full.steps != grid.given:
        raise ValueError(
            f"the scheduler stepped {full.steps} times on a grid of {grid.given} stages: "
            "pipelines with several outputs a stage cannot be profiled yet"
        )
    for n, output in enumerate(full.outputs):
        check_finite([output], f"stage {n}")
