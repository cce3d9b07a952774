"""The response of a host's scheduler, read off a copy of it, and what its outputs say about data.

A copy is made before the first step and run on unit impulses on the CPU, with zeros for noise.
What is not linear, or not known, is left uncorrected, with its reason.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..plan import Plan
from ..solvers.response import EulerResponse, NotLinear, ProbedResponse, probe, stored_in
from ..track import Track
from .hooks import without_hooks
from .scheduling import EXPLODING, is_euler, is_flow, knows_data, numbers, prediction_of

#: Settings that bend the data prediction.
BENT = ("thresholding", "clip_sample")
#: Schedulers in σ whose x is (x₀ + σ·ε)/√(1 + σ²).
PRESERVING = ("DPMSolver", "DEIS", "UniPC", "SASolver")
NEAR = 1e-3  # of σ: the plan's grid is the scheduler's own


def solver_of(
    scheduler: Any, before: Any, plan: Plan, start: int, kwargs: Mapping[str, Any]
) -> tuple[list[EulerResponse] | list[ProbedResponse] | str, list[Track] | None]:
    """(response, levels) of a scheduler's steps; a ValueError says why there is none.

    before   a copy of the scheduler from before its first step, or why there is none
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
    replaced = [key for key, value in plain(scheduler).items() if takes_over(scheduler, key, value)]
    if replaced:
        raise ValueError(f"somebody has replaced {replaced[0]} of this {name}")
    levels = levels_of(scheduler, plan, start)
    if is_plain_euler(scheduler):
        if kwargs.get("s_churn"):
            raise ValueError(f"{name} adds noise (s_churn)")
        if plan.refine > 1:
            return "euler", None
        return [EulerResponse(plan.track(0), plan.space == "data")], [levels]
    if isinstance(before, str):
        raise ValueError(f"there is no copy of {name} to try out ({before})")
    return [run_on_impulses(before, plan, start, kwargs)], [levels]


def plain(scheduler: Any) -> dict[str, Any]:
    """A scheduler's attributes as they are without us."""
    return without_hooks(vars(scheduler))


def takes_over(scheduler: Any, name: str, value: Any) -> bool:
    """Whether an attribute takes the place of a method of the class."""
    return callable(value) and callable(getattr(type(scheduler), name, None))


def is_plain_euler(scheduler: Any) -> bool:
    """Whether the step is diffusers' own Euler step."""
    home = getattr(type(scheduler).step, "__module__", "")
    return is_euler(scheduler) and home.startswith("diffusers.")


def is_in_sigma(scheduler: Any, plan: Plan, start: int) -> bool:
    """Whether the plan's grid is the scheduler's own σ."""
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is None or len(sigmas) != len(scheduler.timesteps) + 1:
        return False
    own, planned = numbers(sigmas)[start + 1 :], plan.track(0).sigmas[1:]
    return all(abs(a - b) <= NEAR * max(abs(a), abs(b)) for a, b in zip(own, planned))


def levels_of(scheduler: Any, plan: Plan, start: int) -> Track:
    """α and σ of x at every stage, and what the output is."""
    name, own = type(scheduler).__name__, plan.track(0)
    products = getattr(scheduler, "alphas_cumprod", None)
    unknown = ValueError(f"it is not known what the outputs of {name} say about the data")
    if getattr(scheduler, "sigmas", None) is not None and not is_in_sigma(scheduler, plan, start):
        raise unknown
    if is_flow(scheduler):
        if not knows_data(scheduler):
            raise unknown
        if own.levels is None:
            raise ValueError(f"it is not known where the data is on the grid of {name}")
        return own
    if name.startswith(EXPLODING):
        return own
    if name.startswith(PRESERVING):
        alphas = [1 / math.sqrt(1 + s**2) for s in own.sigmas]
        noise = [s * a for s, a in zip(own.sigmas, alphas)]
    elif products is not None and getattr(scheduler, "sigmas", None) is None:
        times = torch.as_tensor(scheduler.timesteps).long().cpu()[start : start + plan.steps]
        kept = [*torch.as_tensor(products).double().cpu()[times].tolist(), 1.0]
        alphas, noise = [math.sqrt(k) for k in kept], [math.sqrt(1 - k) for k in kept]
    else:
        raise unknown
    if min(alphas) == 0:
        raise ValueError(f"the first output of {name} says nothing about the data")
    return Track(tuple(noise), prediction_of(scheduler), tuple(alphas), 0.0)


