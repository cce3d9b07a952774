"""Reject NaN and infinite inputs."""

from __future__ import annotations

from torch import Tensor


def check_finite(name: str, values: Tensor, what: str) -> None:
    """Refuses a batch in which values of some sample are NaN or infinite, and says which."""
    bad = (~values.isfinite()).flatten(1).sum(1)
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"{name}: {int(bad[i])} values of {what} {i} are no finite numbers")
