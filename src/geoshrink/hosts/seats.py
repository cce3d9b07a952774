"""Seats: where the runs of a host learn, told apart by its weights and by how it is steered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from ..learning.learning import Seat
from .steering import SETTINGS


def seat_of(options: Mapping[str, Any], modules: Sequence[nn.Module], words: str) -> Seat | None:
    """None where nothing is to be learned."""
    learning = options.get("learn")
    return None if learning is None else learning.at(modules, words)


def words_of(*namespaces: Mapping[str, Any]) -> str:
    """The guidance and the scales among a host's variables and attributes, as words."""
    found = {}
    for names in namespaces:
        for name, value in names.items():
            told = isinstance(value, (bool, int, float, str)) and len(str(value)) < 80
            if told and any(word in name for word in SETTINGS):
                found.setdefault(name.lstrip("_"), value)
    return ", ".join(f"{name}={found[name]}" for name in sorted(found))
