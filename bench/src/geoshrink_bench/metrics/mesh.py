"""Distances between surfaces, each a trimesh.Trimesh, in the coordinates they come in.

Nothing is centred, aligned or scaled, which would hide an error; objects of the zoo fill [−1, 1]³.
A surface is met at points drawn on it evenly, with a seed, and each is compared with the nearest
point of the whole other surface, not with points drawn there: a surface is 0 from itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import ImageColor
from torch import Tensor
from torch.nn import functional as F

from . import view
from .base import Metric, Skipped, library
from .shape import cd2

POINTS, SIDE = 30_000, 64


def center_cd2(mesh: Any, reference: Any) -> float:
    """Center CD²: cd2 of the centres of triangles; of Gaussians, given by their centres (n, 3).

    The paper reports it for TRELLIS and does not define it: the Gaussians' centres are our reading.
    """
    pair = [checked(m).triangles_center if hasattr(m, "faces") else m for m in (mesh, reference)]
    return cd2(*pair)


def surface_cd2(mesh: Any, reference: Any, points: int = POINTS, seed: int = 0) -> float:
    """Surface CD²: the mean squared distance from the other surface, both ways summed."""
    return sum(
        float((closest(drawn(a, points, seed)[0], b)[0] ** 2).mean())
        for a, b in both_ways(mesh, reference)
    )


def surface_hausdorff(mesh: Any, reference: Any, points: int = POINTS, seed: int = 0) -> float:
    """Hausdorff distance: how far corners and drawn points are from the other surface at most.

    It approaches that of the surfaces from below as the points grow in number.
    """
    farthest = 0.0
    for a, b in both_ways(mesh, reference):
        vertices, faces = arrays(a)
        probes = np.concatenate([vertices[np.unique(faces)], drawn(a, points, seed)[0]])
        farthest = max(farthest, float(closest(probes, b)[0].max()))
    return farthest


def normal_error(mesh: Any, reference: Any, points: int = POINTS, seed: int = 0) -> float:
    """Mean angle in degrees between the normals of two surfaces at nearest points, over both ways.

    A normal that looks the other way agrees: 90° is the most.
    """
    angles = []
    for a, b in both_ways(mesh, reference):
        start, normal = drawn(a, points, seed)
        cosine = (normal * closest(start, b)[1]).sum(1)
        angles.append(np.arccos(np.abs(cosine).clip(-1, 1)).mean())
    return float(np.degrees(np.mean(angles)))


def iou(mesh: Any, reference: Any, side: int = SIDE) -> tuple[float, str]:
    """Intersection over union of the solids, and how it was found: "exact" if both are closed."""
    a, b = checked(mesh), checked(reference)
    try:
        return exact_iou(a, b), "exact"
    except Skipped:
        return grid_iou(a, b, side), f"grid of {side}³"


def exact_iou(mesh: Any, reference: Any) -> float:
    """IoU of closed surfaces, by the volume of their intersection; skipped if one is open."""
    a, b = solid(mesh), solid(reference)
    both = (a ^ b).volume()
    return both / (a.volume() + b.volume() - both)


def grid_iou(mesh: Any, reference: Any, side: int = SIDE) -> float:
    """IoU of the cells inside, of side³ in the box of both.

    Inside is where the winding number, which an open surface has too (Jacobson et al., 2013), is
    above ½ or below −½.
    """
    pcu, pair = library("point_cloud_utils"), (checked(mesh), checked(reference))
    bounds = np.concatenate([m.bounds for m in pair])
    low, high = bounds.min(0), bounds.max(0)
    middles = (np.arange(side) + 0.5) / side
    unit = np.stack(np.meshgrid(middles, middles, middles), -1).reshape(-1, 3)
    cells = low + unit * (high - low)
    a, b = (np.abs(pcu.triangle_soup_fast_winding_number(*arrays(m), cells)) > 0.5 for m in pair)
    if not (a | b).any():
        raise Skipped(f"none of {side}³ cells is inside a surface; take a finer grid")
    return float((a & b).sum() / (a | b).sum())


def solid(mesh: Any) -> Any:
    """A manifold3d.Manifold, whose winding number must be 0 or 1: w² has the same integral then."""
    solids, mesh = library("manifold3d"), checked(mesh)
    faces = np.array(mesh.faces, dtype=np.uint64)
    found = solids.Manifold(solids.Mesh64(np.array(mesh.vertices), faces))
    volume, twice = found.volume(), (found ^ found).volume()
    if found.status() != solids.Error.NoError or not 0 < twice <= volume * (1 + 1e-9):
        what = f"{len(mesh.faces)} triangles, {found.status()}, volume {volume:.3g}"
        raise Skipped(f"exact IoU needs closed outward surfaces that do not cross, not {what}")
    return found


def render(mesh: Any, views: int = 4, size: tuple[int, int] = (224, 224)) -> Tensor:
    """Pictures (views, 3, height, width) in [0, 1] of a mesh from all sides, for LPIPS and CLIP.

    They look as draw_object's: parallel rays, one light, clay on paper; the first is in three
    quarters, the others follow at equal angles. All show [−1, 1]³ alike. size is (height, width).
    """
    if views < 1 or min(size) < 1:
        raise ValueError(f"needs a view and a pixel at least, got {views} views of {size}")
    pcu, (vertices, faces) = library("point_cloud_utils"), arrays(checked(mesh))
    if np.abs(mesh.bounds).max() > view.REACH:
        raise ValueError(f"scale mesh and reference into [−1, 1]³; got {mesh.bounds.tolist()}")
    clay, paper = (torch.tensor(ImageColor.getrgb(c)) / 255 for c in (view.CLAY, view.PAPER))
    lamp = F.normalize(torch.tensor(view.LIGHT), dim=0).double().numpy()
    height, width = (view.FINER * n for n in size)
    unit = 2 * view.REACH / min(width, height)
    across = (np.arange(width) + 0.5 - width / 2) * unit
    upward = (height / 2 - np.arange(height) - 0.5) * unit
    pictures = []
    for i in range(views):
        turn, rise = np.radians(35 + 360 * i / views), np.radians(25)
        right, up, towards = axes = torch.stack(view.axes(turn, rise)).double().numpy()
        rays = (across[None, :, None] * right + upward[:, None, None] * up).reshape(-1, 3)
        away = np.broadcast_to(-towards, rays.shape).copy()
        face, weight, _ = pcu.ray_mesh_intersection(vertices, faces, rays + 4 * towards, away)
        normal = (mesh.vertex_normals[faces[face]] * weight[..., None]).sum(1)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True).clip(1e-12)
        shade = 0.3 + 0.85 * (0.5 + 0.5 * normal @ (lamp @ axes))
        lit = (torch.from_numpy(shade).float()[:, None] * clay).clamp(0, 1)
        rgb = torch.where(torch.from_numpy(face >= 0)[:, None], lit, paper)
        pictures.append(rgb.T.reshape(3, height, width))
    return F.avg_pool2d(torch.stack(pictures), view.FINER)


def both_ways(mesh: Any, reference: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    a, b = checked(mesh), checked(reference)
    return (a, b), (b, a)


def checked(mesh: Any) -> Any:
    """The mesh, if it is one, has a surface, and is finite."""
    if not hasattr(mesh, "faces"):
        raise ValueError(f"needs a trimesh.Trimesh, got a {type(mesh).__name__}")
    bad = int((~np.isfinite(mesh.vertices)).any(-1).sum())
    if bad:
        raise ValueError(f"{bad} of {len(mesh.vertices)} vertices of the mesh are not finite")
    if not mesh.area > 0:
        raise Skipped(f"the mesh has no surface ({len(mesh.faces)} triangles)")
    return mesh


def drawn(mesh: Any, points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 3) spread evenly over a surface, and its normals there."""
    from trimesh.sample import sample_surface

    if points < 1:
        raise ValueError(f"needs at least one point on a surface, got {points}")
    where, face = sample_surface(mesh, points, seed=seed)[:2]
    return np.asarray(where), mesh.face_normals[face]


