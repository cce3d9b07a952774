"""The sampling loop of one run of a model: its seconds alone, its forwards, its stages.

The loop lasts from the first call of the network to the last return of what ends a step (or the
whole loop), so that encoding and decoding are left out. It is timed on the device's own clock, and
nothing waits for the device in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from geoshrink.hosts.hooks import through

from ..methods.stack import replaced


class Loop:
    """Watches a network and what ends its steps until it is left.

    enter     (owner, method) by which the network is called
    ends      (owner, method) of everything whose return ends a step
    opened    called as a stage begins

    It stands inside geoshrink's own seam: a skipped forward does not reach it.
    """

    def __init__(
        self,
        enter: tuple[Any, str],
        ends: Sequence[tuple[Any, str]],
        device: torch.device,
        opened: Callable[[], Any] = lambda: None,
    ):
        self.enter, self.ends = enter, ends
        self.device, self.opened = device, opened
        self.forwards = self.stages = 0
        self.between = True  # the network was not called since the last step
        self.first: Any = None
        self.last: Any = None
        self.hooks = ExitStack()

    def __enter__(self) -> Loop:
        hooks = [(*self.enter, self.called), *((*end, self.stepped) for end in self.ends)]
        for owner, name, handler in hooks:
            self.hooks.enter_context(
                replaced(owner, name, through(handler, owner, getattr(owner, name)))
            )
        return self

    def __exit__(self, *exception: object) -> None:
        self.hooks.close()

    def called(self, owner: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        if self.first is None:
            self.first = self.mark()
        if self.between:
            self.stages, self.between = self.stages + 1, False
            self.opened()
        self.forwards += 1
        return original(*args, **kwargs)

    def stepped(self, owner: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        result = original(*args, **kwargs)
        self.between, self.last = True, self.mark()
        return result

    def mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    @property
    def seconds(self) -> float:
        if self.first is None or self.last is None:
            raise RuntimeError("the model never called its network, or ended no step")
        if self.device.type != "cuda":
            return self.last - self.first
        self.last.synchronize()
        return self.first.elapsed_time(self.last) / 1000
