"""The methods by name, each made for a budget: METHODS[name](options, training, budget).

`training` gives other cases of the same setting, for methods that calibrate or tune a threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import Case, Method
from .fora import Fora

Make = Callable[[dict[str, Any], Callable[[], list[Case]], int], Method]


def plain(kind: Callable[..., Method], **fixed: Any) -> Make:
    """A method that needs nothing beforehand."""
    return lambda options, training, budget: kind(**{**fixed, **options})


METHODS: dict[str, Make] = {"FORA": plain(Fora)}
