"""What a guider remembers of earlier outputs, kept safe from the stand-ins of skipped stages.

Adaptive projected guidance keeps a running average of the difference between its branches, in a
guider (a component of the host) or in a variable of the host's __call__.
"""

from __future__ import annotations

from typing import Any

from .stack import stack


class Memory:
    """A host's running averages: save() before a skipped stage, restore() before its step."""

    def __init__(self, parts: list[Any]):
        self.holders = [part for part in parts if hasattr(part, "momentum_buffer")]
        self.saved: list[tuple[Any, dict[str, Any]]] = []

    def save(self, host: Any) -> None:
        found = [holder.momentum_buffer for holder in self.holders] + variables_of(host)
        averages = {id(each): each for each in found if hasattr(each, "running_average")}
        self.saved = [(average, dict(vars(average))) for average in averages.values()]

    def restore(self) -> None:
        for average, before in self.saved:
            vars(average).update(before)
        self.saved = []


def variables_of(host: Any) -> list[Any]:
    """The variables of the host's __call__, where it is running."""
    for frame in stack():
        if frame.f_code.co_name == "__call__" and frame.f_locals.get("self") is host:
            return list(frame.f_locals.values())
    return []
