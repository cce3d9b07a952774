"""Objects: a truncated signed distance (1, side, side, side), negative inside, standardised.

They have no labels: the classes are clusters of the coarse distance field.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .base import Data, Modality, mirrored

CLUSTERS, COARSE, TRUNCATION = 12, 8, 0.15
MEAN, STD = 0.8, 0.5  # of the stored distances, roughly


class Objects(Modality):
    def read(self, path: Path) -> Data:
        with np.load(path) as archive:
            stored = torch.from_numpy(archive["sdf"])[:, None]
        coarse = F.adaptive_avg_pool3d(stored.float() / 127.5 - 1, COARSE)
        both = (coarse + coarse.flip(2)) / 2  # a mirrored object is in the same cluster
        labels = clusters(both.flatten(1), CLUSTERS)
        classes = [f"shape {i}" for i in range(CLUSTERS)]
        return Data((stored,), labels, classes, {"truncation": TRUNCATION})

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], None]:
        x = (data.parts[0][pick].float() / 127.5 - 1 - MEAN) / STD
        return (mirrored(x, 2),), None

    def values(
        self, x: Tensor, facts: dict[str, Any], lengths: Sequence[int] | None = None
    ) -> Tensor:
        """Signed distance in units of the object's half size, (batch, side, side, side)."""
        return (x[:, 0].float() * STD + MEAN).clamp(-1, 1) * facts["truncation"]

    def decode(self, x: Tensor, facts: dict[str, Any], lengths: Sequence[int] | None) -> list[Any]:
        """A trimesh.Trimesh per sample, by marching cubes."""
        return [mesh_of(field) for field in self.values(x, facts).cpu().numpy()]


def mesh_of(field: np.ndarray) -> Any:
    """The largest piece of a surface, as programs for 3-D shapes drop floaters.

    On a grid this coarse half of the real objects come apart.
    """
    surface = surface_of(field)
    pieces = surface.split(only_watertight=False)
    return max(pieces, key=lambda piece: piece.area, default=surface)


def surface_of(field: np.ndarray) -> Any:
    """The zero set of a signed distance within [−1, 1]³, closed where it would leave the cube."""
    try:
        import trimesh
        from skimage.measure import marching_cubes
    except ImportError:
        raise ImportError(
            "meshes need trimesh and scikit-image: pip install 'geoshrink-bench[zoo]'"
        ) from None
    side = field.shape[0]
    padded = np.pad(field, 1, constant_values=float(np.abs(field).max()) or 1.0)
    if not (padded < 0).any():
        return trimesh.Trimesh()
    corners, faces, _, _ = marching_cubes(padded, 0.0)  # triangles look outwards
    return trimesh.Trimesh((corners - 0.5) * (2 / side) - 1, faces)


def clusters(points: Tensor, count: int, rounds: int = 50) -> Tensor:
    """k-means that begins with equal slices along the first principal axis: no chance in it."""
    centred = points - points.mean(0)
    axis = torch.linalg.svd(centred, full_matrices=False).Vh[0]
    slices = (centred @ axis).argsort().tensor_split(count)
    centres = torch.stack([points[part].mean(0) for part in slices])
    nearest = torch.zeros(len(points), dtype=torch.long)
    for _ in range(rounds):
        nearest = torch.cdist(points, centres).argmin(1)
        for i in range(count):
            if (nearest == i).any():
                centres[i] = points[nearest == i].mean(0)
    return nearest