def run_on_impulses(
    before: Any, plan: Plan, start: int, kwargs: Mapping[str, Any]
) -> ProbedResponse:
    """Remembered for schedulers in the same state: trying one out takes as long as a small step."""
    settings = {k: v for k, v in kwargs.items() if isinstance(v, (bool, int, float, str))}
    others = [k for k, v in kwargs.items() if k not in settings and not is_idle(v)]
    if others:
        raise ValueError(f"{type(before).__name__}.step is given {', '.join(others)}")
    settings["return_dict"] = False
    track, data = plan.track(0), plan.space == "data"
    how = track, data, start, tuple(sorted(settings.items()))
    bare = object.__new__(type(before))
    vars(bare).update(plain(before))
    try:
        known = Copy((class_state(type(bare)), frozen(vars(bare))), bare)
    except TypeError:
        return try_out(bare, *how)
    return tried(known, *how)


@dataclass(frozen=True)
class Copy:
    """A scheduler from before its first step, told apart by its state."""

    state: tuple
    scheduler: Any = field(compare=False)


@lru_cache(maxsize=64)
def tried(before: Copy, *how: Any) -> ProbedResponse:
    return try_out(before.scheduler, *how)


def is_idle(setting: Any) -> bool:
    """Whether it says nothing to a run on impulses, in which noise is 0."""
    generators = setting if isinstance(setting, (list, tuple)) else [setting]
    return all(each is None or isinstance(each, torch.Generator) for each in generators)


def class_state(kind: type) -> tuple:
    """What a class and those that it is derived from say now: somebody may have changed them. What
    their functions find in modules and closures is not seen.
    """
    found = []
    for base in kind.__mro__[:-1]:
        for name, value in vars(base).items():
            plain = isinstance(value, (bool, int, float, str))
            found.append((base, name, value if plain else id(value)))
    return tuple(found)


def frozen(value: Any) -> Any:
    """The same as something that can be hashed; a TypeError where that cannot be."""
    if isinstance(value, Tensor):
        numbers = value.detach().cpu()
        numbers = numbers.float() if numbers.dtype == torch.bfloat16 else numbers
        return value.dtype, frozen(numbers.numpy())
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, Mapping):
        return tuple((type(name), name, frozen(part)) for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, *map(frozen, value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value).__name__, value
    raise TypeError(f"a {type(value).__name__} has no state that can be compared")


def try_out(before: Any, track: Track, data: bool, start: int, settings: tuple) -> ProbedResponse:
    maps = [track.data_map(n) for n in range(track.steps)] if data else None
    name = type(before).__name__

    def make() -> tuple[Any, Callable[[int, Tensor, Tensor], Tensor]]:
        scheduler = copy.deepcopy(before)
        own = {k: v.cpu() for k, v in vars(scheduler).items() if isinstance(v, Tensor)}
        vars(scheduler).update(own)
        times = scheduler.timesteps[start:]

        def step(n: int, x: Tensor, output: Tensor) -> Tensor:
            return scheduler.step(output, times[n], x, **dict(settings))[0]

        return scheduler, step

    try:
        with Quiet(), torch.device("cpu"):
            return probe(make, track.steps, maps)
    except NotLinear as error:
        raise ValueError(f"{name}: {error}") from None
    except Exception as error:  # a scheduler that does not take small tensors on the CPU
        raise ValueError(
            f"{name} could not be tried out ({type(error).__name__}: {error})"
        ) from None


class Quiet(TorchFunctionMode):
    """In this thread noise is 0, and comes from no generator."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        kwargs.pop("generator", None)
        if func is torch.randn_like:
            return torch.zeros_like(*args, **kwargs)
        if func is torch.randn:
            return torch.zeros(*args, **kwargs)
        if func in RANDOM:
            raise NotLinear(f"it draws its noise by {func.__name__}")
        return func(*args, **kwargs)


RANDOM = (torch.rand, torch.rand_like, torch.randint, torch.normal, torch.bernoulli)


def memory_of(scheduler: Any, x: Tensor, stored: Sequence[tuple]) -> list[Tensor | None]:
    """x and what the scheduler stores, in the order of its response."""
    found = stored_in(scheduler, x)
    return [x, *(found.get(path) for path in stored)]
