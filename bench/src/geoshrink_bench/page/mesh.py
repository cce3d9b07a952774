"""Meshes: a picture of one, and the mesh itself, which turns where the page shows that picture."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geoshrink.page.markup import element
from geoshrink.page.media import Picture, picture_type

if TYPE_CHECKING:
    import numpy as np

WITHIN = 2.0  # coordinates are kept as 16 bits from −WITHIN to WITHIN, as mesh.js reads them
SHORT = 65535  # vertices that 16 bits can number


@dataclass(frozen=True)
class Solid(Picture):
    """`mesh` is what `packed` returns; without WebGL the picture stays."""

    mesh: bytes = b""

    def html(self) -> str:
        picture, mesh = (b64encode(data).decode() for data in (self.data, self.mesh))
        source = f"data:{picture_type(self.data)};base64,{picture}"
        return element("img", src=source, alt=self.alt, data_mesh=mesh)


def packed(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    """How many vertices and faces there are, 32 bits each; the faces; x, y, z (up) of vertices."""
    import numpy as np

    counts = np.array([len(vertices), len(faces)], "<u4")
    kind = "<u2" if len(vertices) <= SHORT else "<u4"
    places = np.nan_to_num(vertices).clip(-WITHIN, WITHIN) * (32767 / WITHIN)
    parts = (counts, faces.astype(kind), places.round().astype("<i2"))
    return b"".join(part.tobytes() for part in parts)


def clustered(vertices: np.ndarray, faces: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The mesh with at most `most` faces: the vertices in one cell of a grid become their mean.

    Rossignac and Borrel, 1993. Of loose triangles, which no grid keeps, some are left out instead.
    """
    import numpy as np

    finite = np.isfinite(vertices.sum(1))
    faces = faces[finite[faces].all(1)]
    if len(faces) <= most:
        return vertices, faces
    vertices = np.nan_to_num(vertices)
    corners = vertices[faces]
    sides = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = np.linalg.norm(np.cross(*sides), axis=1).sum() / 2
    places, kept, cell = vertices, faces, max((2.5 * area / most) ** 0.5, 1e-5)
    while len(kept) > most:
        places, kept = merged(vertices, faces, cell)
        cell *= 1.1 * max(1.0, len(kept) / most) ** 0.5
    if len(kept) > most // 20:
        return places, kept
    used, picked = np.unique(faces[:: -(-len(faces) // most)], return_inverse=True)
    return vertices[used], picked.reshape(-1, 3)


def merged(vertices: np.ndarray, faces: np.ndarray, cell: float) -> tuple[np.ndarray, np.ndarray]:
    """The vertices of each cell as one, without faces that became a line or are there twice."""
    import numpy as np

    at = ((vertices - vertices.min(0)) / cell).astype(np.int64)
    size = at.max(0) + 1
    _, group = np.unique((at[:, 0] * size[1] + at[:, 1]) * size[2] + at[:, 2], return_inverse=True)
    counts = np.bincount(group)
    places = np.stack([np.bincount(group, axis) / counts for axis in vertices.T], 1)
    faces = group[faces]
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (a != c)]
    a, b, c = np.sort(faces, 1).T
    _, first = np.unique((a * len(counts) + b) * len(counts) + c, return_index=True)
    return places, faces[np.sort(first)]
