"""Motion: (features, frames), of variable length, zero where it is padding.

A frame is the hips' horizontal speed and height, then one vector per bone from its parent joint,
all standardised. Bones of no length are left out, and do not stretch: values() gives each bone
its mean length over the clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .base import Data, Modality, column

SHORTEST = 24  # frames; clips are cropped to anything from here to their whole


class Motion(Modality):
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

    def values(
        self, x: Tensor, facts: dict[str, Any], lengths: Sequence[int] | None = None
    ) -> Tensor:
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

    def decode(self, x: Tensor, facts: dict[str, Any], lengths: Sequence[int] | None) -> list[Any]:
        """Joints in metres, an array (frames, joints, 3) per sample, without padding."""
        frames = [x.shape[2]] * len(x) if lengths is None else lengths
        parts = [self.values(row[None, :, :n], facts)[0] for row, n in zip(x, frames)]
        return [part.cpu().numpy() for part in parts]


def features_of(joints: Tensor, parents: list[int], bones: list[int]) -> Tensor:
    """(clips, features, frames) of joints (clips, frames, joints, 3)."""
    hips = joints[:, :, 0]
    speed = hips.diff(dim=1)
    speed = torch.cat([speed[:, :1], speed], 1)  # the first frame is as fast as the second
    vectors = (joints - joints[:, :, parents])[:, :, bones].flatten(2)
    frames = torch.cat([speed[..., [0, 2]], hips[..., 1:2], vectors], -1)
    return frames.transpose(1, 2).contiguous()
