"""Distances between motions: joints (batch, frames, joints, 3) in metres, one number per clip.

All are means over frames and joints, the root included, of ‖e‖ or ‖Δe‖ with e = joints − reference.
Δ is between successive frames, so that a speed is per frame, not per second. Of clip i the first
lengths[i] frames count; what follows is padding, which never does, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from geoshrink.compare.likeness import check_finite

from .base import Metric

Lengths = Sequence[int] | None


ROOT = 0  # the joint


def compared(
    joints: Tensor, reference: Tensor, lengths: Lengths, least: int = 1
) -> tuple[Tensor, Tensor]:
    """joints − reference, and how many frames of each clip count; each needs `least` of them."""
    shape = tuple(joints.shape)
    if shape != reference.shape or len(shape) != 4 or shape[-1] != 3 or 0 in shape[1:]:
        raise ValueError(
            f"needs two batches of joints of one shape (batch, frames, joints, 3), got "
            f"{shape} and {tuple(reference.shape)}"
        )
    batch, frames = shape[:2]
    counts = [frames] * batch if lengths is None else list(lengths)
    if len(counts) != batch or not all(n in range(1, frames + 1) for n in counts):
        raise ValueError(f"lengths must be {batch} numbers from 1 to {frames}, got {counts}")
    if min(counts, default=least) < least:
        what = {2: "a velocity", 3: "an acceleration"}[least]
        raise ValueError(f"{what} needs clips of at least {least} frames, got lengths {counts}")
    known = torch.tensor(counts, device=joints.device)
    padding = ~valid(frames, known)[:, :, None, None]
    for values, what in ((joints, "clip"), (reference, "reference")):
        check_finite("joints", values.masked_fill(padding, 0), what)
    return joints.double() - reference.double(), known


def valid(frames: int, counts: Tensor) -> Tensor:
    """(batch, frames): which are not padding."""
    return torch.arange(frames, device=counts.device) < counts[:, None]


def mean_norm(e: Tensor, counts: Tensor) -> Tensor:
    """The mean over joints and the first counts[i] frames of ‖e‖, e (batch, frames, joints, 3)."""
    each = e.norm(dim=-1).mean(2)
    return each.where(valid(e.shape[1], counts), 0).sum(1) / counts


def error(
    name: str, unit: str, scale: float, of: Callable[[Tensor], Tensor], least: int = 1
) -> Metric:
    """scale · the mean of ‖of(e)‖; `of` leaves frames − least + 1 of the frames."""

    def measured(joints: Tensor, reference: Tensor, lengths: Lengths = None) -> Tensor:
        e, counts = compared(joints, reference, lengths, least)
        return scale * mean_norm(of(e), counts - (least - 1))

    return Metric(name, unit, False, measured)


MPJPE = error("MPJPE", "cm", 100, lambda e: e)  # Ionescu et al., 2014: nothing is aligned
GLOBAL_MPJPE = error("Global MPJPE", "mm", 1000, lambda e: e)
# in every frame both roots are moved to the origin
RA_MPJPE = error("RA-MPJPE", "mm", 1000, lambda e: e - e[:, :, [ROOT]])
ROOT_ERR = error("RootErr", "mm", 1000, lambda e: e[:, :, [ROOT]])
# of vectors, so that a wrong direction counts too
VEL_ERR = error("VelErr", "mm/frame", 1000, lambda e: e.diff(dim=1), least=2)
# Kanazawa et al., 2019
ACC_ERR = error("AccErr", "mm/frame²", 1000, lambda e: e.diff(n=2, dim=1), least=3)
