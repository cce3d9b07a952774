"""Seats: where the runs of a host learn, told apart by its weights and by how it is steered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ..adapters import plain
from ..learning.learning import Seat
from .steering import SETTINGS

SMALL, LETTERS = 16, 60  # numbers of a tensor, and letters of a setting, that are told as they are


def seat_of(options: Mapping[str, Any], modules: Sequence[nn.Module], words: str) -> Seat | None:
    """None where nothing is to be learned."""
    learning = options.get("learn")
    return None if learning is None else learning.at(modules, words)


def words_of(*namespaces: Mapping[str, Any]) -> str:
    """The guidance and the scales among a host's variables and attributes, as words."""
    found = {}
    for names in namespaces:
        for name, value in names.items():
            if any(word in name for word in SETTINGS):
                found.setdefault(name.lstrip("_"), told(value))
    return ", ".join(f"{name}={value}" for name, value in sorted(found.items()) if value)


def told(value: Any) -> str:
    """A setting in a few letters; of a small tensor its numbers, which waits for the device."""
    if isinstance(value, Tensor):  # one number for each picture: how many there are says nothing
        few = 0 < value.numel() <= SMALL
        value = sorted({*value.detach().flatten().tolist()}) if few else None
    words = "" if value is None or plain(value) is None else str(plain(value))
    return words if len(words) <= LETTERS else hashlib.sha256(words.encode()).hexdigest()[:8]
