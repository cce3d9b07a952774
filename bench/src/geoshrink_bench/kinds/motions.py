"""Motion: a stick figure at several instants, and how far its joints are off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoshrink.compare.kinds import Scores, measured
from geoshrink.page import Column, Media, Picture
from geoshrink.page.media import png

from ..metrics import motion
from ..zoo.drawing import draw_motion

GLOBAL = Column("Global MPJPE", "mm", better="lower", digits=1)
ALIGNED = Column("RA-MPJPE", "mm", better="lower", digits=1)


@dataclass(frozen=True)
class Motions:
    """`joints` are (samples, frames, joints, 3) in metres, y up; `parents` of each, −1 the root's.

    names   of the joints, where they are known: L… and R… are drawn in two colours
    """

    joints: Tensor
    parents: Sequence[int]
    names: Sequence[str] = ()

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
        object.__setattr__(self, "joints", joints)
        object.__setattr__(self, "parents", parents)

    def __len__(self) -> int:
        return len(self.joints)

    def is_finite(self) -> bool:
        return bool(self.joints.isfinite().all())

    def score(self, reference: Motions, skipped: set[str]) -> Scores:
        pair = self.joints, reference.joints
        metrics = zip(self.metrics, (motion.GLOBAL_MPJPE, motion.RA_MPJPE))
        return [measured(c, len(self), lambda m=m: m.of(*pair, None), skipped) for c, m in metrics]

    def medium(self, i: int, alt: str, reference: Any) -> Media:
        joints = self.joints[i].nan_to_num(0).double().numpy()
        return Picture(png(draw_motion(joints, self.parents, names=self.names)), alt)
