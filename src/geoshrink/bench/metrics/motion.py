"""Distances between motions: joints (batch, frames, joints, 3) in metres."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def mpjpe(joints: Tensor, reference: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
    """Mean distance of a joint from its reference, per clip, in metres: Global MPJPE.

    lengths     frames of each clip that count; the others are padding
    """
    if joints.shape != reference.shape or joints.ndim != 4 or joints.shape[-1] != 3:
        raise ValueError(
            f"mpjpe needs two batches of joints of one shape (batch, frames, joints, 3), got "
            f"{tuple(joints.shape)} and {tuple(reference.shape)}"
        )
    if lengths is not None and (
        len(lengths) != len(joints) or not all(0 < n <= joints.shape[1] for n in lengths)
    ):
        raise ValueError(
            f"lengths must be {len(joints)} numbers from 1 to {joints.shape[1]}, got {lengths}"
        )
    off = (joints.double() - reference.double()).norm(dim=-1).mean(2)  # (batch, frames)
    counts = torch.tensor(lengths or [off.shape[1]] * len(off), device=off.device)
    valid = torch.arange(off.shape[1], device=off.device) < counts[:, None]
    return (off * valid).sum(1) / counts
