"""The response of a host's scheduler, read off a copy of it, and what its outputs say about data.

A copy is made before the first step and run on unit impulses on the CPU, once for every
configuration and grid. Noise is drawn from the same seed with and without the impulses, so that it
cancels. What is not linear, or not known, is left uncorrected, with its reason.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..plan import Plan
from ..solvers.response import EulerResponse, NotLinear, ProbedResponse, probe, stored_in
from ..track import Track
from .hooks import without_hooks
from .scheduling import EXPLODING, is_euler, is_flow, prediction_of

#: Settings that bend the data prediction.
BENT = ("thresholding", "clip_sample")
#: Schedulers in σ whose x is (x₀ + σ·ε)/√(1 + σ²).
PRESERVING = ("DPMSolver", "DEIS", "UniPC", "SASolver")
KNOWN: OrderedDict[tuple, ProbedResponse | str] = OrderedDict()
MOST_KNOWN = 32


def solver_of(
    scheduler: Any, before: Any, plan: Plan, start: int, kwargs: Mapping[str, Any]
) -> tuple[list[EulerResponse] | list[ProbedResponse], list[Track]]:
    """(response, levels) of a scheduler's steps; a ValueError says why there is none.

    before   a copy of the scheduler from before its first step
    start    the index of the first timestep of the loop
    kwargs   what step is given besides output, timestep and sample
    """
    name, config = type(scheduler).__name__, getattr(scheduler, "config", {})
    bent = [setting for setting in BENT if config.get(setting)]
    if bent:
        raise ValueError(f"{name} is not linear ({bent[0]})")
    if plan.grid.given != plan.steps:
        raise ValueError("the grid has stages of zero length")
    if others := [key for key, value in kwargs.items() if isinstance(value, Tensor)]:
        raise ValueError(f"{name}.step is given {', '.join(others)}")
    levels = levels_of(scheduler, plan, start)
    if is_euler(scheduler) and not kwargs.get("s_churn"):
        return [EulerResponse(plan.track(0), plan.space == "data")], [levels]
    if before is None:
        raise ValueError(f"{name} had begun before it was seen")
    return [probed(before, plan, start, kwargs)], [levels]


def levels_of(scheduler: Any, plan: Plan, start: int) -> Track:
    """α and σ of x at every stage, and what the output is."""
    name, own = type(scheduler).__name__, plan.track(0)
    stages = range(start, start + plan.steps)
    products = getattr(scheduler, "alphas_cumprod", None)
    if is_flow(scheduler):
        if own.levels is None:
            raise ValueError(f"it is not known where the data is on the grid of {name}")
        return own
    if name.startswith(EXPLODING):
        return own
    if name.startswith(PRESERVING):
        alphas = [1 / math.sqrt(1 + s**2) for s in own.sigmas]
        noise = [s * a for s, a in zip(own.sigmas, alphas)]
    elif products is not None and getattr(scheduler, "sigmas", None) is None:
        times = torch.as_tensor(scheduler.timesteps).long().cpu()[list(stages)]
        kept = [*torch.as_tensor(products).double().cpu()[times].tolist(), 1.0]
        alphas, noise = [math.sqrt(k) for k in kept], [math.sqrt(1 - k) for k in kept]
    else:
        raise ValueError(f"it is not known what the outputs of {name} say about the data")
    if min(alphas) == 0:
        raise ValueError(f"the first output of {name} says nothing about the data")
    return Track(tuple(noise), prediction_of(scheduler), tuple(alphas), 0.0)


def probed(before: Any, plan: Plan, start: int, kwargs: Mapping[str, Any]) -> ProbedResponse:
    """From memory, if the same scheduler has run over the same grid."""
    settings = {k: v for k, v in kwargs.items() if isinstance(v, (bool, int, float, str))}
    config = sorted((k, repr(v)) for k, v in getattr(before, "config", {}).items())
    grid = plan.grid.tracks, plan.space
    key = (type(before), tuple(config), grid, start, tuple(sorted(settings.items())))
    if key not in KNOWN:
        try:
            KNOWN[key] = run_on_impulses(before, plan, start, settings)
        except NotLinear as error:
            KNOWN[key] = f"{type(before).__name__}: {error}"
        except Exception as error:  # a scheduler that does not take small tensors on the CPU
            reason = f"{type(before).__name__} could not be tried out"
            KNOWN[key] = f"{reason} ({type(error).__name__}: {error})"
        while len(KNOWN) > MOST_KNOWN:
            KNOWN.popitem(last=False)
    found = KNOWN[key]
    if isinstance(found, str):
        raise ValueError(found)
    return found


def run_on_impulses(
    before: Any, plan: Plan, start: int, settings: dict[str, Any]
) -> ProbedResponse:
    """Two copies of the scheduler, with and without impulses; what is left is their difference."""
    track = plan.track(0)
    maps = [track.data_map(n) for n in range(plan.steps)] if plan.space == "data" else None
    drawn, still = Trial(before, start, settings), Trial(before, start, settings)
    quiet: list[Tensor] = []

    def step(n: int, x: Tensor, output: Tensor) -> Tensor:
        if not quiet:
            quiet.append(torch.zeros_like(x))
        noise = quiet[0]
        quiet[0] = still.step(n, noise, quiet_output(n, noise))
        return drawn.step(n, x + noise, output + quiet_output(n, noise)) - quiet[0]

    def quiet_output(n: int, noise: Tensor) -> Tensor:
        a, b = (0.0, 1.0) if maps is None else maps[n]
        return -a * noise / b if b else torch.zeros_like(noise)

    def stored(x: Tensor) -> dict[tuple, Tensor]:
        others = stored_in(still.scheduler, x)
        return {path: t - others[path] for path, t in stored_in(drawn.scheduler, x).items()}

    return probe(step, stored, plan.steps, maps)


class Trial:
    """A copy of a scheduler on the CPU, whose noise comes from a seed and from no generator."""

    def __init__(self, before: Any, start: int, settings: dict[str, Any]):
        self.scheduler = copy.deepcopy(before)
        plain = without_hooks(vars(self.scheduler))
        vars(self.scheduler).clear()
        for name, value in plain.items():
            vars(self.scheduler)[name] = value.cpu() if isinstance(value, Tensor) else value
        self.times = self.scheduler.timesteps[start:]
        self.settings = settings | {"return_dict": False}
        self.random = torch.Generator().manual_seed(0)

    def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        takes = inspect.signature(self.scheduler.step).parameters
        more = {"generator": self.random} if "generator" in takes else {}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(n)
            return self.scheduler.step(output, self.times[n], x, **self.settings, **more)[0]


def memory_of(scheduler: Any, x: Tensor, stored: Sequence[tuple]) -> list[Tensor | None]:
    """x and what the scheduler stores, in the order of its response."""
    found = stored_in(scheduler, x)
    return [x, *(found.get(path) for path in stored)]
