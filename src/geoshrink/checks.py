"""Small checks of what people pass in. Every error quotes the input."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np


def whole(value: object, what: str) -> int:
    """The value as a plain integer; True and 10.0 are refused."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be an integer, got {value!r}") from None


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "ndim") and value.ndim == 0)


def check_switch(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{what} is True or False, got {value!r}")


def check_coefficients(
    coefficients: Sequence[float | None], steps: int
) -> tuple[float | None, ...]:
    """One finite ω, or None, for each of so many stages."""
    if len(coefficients) != steps:
        raise ValueError(
            f"{len(coefficients)} coefficients for {steps} stages: give one per stage (None: the "
            "rule)"
        )
    for c in coefficients:
        if c is not None and not (is_number(c) and math.isfinite(c)):
            raise ValueError(f"coefficients must be finite, got {c!r}")
    return tuple(None if c is None else float(c) for c in coefficients)
