"""Distances between shapes given as signed distance fields (batch, side, side, side)."""

from __future__ import annotations

from torch import Tensor


def sdf_error(fields: Tensor, reference: Tensor) -> Tensor:
    """Mean |Δ| of the truncated signed distance, per shape, in the field's own unit."""
    if fields.shape != reference.shape or fields.ndim != 4:
        raise ValueError(
            f"sdf_error needs two batches of fields of one shape (batch, side, side, side), got "
            f"{tuple(fields.shape)} and {tuple(reference.shape)}"
        )
    return (fields.double() - reference.double()).abs().mean((1, 2, 3))
