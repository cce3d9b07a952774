"""What a method finds on a training case once, whatever its options and its budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .base import Case

Found = TypeVar("Found")


def once(case: Case, key: Any, find: Callable[[], Found]) -> Found:
    """find(), the first time that this key is asked for on this case."""
    found = vars(case).setdefault("found_once", {})
    if key not in found:
        found[key] = find()
    return found[key]
