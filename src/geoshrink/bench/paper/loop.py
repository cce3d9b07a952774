"""The sampling loop of one call of a pipeline: its seconds alone, its forwards, its stages.

The loop lasts from the first call of the network to the end of the last step of a scheduler, so
that encoding and decoding are left out. It is timed on the device's own clock, and nothing waits
for the device in between.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Loop:
    """Watches a network and its schedulers until it is left; opened() is called as a stage begins.

    It stands inside geoshrink's own seam: a skipped forward does not reach it.
    """

    def __init__(
        self,
        network: nn.Module,
        schedulers: Sequence[Any],
        device: torch.device,
        opened: Callable[[], Any] = lambda: None,
    ):
        self.network, self.schedulers = network, schedulers
        self.device, self.opened = device, opened
        self.forwards = self.stages = 0
        self.latents: dict[int, Tensor] = {}  # of each scheduler, after its last step
        self.between = True  # the network was not called since the last step
        self.first: Any = None
        self.last: Any = None
        self.saved: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Loop:
        compiled = getattr(self.network, "_compiled_call_impl", None) is not None
        self.hook(self.network, "_compiled_call_impl" if compiled else "_call_impl", self.called)
        for scheduler in self.schedulers:
            self.hook(scheduler, "step", functools.partial(self.stepped, id(scheduler)))
        return self

    def __exit__(self, *exception: object) -> None:
        for owner, name, before in reversed(self.saved):
            vars(owner).pop(name, None)
            if before is not None:
                vars(owner)[name] = before

    def hook(self, owner: Any, name: str, handler: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return handler(original, *args, **kwargs)

        self.saved.append((owner, name, vars(owner).get(name)))
        vars(owner)[name] = call

    def called(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.first is None:
            self.first = self.mark()
        if self.between:
            self.stages, self.between = self.stages + 1, False
            self.opened()
        self.forwards += 1
        return original(*args, **kwargs)

    def stepped(self, key: int, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        self.between, self.last = True, self.mark()
        self.latents[key] = result[0] if isinstance(result, tuple) else result.prev_sample
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
            raise RuntimeError("the pipeline never called its network, or stepped no scheduler")
        if self.device.type != "cuda":
            return self.last - self.first
        self.last.synchronize()
        return self.first.elapsed_time(self.last) / 1000
