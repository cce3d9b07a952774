"""One run: its output, its seconds, and the model calls that were really made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..hosts import accelerate
from ..hosts.hooks import Hooks, entrance
from ..report import Report
from .pipeline import Loaded


class Watch:
    """Counts and times the denoisers' real calls, until it is left.

    It stands where the seam does, outside hooks, offloading and compilation, and inside the seam:
    a skipped call does not reach it.
    """

    def __init__(self, denoisers: Sequence[nn.Module], tick: Callable[[int], Any]):
        self.denoisers, self.tick = denoisers, tick
        self.calls, self.seconds = 0, 0.0
        self._hooks, self._inside = Hooks(), False

    def __enter__(self) -> Watch:
        for module in self.denoisers:
            self._hooks.place(module, entrance(module), self._on_call)
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.lift()

    def _on_call(self, module: nn.Module, call: Callable, args: tuple, kwargs: dict) -> Any:
        if self._inside:  # one denoiser calls another: that is its own affair
            return call(*args, **kwargs)
        began, self._inside = now(), True
        try:
            return call(*args, **kwargs)
        finally:
            self._inside = False
            self.seconds += now() - began
            self.calls += 1
            self.tick(1)


def now() -> float:
    """The time when the device has done all that it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class Cost:
    """What one call took, and the reports of its runs where it was accelerated.

    share   of the seconds that were spent in the denoisers; None where they are not seen
    """

    seconds: float
    share: float | None
    calls: int
    reports: tuple[Report, ...]


def measure(
    loaded: Loaded,
    prompt: str | None,
    steps: int,
    seed: int,
    options: Mapping[str, Any] | None = None,
    tick: Callable[[int], Any] = lambda calls: None,
) -> tuple[Any, Cost]:
    """(output, cost) of one call from the seed's noise, accelerated where there are options.

    A host whose own loop counts the model's calls is run with every stage exact where there are
    none, which is bit for bit the plain run.
    """
    seen, accelerated = loaded.denoisers, options is not None
    if not seen and options is None:
        options = {"speedup": 1}
    with (
        Watch(seen, tick) as watch,  # left last: the seam stands outside it
        accelerate(loaded.host, **options) if options else nullcontext() as handle,
    ):
        torch.manual_seed(seed)  # some hosts draw from the global generator
        began = now()
        output = loaded(prompt, steps, seed)
        seconds = now() - began
        reports = tuple(handle.reports) if handle else ()
    share, calls = watch.seconds / seconds, watch.calls
    if not seen:
        counts = [r.evaluations if r.forwards is None else r.forwards for r in reports]
        share, calls = None, sum(counts)
        tick(calls)
    return output, Cost(seconds, share, calls, reports if accelerated else ())
