"""Tiny diffusers pipelines, and how tests call, count and watch them."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoshrink import Handle, Report, accelerate

image: Any = pytest.importorskip("hosts.image")
video: Any = pytest.importorskip("hosts.video")
STEPS, BUDGET = 12, 6
EARLY = [0, 1, 2, 3, 11]


class Stop(Exception):
    """A fault that a test raises."""


def tiny(name: str) -> tuple[Any, dict[str, Any]]:
    table = image if name in image.PIPELINES else video
    return table.PIPELINES[name]()


def call(pipe: Any, kwargs: dict[str, Any], steps: int = STEPS, **more: Any) -> Tensor:
    torch.manual_seed(0)
    given = {"num_inference_steps": steps, "generator": torch.Generator().manual_seed(0)}
    return image.tensor(pipe(**{**kwargs, **given, **more}))


def reported(handle: Handle) -> Report:
    assert handle.report is not None
    return handle.report


@contextlib.contextmanager
def accelerated(pipe: Any, **options: Any) -> Iterator[Handle]:
    """accelerate() for a while; the reports can be read afterwards."""
    handle, kept = accelerate(pipe, **options), []
    try:
        yield Handle(lambda: kept or handle.reports, handle.remove)
    finally:
        kept += handle.reports
        handle.remove()


def counted(module: nn.Module) -> list[int]:
    """Grows by one with every forward call of the module."""
    calls: list[int] = []
    module.register_forward_pre_hook(lambda module, args: calls.append(len(calls)))
    return calls


def received(monkeypatch: pytest.MonkeyPatch, scheduler: Any) -> list[tuple[Tensor, Tensor]]:
    """(model output, sample) of every call that really steps, on this scheduler or on another that
    has its place; not on copies that are tried out, which are given double precision.
    """
    seen: list[tuple[Tensor, Tensor]] = []
    plain = type(scheduler).step

    @functools.wraps(plain)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(plain).bind(self, *args, **kwargs).arguments
        if bound["sample"].dtype != torch.float64:
            seen.append((bound["model_output"].clone(), bound["sample"].clone()))
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(type(scheduler), "step", step)
    return seen


def marks(pipe: Any) -> dict[str, set[str]]:
    """The names that every part of a pipeline carries; a scheduler's own counters are left out."""
    modules = {k: set(vars(p)) for k, p in pipe.components.items() if isinstance(p, nn.Module)}
    ours = {"step", "set_timesteps"} & set(vars(pipe.scheduler))
    return modules | {"scheduler": ours}


def intercepted(pipe: Any) -> bool:
    parts = [p for p in pipe.components.values() if isinstance(p, nn.Module)]
    return any({"_call_impl", "_compiled_call_impl"} & set(vars(p)) for p in parts)


def after(stage: int, act: Callable[[Any], Any]) -> Callable[..., dict]:
    """A callback that acts once the step of a stage is made."""

    def callback(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        if i == stage:
            act(pipe)
        return tensors

    return callback


class Sampler:
    """Somebody's own pipeline, with a network that diffusers does not know."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.scheduler, self.net = image.flow(), nn.Linear(4, 4)

    def __call__(self) -> Tensor:
        return sampled(self.scheduler, self.net)


def sampled(scheduler: Any, net: nn.Module, fail_after: int | None = None) -> Tensor:
    scheduler.set_timesteps(STEPS)
    x = torch.ones(2, 4)
    with torch.no_grad():
        for i, t in enumerate(scheduler.timesteps):
            x = scheduler.step(net(x), t, x).prev_sample
            if i == fail_after:
                raise Stop
    return x
