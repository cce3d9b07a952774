"""One run: its output, its seconds, and the model calls that were really made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from ..adapters import accelerate
from ..adapters.diffusers import find_denoisers
from ..report import Report
from .pipeline import parameters


class Watch:
    """Counts and times the denoisers' real calls, until it is left.

    It stands where the seam does, outside hooks, offloading and compilation, and inside the seam:
    a skipped call does not reach it.
    """

    def __init__(self, denoisers: Sequence[nn.Module], tick: Callable[[], Any]):
        self.denoisers, self.tick = denoisers, tick
        self.calls, self.seconds = 0, 0.0
        self._saved: list[tuple[nn.Module, str, Any]] = []
        self._inside = False

    def __enter__(self) -> Watch:
        for module in self.denoisers:
            compiled = getattr(module, "_compiled_call_impl", None) is not None
            name = "_compiled_call_impl" if compiled else "_call_impl"
            self._saved.append((module, name, vars(module).get(name)))
            vars(module)[name] = partial(self._call, getattr(module, name))
        return self

    def __exit__(self, *exception: object) -> None:
        for module, name, before in reversed(self._saved):
            vars(module).pop(name, None)
            if before is not None:
                vars(module)[name] = before

    def _call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._inside:  # one denoiser calls another: that is its own affair
            return call(*args, **kwargs)
        began, self._inside = now(), True
        try:
            return call(*args, **kwargs)
        finally:
            self._inside = False
            self.seconds += now() - began
            self.calls += 1
            self.tick()


def now() -> float:
    """The time when the device has done all that it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class Cost:
    """What one call took, and the report where it was accelerated."""

    seconds: float
    share: float  # of the seconds that were spent in the denoisers
    calls: int
    report: Report | None


def measure(
    pipe: Any,
    call: Mapping[str, Any],
    steps: int,
    seed: int,
    options: Mapping[str, Any] | None = None,
    tick: Callable[[], Any] = lambda: None,
) -> tuple[Any, Cost]:
    """(output, cost) of one call from the seed's noise, accelerated where there are options."""
    noise = torch.Generator().manual_seed(seed)
    own = {"num_inference_steps": steps, "generator": noise, "output_type": "np"}
    own = {name: value for name, value in own.items() if name in parameters(pipe)}
    with (
        Watch(find_denoisers(pipe), tick) as watch,  # left last: the seam stands outside it
        accelerate(pipe, **options) if options else nullcontext() as handle,
    ):
        torch.manual_seed(seed)  # some pipelines draw from the global generator
        began = now()
        output = pipe(**call, **own)
        seconds = now() - began
        report = handle.report if handle else None
    return output, Cost(seconds, watch.seconds / seconds, watch.calls, report)
