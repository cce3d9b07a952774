"""What guidance remembers of earlier outputs, kept right over skipped stages.

Adaptive projected guidance keeps a running average of the difference between its branches, in a
guider (a component of the host) or in a variable of the host's method that loops. At a skipped
stage, where there is no difference, it is left alone; at the next exact one it is first fed, for
every stage it missed, a difference between the two exact ones (benchmarks/apg.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor

from .hooks import Hooks
from .stack import variables_of


class Memory:
    """The running averages of one loop."""

    def __init__(self, parts: list[Any], method: str = "__call__"):
        self.holders = [part for part in parts if hasattr(part, "momentum_buffer")]
        self.method, self.skipping = method, False
        self.averages: dict[int, Average] = {}
        self.hooks, self.thread = Hooks(), threading.get_ident()
        self.bytes = 0  # the most that was held

    def open_stage(self, host: Any, skipping: bool) -> None:
        self.skipping = skipping
        found = [holder.momentum_buffer for holder in self.holders]
        for each in (*found, *variables_of(host, self.method).values()):
            if hasattr(each, "running_average") and id(each) not in self.averages:
                self.averages[id(each)] = average = Average(self)
                self.hooks.place(each, "update", average.on_update)
        kept = [average.last for average in self.averages.values()]
        self.bytes = max(self.bytes, sum(last.nbytes for last in kept if last is not None))

    def release(self) -> None:
        self.hooks.lift()
        self.averages = {}


class Average:
    """One running average, its update() taken over."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self.last: Tensor | None = None  # the latest exact difference
        self.missed = 0

    def on_update(self, owner: Any, plain: Callable, args: tuple, kwargs: dict) -> Any:
        if threading.get_ident() != self.memory.thread:
            return plain(*args, **kwargs)
        (update_value,) = (*args, *kwargs.values())
        if self.memory.skipping:
            self.missed += 1
            return
        last = self.last
        if last is None or last.shape != update_value.shape:
            last = update_value
        for k in range(1, self.missed + 1):
            plain(last + k / (self.missed + 1) * (update_value - last))
        plain(update_value)
        self.last, self.missed = update_value, 0
