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

from geoshrink.compare.kinds import Made, kind_of
from geoshrink.page import Media, Picture

from ...metrics.base import library
from ...metrics.measured import Measured
from ...metrics.mesh import CENTER_CD2, HAUSDORFF, IOU, NORMAL, SURFACE_CD2
from ...metrics.shape import SDF
from ..drawing import draw_object
from ..drawing.canvas import encoded
from .base import Data, Facts, Lengths, Modality, mirrored
from .judging import Finding, Samples, spread

CLUSTERS, COARSE, TRUNCATION = 12, 8, 0.15
MEAN, STD = 0.8, 0.5  # of the stored distances, roughly


WHOLE = 0.90  # of the meshes, at least
ON_PAGE = (150, 150)  # pixels: its rays are what takes time


class Objects(Modality):
    axes = 4
    legend = "The zero set of the 32³ signed distance."

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

    def values(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Tensor:
        """Signed distance in units of the object's half size, (batch, side, side, side)."""
        return (x[:, 0].float() * STD + MEAN).clamp(-1, 1) * facts["truncation"]

    def decode(self, x: Tensor, facts: Facts, lengths: Lengths) -> list[Any]:
        """A trimesh.Trimesh per sample, by marching cubes."""
        return meshes_of(self.values(x, facts))

    def made(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Made:
        return kind_of("Meshes")(self.decode(x, facts, lengths), up=2)

    def metrics(self) -> list[Measured]:
        of_meshes = (CENTER_CD2, SURFACE_CD2, HAUSDORFF, IOU, NORMAL)
        return [Measured(SDF), *(Measured(metric, view=meshes_of) for metric in of_meshes)]

    def draw(self, values: Sequence[Tensor], facts: Facts, length: int | None = None) -> Any:
        return draw_object(values[0].cpu().numpy())

    def medium(self, values: Sequence[Tensor], facts: Facts, length: int | None, alt: str) -> Media:
        return Picture(encoded(draw_object(values[0].numpy(), ON_PAGE)), alt)

    def judge(self, samples: Samples) -> list[Finding]:
        """Whether meshes are watertight and one piece."""
        data, real = samples.data, (None, None, None)
        made = measure_fields(samples.model.values(samples.x))
        if data is not None:
            pick = torch.tensor(spread(len(samples.labels), len(data.labels)))
            (x,), _ = self.batch(data, pick)
            real = measure_fields(self.values(x, data.facts))
        whole = "meshes that are watertight and one component"
        return [
            Finding(whole, made[0], real[0], f"≥ {WHOLE}", made[0] >= WHOLE),
            Finding("meshes that are watertight", made[1], real[1]),
            Finding("area that decode() keeps, the largest piece's, mean share", made[2], real[2]),
        ]


def meshes_of(fields: Tensor) -> list[Any]:
    return [mesh_of(field) for field in fields.float().cpu().numpy()]


def mesh_of(field: np.ndarray) -> Any:
    """The largest piece of a surface, as programs for 3-D shapes drop floaters.

    On a grid this coarse half of the real objects come apart.
    """
    surface = surface_of(field)
    pieces = surface.split(only_watertight=False)
    return max(pieces, key=lambda piece: piece.area, default=surface)


def surface_of(field: np.ndarray) -> Any:
    """The zero set of a signed distance within [−1, 1]³, closed where it would leave the cube."""
    trimesh, measure = library("trimesh", "zoo"), library("skimage.measure", "zoo")
    side = field.shape[0]
    padded = np.pad(field, 1, constant_values=float(np.abs(field).max()) or 1.0)
    if not (padded < 0).any():
        return trimesh.Trimesh()
    corners, faces, _, _ = measure.marching_cubes(padded, 0.0)  # triangles look outwards
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


def measure_fields(fields: Tensor) -> tuple[float, float, float]:
    """measure_meshes() of what decode() makes, and of the whole surfaces, all pieces together."""
    surfaces = [surface_of(field).area for field in fields.cpu().numpy()]
    return measure_meshes(meshes_of(fields), surfaces)


def measure_meshes(meshes: Sequence[Any], surfaces: Sequence[float]) -> tuple[float, float, float]:
    """(share that is watertight and one component, that is watertight, mean share of the whole
    surface that the mesh is); an empty mesh counts as zero.
    """
    whole = watertight = kept = 0.0
    for mesh, surface in zip(meshes, surfaces):
        watertight += mesh.is_watertight
        whole += mesh.is_watertight and mesh.body_count == 1
        kept += mesh.area / surface if mesh.area else 0.0
    return whole / len(meshes), watertight / len(meshes), kept / len(meshes)
