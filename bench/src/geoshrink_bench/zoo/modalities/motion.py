"""Motion: (features, frames), of variable length, zero where it is padding.

A frame is the hips' horizontal speed and height, then one vector per bone from its parent joint,
all standardised. Bones of no length are left out, and do not stretch: values() gives each bone
its mean length over the clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoshrink.compare.kinds import Made, kind_of

from ...metrics.measured import Measured
from ...metrics.motion import ACC_ERR, GLOBAL_MPJPE, MPJPE, RA_MPJPE, ROOT_ERR, VEL_ERR
from ..drawing import draw_motion
from .base import Data, Facts, Lengths, Modality, column
from .judging import RECOGNISED, Finding, Samples

SHORTEST = 24  # frames; clips are cropped to anything from here to their whole


SHEET = ("walk", "run", "jump", "danc", "kick", "box", "sit", "march")  # known at a glance
STRETCH = 0.03  # of a bone, at most
MARGIN = 0.05  # metres below and above the data's range of heights


class Motion(Modality):
    axes, varies, count, columns = 4, True, len(SHEET), 1
    sheet_lengths = (64, 64, 48, 64, 32, 48, 64, 64)
    drawn_with = ("parents", "joint_names")
    legend = (
        "Ten instants each, time to the right; left limbs orange, right limbs blue, the ground "
        "grey. People are set apart where they would overlap."
    )

    def read(self, path: Path) -> Data:
        with np.load(path) as archive:
            joints = torch.from_numpy(archive["joints"].astype(np.float32))
            labels = torch.from_numpy(archive["labels"].astype(np.int64))
            classes = [str(name) for name in archive["label_names"]]
            names, parents = archive["joint_names"].tolist(), archive["parents"].tolist()
        lengths = (joints - joints[:, :, parents]).norm(dim=-1).mean((0, 1))
        bones = [j for j in range(1, len(parents)) if lengths[j] > 1e-3]
        features = features_of(joints, parents, bones)
        mean, std = features.mean((0, 2)), features.std((0, 2)).clamp(min=1e-3)
        facts = dict(fps=20, joint_names=names, parents=parents, bones=bones)
        facts |= dict(mean=mean.tolist(), std=std.tolist())
        return Data(((features - mean[:, None]) / std[:, None],), labels, classes, facts)

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        x = data.parts[0][pick]
        frames = torch.arange(x.shape[2], device=x.device)
        most = x.shape[2]
        shortest = min(SHORTEST, most)
        length = torch.randint(shortest, 2 * most - shortest, (len(x),), device=x.device)
        length = length.clamp(max=most)  # half of the clips are whole
        start = (torch.rand(len(x), device=x.device) * (most - length + 1)).long()
        at = (frames + start[:, None]) % most
        x = x.gather(2, at[:, None].expand_as(x))
        return (x * (frames < length[:, None])[:, None],), length

    def values(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Tensor:
        """Joints in metres, (batch, frames, joints, 3), from the origin; zero where padding is."""
        frames = torch.arange(x.shape[2], device=x.device)
        most = torch.tensor(lengths or [x.shape[2]] * len(x), device=x.device)
        valid = (frames < most[:, None])[:, :, None, None]
        features = x.float() * column(facts["std"], x) + column(facts["mean"], x)
        speed, height, rest = features[:, 0:2], features[:, 2], features[:, 3:]
        way = speed.cumsum(2) - speed[:, :, :1]
        bones = rest.unflatten(1, (-1, 3)).permute(0, 3, 1, 2)  # (batch, frames, bones, 3)
        size = bones.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        usual = (size * valid).sum(1, keepdim=True) / valid.sum(1, keepdim=True)
        bones = bones * (usual / size)
        joints = [torch.stack([way[:, 0], height, way[:, 1]], -1)]
        at = {bone: i for i, bone in enumerate(facts["bones"])}
        for joint, parent in list(enumerate(facts["parents"]))[1:]:
            offset = bones[:, :, at[joint]] if joint in at else 0.0
            joints.append(joints[parent] + offset)
        return torch.stack(joints, 2) * valid

    def decode(self, x: Tensor, facts: Facts, lengths: Lengths) -> list[Any]:
        """Joints in metres, an array (frames, joints, 3) per sample, without padding."""
        frames = [x.shape[2]] * len(x) if lengths is None else lengths
        parts = [self.values(row[None, :, :n], facts)[0] for row, n in zip(x, frames)]
        return [part.cpu().numpy() for part in parts]

    def made(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Made:
        joints = self.values(x, facts, lengths)
        names, fps = facts["joint_names"], float(facts["fps"])
        return kind_of("Motions")(joints, facts["parents"], names, fps, lengths)

    def metrics(self) -> list[Measured]:
        every = (MPJPE, RA_MPJPE, GLOBAL_MPJPE, ROOT_ERR, VEL_ERR, ACC_ERR)
        return list(map(Measured, every))

    def draw(self, values: Sequence[Tensor], facts: Facts, length: int | None = None) -> Any:
        joints = values[0][:length].cpu().numpy()
        return draw_motion(joints, facts["parents"], names=facts["joint_names"])

    def sheet_classes(self, classes: list[str]) -> list[str]:
        return list(SHEET)

    def judge(self, samples: Samples) -> list[Finding]:
        """Whether bones keep their length, how low the lowest joint is, how fast joints move."""
        data = samples.data
        made = measure(samples.x, samples.model.facts["data"])
        real = None if data is None else measure(data.parts[0], data.facts)

        def found(
            measured: str,
            number: Callable[[Measures], Tensor],
            required: str = "",
            enough: Callable[[float, float], bool] | None = None,
        ) -> Finding:
            ours, theirs = float(number(made)), None if real is None else float(number(real))
            passes = None if enough is None else enough(ours, theirs or 0.0)
            return Finding(measured, ours, theirs, required, passes)

        stretch = "stretch of a bone, mean of |length − its mean in the clip| / that mean"
        findings = [
            found(stretch, lambda m: m.stretch.mean(), f"≤ {STRETCH}", lambda s, _: s <= STRETCH),
            found("the same of the bone that stretches most", lambda m: m.stretch.max()),
            found("height of a clip's lowest joint, mean, m", lambda m: m.lowest.mean()),
        ]
        speed = "speed of a joint, mean, m/s"
        if real is None:
            return [*findings, found(speed, lambda m: m.speed.mean())]
        low, high = real.lowest.quantile(torch.tensor([0.05, 0.95]).to(real.lowest)).tolist()
        low, high = low - MARGIN, high + MARGIN
        usual = real.lengths.mean(0)
        return [
            *findings,
            found(
                f"clips whose lowest joint is from {low:.2f} to {high:.2f} m high",
                lambda m: ((low <= m.lowest) & (m.lowest <= high)).float().mean(),
                f"≥ {RECOGNISED} of real",
                lambda s, r: s >= RECOGNISED * r,
            ),
            found(
                "a bone's length off its mean in the data, mean, relative",
                lambda m: ((m.lengths - usual).abs() / usual).mean(),
            ),
            found(
                speed,
                lambda m: m.speed.mean(),
                "half to twice real",
                lambda s, r: 0.5 <= s / (r or 1) <= 2,
            ),
        ]


def features_of(joints: Tensor, parents: list[int], bones: list[int]) -> Tensor:
    """(clips, features, frames) of joints (clips, frames, joints, 3)."""
    hips = joints[:, :, 0]
    speed = hips.diff(dim=1)
    speed = torch.cat([speed[:, :1], speed], 1)  # the first frame is as fast as the second
    vectors = (joints - joints[:, :, parents])[:, :, bones].flatten(2)
    frames = torch.cat([speed[..., [0, 2]], hips[..., 1:2], vectors], -1)
    return frames.transpose(1, 2).contiguous()


@dataclass(frozen=True)
class Measures:
    stretch: Tensor  # (bones,) mean over clips and frames of |length − clip mean| / clip mean
    lengths: Tensor  # (clips, bones) mean over frames, metres
    lowest: Tensor  # (clips,) height of the lowest joint in any frame, metres
    speed: Tensor  # (clips,) mean over joints and frames, metres a second


def measure(x: Tensor, facts: Facts) -> Measures:
    """Bones are measured as the network said them: values() makes them rigid."""
    features = x.float() * column(facts["std"], x) + column(facts["mean"], x)
    bones = features[:, 3:].unflatten(1, (-1, 3)).norm(dim=2)  # (clips, bones, frames)
    mean = bones.mean(2, keepdim=True)
    joints = Motion().values(x, facts)
    return Measures(
        stretch=((bones - mean).abs() / mean).mean((0, 2)),
        lengths=mean[..., 0],
        lowest=joints[..., 1].amin((1, 2)),
        speed=joints.diff(dim=1).norm(dim=-1).mean((1, 2)) * facts["fps"],
    )
