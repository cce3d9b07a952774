"""Distances of surfaces: squares, boxes and spheres in closed form, scipy, trimesh, and each other.

Where a number is drawn, the tolerance is four times its standard error or more.
"""

from __future__ import annotations

import math
import sys
from functools import partial

import numpy as np
import pytest
import torch
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.spatial.transform import Rotation

from geoshrink_bench.metrics import mesh as m
from geoshrink_bench.metrics import shape
from geoshrink_bench.metrics.base import Skipped
from geoshrink_bench.zoo.drawing import draw_object
from geoshrink_bench.zoo.modalities.objects import surface_of

LISTS = (
    m.CENTER_CD2,
    m.SURFACE_CD2,
    m.HAUSDORFF,
    m.NORMAL,
    m.IOU,
)


def square(side=1.0, turn=0.0, height=0.0):
    """A square around the z axis, turned about x by degrees."""
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]) * side / 2
    found = trimesh.Trimesh(corners, [[0, 1, 2], [0, 2, 3]])
    found.apply_transform(trimesh.transformations.rotation_matrix(math.radians(turn), [1, 0, 0]))
    return found.apply_translation([0, 0, height])


def box(side=1.0, shift=0.0):
    return trimesh.creation.box((side,) * 3).apply_translation([shift, 0, 0])


def ball(radius=0.5, shift=0.0, finer=3):
    return trimesh.creation.icosphere(finer, radius).apply_translation([shift, 0, 0])


def blob(seed, finer=2):
    """A ball with a rough surface, closed and without crossings."""
    found = ball(finer=finer)
    radii = np.random.default_rng(seed).uniform(0.8, 1.2, (len(found.vertices), 1))
    return trimesh.Trimesh(found.vertices * radii, found.faces)


def opened(mesh):
    return trimesh.Trimesh(mesh.vertices, mesh.faces[:-1])


def test_points_equal_scipy_over_all_pairs():
    a, b = np.random.default_rng(0).normal(size=(2, 50, 3))
    b = b[:30]
    apart = cdist(a, b)
    want = (apart.min(0) ** 2).mean() + (apart.min(1) ** 2).mean()
    assert shape.cd2(a, b) == pytest.approx(want, rel=1e-12)


def test_cd2_is_squared_and_summed():
    a = torch.zeros(4, 3)
    assert shape.cd2(a, a[:2] + torch.tensor([0.0, 3.0, 4.0])) == 50


def test_nearest_points_equal_trimesh():
    mesh = blob(0)
    points = np.random.default_rng(1).normal(size=(40, 3))
    _, wanted, _ = trimesh.proximity.closest_point_naive(mesh, points)
    assert m.closest(points, mesh)[0] == pytest.approx(wanted, rel=1e-9)


def test_normals_of_a_face_an_edge_and_a_corner():
    points = np.array([[0.1, 0.2, 0.9], [0, 0, 0.4], [0.1, 0.8, 0.9], [0.8, -0.7, 0.9]])
    wanted = np.array([[0, 0, 1], [0, 0, 1], [0, 1, 1], [1, -1, 1]])
    for mesh in (box(), box().subdivide()):
        distance, normal = m.closest(points, mesh)
        assert distance == pytest.approx([0.4, 0.1, 0.5, math.sqrt(0.29)])
        assert normal == pytest.approx(wanted / np.linalg.norm(wanted, axis=1)[:, None])


def test_parallel_squares():
    low, high = square(), square(height=0.25)
    assert m.surface_cd2(low, high, 100) == pytest.approx(2 * 0.25**2)
    assert m.surface_hausdorff(low, high, 100) == pytest.approx(0.25)
    assert m.normal_error(low, high, 100) == 0
    assert m.center_cd2(low, high) == pytest.approx(2 * 0.25**2)


def test_a_square_in_a_square_is_far_one_way_only():
    """Of the larger, d² is that of max(|x| − ½, 0) and max(|y| − ½, 0): 1/24 each in the mean."""
    found = m.surface_cd2(square(1), square(2), 20_000)
    assert found == pytest.approx(1 / 12, rel=0.04)
    assert m.surface_hausdorff(square(1), square(2), 100) == pytest.approx(math.sqrt(0.5))


def test_corners_of_a_box():
    assert m.surface_hausdorff(box(1), box(2), 10) == pytest.approx(math.sqrt(3) / 2)


def test_balls_in_each_other():
    """Facets lie up to 1 % inside their sphere."""
    inner, outer = ball(0.5), ball(0.6)
    assert m.surface_cd2(inner, outer, 3000) == pytest.approx(2 * 0.1**2, rel=0.03)
    assert m.surface_hausdorff(inner, outer, 3000) == pytest.approx(0.1, rel=0.03)
    assert m.normal_error(inner, outer, 3000) < 5


