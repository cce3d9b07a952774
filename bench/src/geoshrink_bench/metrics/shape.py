"""Distances between shapes given as signed distance fields, or as points."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from geoshrink.compare.likeness import check_finite

from .base import Metric, Skipped, library


def sdf_error(fields: Tensor, reference: Tensor) -> Tensor:
    """Mean |Δ| of the truncated signed distance, per shape, in the field's own unit.

    Both are (batch, side, side, side).
    """
    if fields.shape != reference.shape or fields.ndim != 4:
        raise ValueError(
            f"sdf_error needs two batches of fields of one shape (batch, side, side, side), got "
            f"{tuple(fields.shape)} and {tuple(reference.shape)}"
        )
    check_finite("sdf_error", fields, "field")
    check_finite("sdf_error", reference, "reference")
    return (fields.double() - reference.double()).abs().mean((1, 2, 3))


def cd2(points: Any, reference: Any) -> float:
    """Squared chamfer distance of points (n, 3) and (m, 3) (Fan et al., 2017), in their unit².

    Mean over x of min ‖x − y‖², plus mean over y of min ‖x − y‖²: the sum of both ways, not half.
    """
    there, back = nearest(points, reference), nearest(reference, points)
    return float((there**2).mean() + (back**2).mean())


def nearest(points: Any, reference: Any) -> np.ndarray:
    """How far each point is from the nearest one of the reference."""
    tree = library("scipy.spatial").KDTree(checked(reference))
    return tree.query(checked(points))[0]


def checked(points: Any) -> np.ndarray:
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"needs points of shape (n, 3), got {array.shape}")
    if not len(array):
        raise Skipped("there are no points")
    bad = int((~np.isfinite(array)).any(1).sum())
    if bad:
        raise ValueError(f"{bad} of {len(array)} points are not finite")
    return array


SDF = Metric("SDF error", "‰", False, lambda f, r, _: 1000 * sdf_error(f, r))
