"""What guidance remembers of earlier outputs, kept right over skipped stages.

Adaptive projected guidance keeps a running average of the difference between its branches, in a
guider (a component of the host) or in a variable of the host's method that loops. At a skipped
stage, where there is no difference, it is left alone; at the next exact one it is first fed, for
every stage it missed, a difference between the two exact ones (benchmarks/apg.md).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .stack import variables_of


class Memory:
    """The running averages of one loop."""

    def __init__(self, parts: list[Any], method: str = "__call__"):
        self.holders = [part for part in parts if hasattr(part, "momentum_buffer")]
        self.method, self.skipping = method, False
        self.averages: dict[int, Average] = {}
        self.bytes = 0  # the most that was held

    def open_stage(self, host: Any, skipping: bool) -> None:
        self.skipping = skipping
        found = [holder.momentum_buffer for holder in self.holders]
        for each in (*found, *variables_of(host, self.method).values()):
            if hasattr(each, "running_average") and id(each) not in self.averages:
                self.averages[id(each)] = Average(each, self)
        kept = [average.last for average in self.averages.values()]
        self.bytes = max(self.bytes, sum(last.nbytes for last in kept if last is not None))

    def release(self) -> None:
        for average in self.averages.values():
            vars(average.owner).pop("update", None)
        self.averages = {}


class Average:
    """One running average, its update() taken over."""

    def __init__(self, owner: Any, memory: Memory):
        self.owner, self.memory, self.plain = owner, memory, owner.update
        self.last: Tensor | None = None  # the latest exact difference
        self.missed = 0
        owner.update = self.update

    def update(self, update_value: Tensor) -> None:
        if self.memory.skipping:
            self.missed += 1
            return
        last = self.last
        if last is None or last.shape != update_value.shape:
            last = update_value
        for k in range(1, self.missed + 1):
            self.plain(last + k / (self.missed + 1) * (update_value - last))
        self.plain(update_value)
        self.last, self.missed = update_value, 0
