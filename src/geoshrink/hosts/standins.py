"""What a skipped denoiser call returns, and by what calls and outputs are told apart."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..outputs import children


def shapes(value: Any, dtypes: bool = True) -> Any:
    """The shapes (and dtypes) of all tensors in a value, and which numbers are zero, hashable."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype if dtypes else None
    if isinstance(value, (bool, int, float)):
        return bool(value)
    split = children(value)
    return None if split is None else tuple(shapes(part, dtypes) for part in split[0])


def hollow(value: Any) -> Any:
    """The value with ones that take no memory in place of its tensors."""
    if isinstance(value, Tensor):
        return value.new_ones(()).expand(value.shape)
    split = children(value)
    if split is None:
        return value
    parts = [hollow(part) for part in split[0]]
    return split[1](parts)(parts)
