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


def mpjpe(joints: Tensor, reference: Tensor, lengths: Lengths = None) -> Tensor:
    """Global MPJPE (Ionescu et al., 2014) in metres: the mean of ‖e‖, nothing aligned."""
    e, counts = compared(joints, reference, lengths)
    return mean_norm(e, counts)


def ra_mpjpe(joints: Tensor, reference: Tensor, lengths: Lengths = None, root: int = 0) -> Tensor:
    """Root-aligned MPJPE in metres: in every frame both roots are moved to the origin."""
    e, counts = compared(joints, reference, lengths)
    return mean_norm(e - e[:, :, [root]], counts)


def root_error(joints: Tensor, reference: Tensor, lengths: Lengths = None, root: int = 0) -> Tensor:
    """Mean distance of the root from its reference, in metres."""
    e, counts = compared(joints, reference, lengths)
    return mean_norm(e[:, :, [root]], counts)


def velocity_error(joints: Tensor, reference: Tensor, lengths: Lengths = None) -> Tensor:
    """The mean of ‖Δe‖, in metres per frame: of vectors, so a wrong direction counts too."""
    e, counts = compared(joints, reference, lengths, least=2)
    return mean_norm(e.diff(dim=1), counts - 1)


def acceleration_error(joints: Tensor, reference: Tensor, lengths: Lengths = None) -> Tensor:
    """The mean of ‖Δ²e‖ (Kanazawa et al., 2019), in metres per frame²."""
    e, counts = compared(joints, reference, lengths, least=3)
    return mean_norm(e.diff(n=2, dim=1), counts - 2)


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


def in_mm(of: Callable[[Tensor, Tensor, Lengths], Tensor]) -> Callable[..., Tensor]:
    return lambda joints, reference, lengths=None: 1000 * of(joints, reference, lengths)


MPJPE = Metric("MPJPE", "cm", False, lambda j, r, lengths: 100 * mpjpe(j, r, lengths))
RA_MPJPE = Metric("RA-MPJPE", "mm", False, in_mm(ra_mpjpe))
GLOBAL_MPJPE = Metric("Global MPJPE", "mm", False, in_mm(mpjpe))
ROOT_ERR = Metric("RootErr", "mm", False, in_mm(root_error))
VEL_ERR = Metric("VelErr", "mm/frame", False, in_mm(velocity_error))
ACC_ERR = Metric("AccErr", "mm/frame²", False, in_mm(acceleration_error))