def test_a_surface_is_nothing_from_itself():
    mesh, points = ball(), 4000
    assert m.surface_cd2(mesh, mesh, points) < 1e-30
    assert m.surface_hausdorff(mesh, mesh, points) < 1e-14
    assert m.normal_error(mesh, mesh, points) < 1e-5


@pytest.mark.parametrize("turn", [0, 20, 45])
def test_the_angle_of_turned_squares(turn):
    tilted, back = square(turn=turn), square()
    back.invert()
    assert m.normal_error(tilted, square(), 100) == pytest.approx(turn, abs=1e-5)
    assert m.normal_error(tilted, back, 100) == pytest.approx(turn, abs=1e-5)


def test_draws_are_those_of_the_seed():
    a, b = blob(0), blob(1)
    for of in (m.surface_cd2, m.surface_hausdorff, m.normal_error):
        assert of(a, b, 50) == of(a, b, 50)
        assert of is m.surface_hausdorff or of(a, b, 50) != of(a, b, 50, seed=1)


@pytest.mark.parametrize("shift", [0.0, 0.25, 0.5, 2.0])
def test_iou_of_boxes(shift):
    both = max(1 - shift, 0)
    want = both / (2 - both)
    assert m.exact_iou(box(), box(shift=shift)) == pytest.approx(want, abs=1e-9)
    assert m.grid_iou(box(), box(shift=shift), 15) == pytest.approx(want, abs=1e-9)


def test_iou_of_balls_is_that_of_the_lens():
    r, d = 0.5, 0.3
    lens = math.pi * (4 * r + d) * (2 * r - d) ** 2 / 12
    want = lens / (2 * 4 / 3 * math.pi * r**3 - lens)
    a, b = ball(finer=4), ball(shift=d, finer=4)
    assert m.exact_iou(a, b) == pytest.approx(want, rel=2e-3)
    assert m.grid_iou(a, b, 32) == pytest.approx(want, rel=2e-2)


def test_iou_equals_that_of_trimesh_and_says_how():
    a, b = blob(0), blob(1)
    volumes = [
        f([a, b], engine="manifold").volume
        for f in (trimesh.boolean.intersection, trimesh.boolean.union)
    ]
    assert m.iou(a, b) == (pytest.approx(volumes[0] / volumes[1], rel=1e-5), "exact")
    found, how = m.iou(opened(a), b, side=24)
    assert how == "grid of 24³" and found == pytest.approx(m.exact_iou(a, b), rel=0.05)


def test_the_inside_of_a_surface_turned_inside_out():
    inverted = box(shift=0.25)
    inverted.invert()
    assert m.iou(box(), inverted, side=20) == (pytest.approx(0.6), "grid of 20³")


def test_boxes_that_overlap_in_one_mesh_count_once():
    two = trimesh.util.concatenate([box(), box(shift=0.5)])
    apart = trimesh.util.concatenate([box(), box(shift=2.0)])
    assert m.iou(two, box(), side=30) == (pytest.approx(2 / 3), "grid of 30³")
    assert m.iou(apart, box()) == (pytest.approx(0.5), "exact")


def test_a_hollow_ball_is_hollow():
    inner = ball(0.3)
    inner.invert()
    hollow = trimesh.util.concatenate([ball(0.5), inner])
    assert m.iou(hollow, ball(0.5)) == (pytest.approx(1 - 0.6**3), "exact")


def test_exact_iou_of_an_open_surface_is_skipped():
    with pytest.raises(Skipped, match=r"sample 1: exact IoU needs closed .*11 triangles"):
        m.IOU.of([box(), opened(box())], [box(), box()], None)
    with pytest.raises(Skipped, match="none of 8³ cells"):
        m.grid_iou(square(), square(height=0.5), 8)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_frame_and_order_of_the_two_change_nothing(seed):
    a, b = blob(seed, 1), blob(seed + 1, 1)
    turn = np.eye(4)
    turn[:3, :3] = Rotation.random(rng=seed).as_matrix()
    turn[:3, 3] = 0.3
    turned = [x.copy().apply_transform(turn) for x in (a, b)]
    for of in (
        m.exact_iou,
        m.center_cd2,
        partial(m.surface_cd2, points=200),
        partial(m.surface_hausdorff, points=200),
        partial(m.normal_error, points=200),
    ):
        assert of(*turned) == pytest.approx(of(a, b), rel=1e-6)
        assert of(b, a) == pytest.approx(of(a, b), rel=1e-6)


def test_another_surface_is_worse_than_the_same():
    for metric in LISTS:
        near, far = metric.of([blob(0, 1), blob(0, 1)], [blob(0, 1), blob(2, 1)], None).tolist()
        assert near != far and (near > far) == metric.higher, metric.name


