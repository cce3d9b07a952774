"""Meshes: they turn on the page, and are measured in the box of the full run's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from geoshrink.compare.kinds import Scores, measured
from geoshrink.page import Column, Media

from ..metrics import mesh
from ..page import Solid, clustered, packed
from ..zoo.drawing import canvas, field

SURFACE = Column("Surface CD²", "10⁻⁴", better="lower", digits=2)
NORMAL = Column("normals", "°", better="lower", digits=1)
Mesh = tuple[np.ndarray, np.ndarray]  # vertices (n, 3) and triangles (m, 3)
SIDE, POINTS, MOST = 240, 150_000, 60_000  # pixels, points of a poster; triangles on a page
TURN, ELEVATION, REACH = 0.6, 0.436, 1.45  # of the eye, in radians; half the width of the view


@dataclass(frozen=True)
class Meshes:
    """Each is (vertices, faces), or an object with both; `up` is the axis that points up."""

    meshes: Sequence[Any]
    up: int = 1

    noun, title, metrics = "mesh", "Look", (SURFACE, NORMAL)

    def __post_init__(self) -> None:
        object.__setattr__(self, "meshes", [arrays(mesh) for mesh in self.meshes])

    def __len__(self) -> int:
        return len(self.meshes)

    def is_finite(self) -> bool:
        """Whether each has a surface, too."""
        return all(len(faces) and np.isfinite(vertices).all() for vertices, faces in self.meshes)

    def score(self, reference: Meshes, skipped: set[str]) -> Scores:
        """In the unit of half the longest side of the full run's box."""
        pairs = [
            (boxed(made, wanted), boxed(wanted, wanted))
            for made, wanted in zip(self.meshes, reference.meshes, strict=True)
        ]

        def each(metric: Any, pair: tuple[Mesh, Mesh]) -> Tensor:
            from trimesh import Trimesh

            made, wanted = ([Trimesh(*m, process=False)] for m in pair)
            return metric.of(made, wanted, None)

        metrics = zip(self.metrics, (mesh.SURFACE_CD2, mesh.NORMAL))
        return [
            [measured(c, 1, lambda m=m, p=p: each(m, p), skipped)[0] for p in pairs]
            for c, m in metrics
        ]

    def file(self, i: int) -> tuple[bytes, str]:
        """Binary PLY, as it was made."""
        vertices, faces = self.meshes[i]
        head = (
            "ply\nformat binary_little_endian 1.0\n"
            f"element vertex {len(vertices)}\nproperty float x\nproperty float y\n"
            f"property float z\nelement face {len(faces)}\n"
            "property list uchar int vertex_indices\nend_header\n"
        )
        rows = np.zeros(len(faces), [("count", "u1"), ("corners", "<i4", 3)])
        rows["count"], rows["corners"] = 3, faces
        return head.encode() + vertices.astype("<f4").tobytes() + rows.tobytes(), ".ply"

    def medium(self, i: int, alt: str, reference: Meshes) -> Media:
        from PIL import Image, ImageFilter

        vertices, faces = boxed(self.meshes[i], reference.meshes[i])
        if self.up == 1:
            vertices = vertices[:, [0, 2, 1]] * [1, -1, 1]
        count = len(faces)
        vertices, faces = clustered(vertices, faces, MOST)
        if len(faces) < count:
            alt = f"{alt}, drawn with {len(faces):,} of its {count:,} triangles"
        poster = Image.fromarray(view_of(*drawn(vertices, faces), TURN))
        poster = poster.filter(ImageFilter.MedianFilter(3))  # closes pinholes
        return Solid(canvas.encoded(poster), alt, packed(vertices, faces))


def arrays(mesh: Any) -> Mesh:
    """None is the empty mesh: some hosts return it where they found no surface."""
    if mesh is None:
        return np.zeros((0, 3)), np.zeros((0, 3), np.int64)
    pair = mesh if isinstance(mesh, (tuple, list)) else (mesh.vertices, mesh.faces)
    vertices, faces = (np.asarray(p.detach().cpu() if isinstance(p, Tensor) else p) for p in pair)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:
        raise ValueError(
            "a mesh is vertices (n, 3) and triangles (m, 3), got "
            f"{tuple(vertices.shape)} and {tuple(faces.shape)}"
        )
    return vertices.astype(float), faces.astype(np.int64)


def boxed(mesh: Mesh, reference: Mesh) -> Mesh:
    """The mesh where the box of the reference is the middle of [−1, 1]³."""
    low, high = reference[0].min(0), reference[0].max(0)
    return (mesh[0] - (low + high) / 2) * 2 / ((high - low).max() or 1.0), mesh[1]


def drawn(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points spread evenly over the triangles, and the normals there."""
    corners = vertices[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.nan_to_num(np.linalg.norm(normals, axis=1))
    if not area.sum() > 0:
        return np.zeros((0, 3)), np.zeros((0, 3))
    random = np.random.default_rng(0)
    face = random.choice(len(faces), POINTS, p=area / area.sum())
    a, b = random.random((2, POINTS, 1))
    a, b = np.where(a + b > 1, 1 - a, a), np.where(a + b > 1, 1 - b, b)
    o, p, q = (corners[face, i] for i in range(3))
    return o + a * (p - o) + b * (q - o), normals[face] / area[face, None]


def view_of(points: np.ndarray, normals: np.ndarray, turn: float) -> np.ndarray:
    """Pixels (side, side, 3): of the points in one place the nearest, lit as draw_object's."""
    from PIL import ImageColor

    axes = np.stack([axis.double().numpy() for axis in field.axes(turn, ELEVATION)])
    pixels = np.full((SIDE, SIDE, 3), ImageColor.getrgb(canvas.PAPER), np.uint8)
    seen = points @ axes.T  # to the right, up, towards us
    column, row = ((1 + s * seen[:, i] / REACH) * SIDE / 2 for i, s in ((0, 1), (1, -1)))
    inside = (np.abs(seen[:, :2]) < REACH).all(1)
    order = np.flatnonzero(inside)[np.argsort(seen[inside, 2])]  # the nearest is written last
    normal = (normals @ axes.T)[order]
    normal *= np.where(normal[:, 2:] < 0, -1, 1)
    light = np.array(field.LIGHT) / np.linalg.norm(field.LIGHT)
    shade = 0.3 + 0.85 * (0.5 + 0.5 * normal @ light)
    colour = np.clip(shade[:, None] * ImageColor.getrgb(field.CLAY), 0, 255)
    pixels[row[order].astype(int), column[order].astype(int)] = colour.round()
    return pixels