def closest(points: np.ndarray, mesh: Any) -> tuple[np.ndarray, np.ndarray]:
    """How far points are from the nearest of a surface, and its normal there.

    Where triangles meet it is the mean of theirs by angle (Bærentzen and Aanæs, 2005).
    """
    pcu = library("point_cloud_utils")
    distance, face, weight = pcu.closest_points_on_mesh(points, *arrays(mesh))
    face = np.flatnonzero(mesh.area_faces > 0)[face]
    normal = mesh.face_normals[face]
    off = weight < 1e-6  # one corner of three has no part in a point on an edge, two at a corner
    edge, corner = off.sum(1) == 1, off.sum(1) == 2
    sums = np.zeros((len(mesh.edges_unique), 3))
    np.add.at(sums, mesh.faces_unique_edges, mesh.face_normals[:, None])
    opposite = (off[edge].argmax(1) + 1) % 3  # edge i leads from corner i to the next
    normal[edge] = sums[mesh.faces_unique_edges[face[edge], opposite]]
    normal[corner] = mesh.vertex_normals[mesh.faces[face[corner], off[corner].argmin(1)]]
    return distance, normal / np.linalg.norm(normal, axis=1, keepdims=True).clip(1e-12)


def arrays(mesh: Any) -> tuple[np.ndarray, np.ndarray]:
    """The vertices, and the triangles that are not flat to a line."""
    return np.array(mesh.vertices), np.array(mesh.faces, dtype=np.int64)[mesh.area_faces > 0]


def each(of: Callable[[Any, Any], float], scale: float = 1.0) -> Callable[..., Tensor]:
    """What Metric.of wants, a function of two lists, from one of two meshes."""

    def of_lists(meshes: Sequence[Any], reference: Sequence[Any], lengths: Any = None) -> Tensor:
        if hasattr(meshes, "faces") or hasattr(reference, "faces"):
            raise ValueError("needs two lists of meshes, got a mesh")
        if len(meshes) != len(reference):
            raise ValueError(f"{len(meshes)} meshes do not pair with {len(reference)} references")
        found = []
        for i, pair in enumerate(zip(meshes, reference)):
            try:
                found.append(scale * of(*pair))
            except Skipped as reason:
                raise Skipped(f"sample {i}: {reason}") from None
        return torch.tensor(found, dtype=torch.float64)

    return of_lists


DRAWN = f"1: {POINTS} points"
CENTER_CD2 = Metric("Center CD²", "10⁻⁴", False, each(center_cd2, 1e4))
SURFACE_CD2 = Metric("Surface CD²", "10⁻⁴", False, each(surface_cd2, 1e4), DRAWN)
HAUSDORFF = Metric("Hausdorff", "10⁻²", False, each(surface_hausdorff, 1e2), DRAWN)
NORMAL = Metric("Normal", "°", False, each(normal_error), f"{DRAWN}, not oriented")
IOU = Metric("IoU", "", True, each(exact_iou), "1: exact")
