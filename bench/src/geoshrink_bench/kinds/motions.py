"""Motion: a stick figure that moves, and how far its joints are off."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoshrink.compare.kinds import Scores, measured
from geoshrink.page import Animation, Column, Media

from ..metrics import motion
from ..zoo.drawing import moving_figure

GLOBAL = Column("Global MPJPE", "mm", better="lower", digits=1)
ALIGNED = Column("RA-MPJPE", "mm", better="lower", digits=1)


@dataclass(frozen=True)
class Motions:
    """`joints` are (samples, frames, joints, 3) in metres, y up; `parents` of each, −1 the root's.

    names    of the joints, where they are known: L… and R… are drawn in two colours
    fps      frames a second
    lengths  frames of each sample that count, where what follows is padding; default: all
    """

    joints: Tensor
    parents: Sequence[int]
    names: Sequence[str] = ()
    fps: float = 20.0
    lengths: Sequence[int] | None = None

    noun, title, metrics = "motion", "Look", (GLOBAL, ALIGNED)

    def __post_init__(self) -> None:
        joints, parents = (
            torch.as_tensor(self.joints).detach().cpu(),
            [int(p) for p in self.parents],
        )
        if joints.ndim != 4 or joints.shape[-1] != 3 or not joints.numel():
            raise ValueError(
                f"motions are joints (samples, frames, joints, 3), got {tuple(joints.shape)}"
            )
        if len(parents) != joints.shape[2]:
            raise ValueError(f"{joints.shape[2]} joints need as many parents, got {len(parents)}")
        lengths = [joints.shape[1]] * len(joints) if self.lengths is None else [*self.lengths]
        if len(lengths) != len(joints) or not all(0 < n <= joints.shape[1] for n in lengths):
            raise ValueError(
                f"lengths are {len(joints)} numbers from 1 to {joints.shape[1]}, got {lengths}"
            )
        if not self.fps > 0:
            raise ValueError(f"frames per second must be above 0, got {self.fps!r}")
        object.__setattr__(self, "joints", joints)
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "parents", parents)

    def __len__(self) -> int:
        return len(self.joints)

    def is_finite(self) -> bool:
        return bool(self.joints.isfinite().all())

    def score(self, reference: Motions, skipped: set[str]) -> Scores:
        pair = self.joints, reference.joints
        metrics = zip(self.metrics, (motion.GLOBAL_MPJPE, motion.RA_MPJPE))
        return [
            measured(c, len(self), lambda m=m: m.of(*pair, self.lengths), skipped)
            for c, m in metrics
        ]

    def clip(self, i: int) -> np.ndarray:
        """Without its padding."""
        assert self.lengths is not None  # set above
        return self.joints[i, : self.lengths[i]].nan_to_num(0, 0, 0).double().numpy()

    def file(self, i: int) -> tuple[bytes, str]:
        """NumPy arrays: joints (frames, joints, 3), parents, names, fps."""
        length = None if self.lengths is None else self.lengths[i]
        buffer, kept = io.BytesIO(), self.joints[i][:length].numpy()
        told: dict[str, Any] = dict(parents=self.parents, names=list(self.names), fps=self.fps)
        np.savez_compressed(buffer, joints=kept, **told)
        return buffer.getvalue(), ".npz"

    def medium(self, i: int, alt: str, reference: Motions) -> Media:
        clip = self.clip(i)
        frames = moving_figure(clip, self.parents, reference.clip(i), self.names)
        return Animation.of(frames, alt, self.fps * len(frames) / len(clip), exact=True)