def test_triangles_without_an_area_change_nothing():
    a, b = blob(0), blob(1)
    vertices = np.concatenate([a.vertices, [[9.0, 9, 9]]])  # of no triangle
    faces = [[0, 0, 1], [5, 7, 5], *a.faces]
    flat = trimesh.Trimesh(vertices, faces, process=False, validate=False)
    assert len(flat.faces) == len(a.faces) + 2
    for of in (m.surface_cd2, m.surface_hausdorff, m.normal_error):
        assert of(flat, b, 300) == pytest.approx(of(a, b, 300))
    assert m.center_cd2(a, b) == m.center_cd2(a.triangles_center, b.triangles_center)


def test_a_list_of_pairs_is_one_pair_after_the_other():
    meshes, others = [blob(0, 1), box(), blob(1, 1)], [blob(2, 1), blob(3, 1), box()]
    for metric in (m.CENTER_CD2, m.IOU):
        found = metric.of(meshes, others, None).tolist()
        assert found == [float(metric.of([a], [b], None)) for a, b in zip(meshes, others)]
    low, high = square(), square(height=0.1)
    assert float(m.SURFACE_CD2.of([low], [high], None)) == pytest.approx(200)  # 10⁻⁴
    assert float(m.HAUSDORFF.of([low], [high], None)) == pytest.approx(10)  # 10⁻²


@pytest.mark.parametrize("metric", LISTS, ids=lambda metric: metric.name)
def test_bad_meshes(metric):
    nan = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, math.nan, 0]], [[0, 1, 2]], process=False)
    line = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]], process=False)
    for a, b in (([nan], [box()]), ([box()], [nan])):
        with pytest.raises(ValueError, match="1 of 3 vertices"):
            metric.of(a, b, None)
    for none in (trimesh.Trimesh(), line):
        with pytest.raises(Skipped, match=r"sample 1: the mesh has no surface \(\d triangle"):
            metric.of([box(), none], [box(), box()], None)
        with pytest.raises(Skipped, match="sample 1: the mesh has no surface"):
            metric.of([box(), box()], [box(), none], None)
    with pytest.raises(ValueError, match="1 meshes do not pair with 2"):
        metric.of([box()], [box(), box()], None)
    with pytest.raises(ValueError, match="two lists"):
        metric.of(box(), box(), None)
    with pytest.raises(ValueError, match=r"Trimesh, got a str|could not convert"):
        metric.of(["cube"], [box()], None)


def test_bad_points():
    a = np.zeros((4, 3))
    with pytest.raises(ValueError, match=r"\(4, 2\)"):
        shape.cd2(a[:, :2], a)
    with pytest.raises(ValueError, match="1 of 4 points"):
        shape.cd2(a, np.where(np.arange(4)[:, None] == 2, np.nan, a))
    with pytest.raises(Skipped, match="no points"):
        shape.cd2(a, a[:0])
    with pytest.raises(ValueError, match="at least one point on a surface, got 0"):
        m.surface_cd2(box(), box(), 0)


def test_a_rendered_ball():
    """A disc of clay from all sides, as large as it should be."""
    pictures = m.render(ball(0.8), views=3, size=(64, 80))
    assert pictures.shape == (3, 3, 64, 80)
    assert pictures.min() >= 0 and pictures.max() <= 1
    covered = ((pictures - pictures[:, :, :1, :1]).abs().sum(1) > 0.05).double().mean((1, 2))
    share = math.pi * 0.8**2 / (2.6 * 2.6 * 80 / 64)
    assert covered.tolist() == pytest.approx([share] * 3, rel=0.05)
    assert (pictures[0] - pictures[1]).abs().mean() < 0.01


def test_rendered_and_drawn_objects_look_alike():
    axis = np.linspace(-1, 1, 24, dtype=np.float32)
    x, y, z = np.meshgrid(axis, axis, axis, indexing="ij")
    field = np.minimum(
        np.hypot(np.hypot(x, y), z + 0.2) - 0.5, np.hypot(np.hypot(x, y - 0.3), z - 0.5) - 0.3
    )
    drawn = torch.from_numpy(np.array(draw_object(field, (96, 96)))).permute(2, 0, 1) / 255
    views = m.render(surface_of(field), 2, (96, 96))
    assert (views[0] - drawn).abs().mean() < 0.006
    assert (views[1] - drawn).abs().mean() > 0.02


def test_what_cannot_be_rendered():
    with pytest.raises(ValueError, match=r"into \[−1, 1\]³; got \[\[1.5,"):
        m.render(box(shift=2.0))
    with pytest.raises(ValueError, match="0 views"):
        m.render(box(), 0)
    with pytest.raises(Skipped, match="no surface"):
        m.render(trimesh.Trimesh())


@pytest.mark.parametrize(
    "package, of",
    [
        ("point_cloud_utils", m.surface_cd2),
        ("manifold3d", m.exact_iou),
        ("scipy.spatial", m.center_cd2),
    ],
)
def test_a_missing_package_is_named(package, of, monkeypatch):
    pair = box(), box()
    m.center_cd2(*pair)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"geoshrink-bench\[metrics\]"):
        of(*pair)
