"""Errors of motions and retrieval: analytic cases, scikit-learn, what they must not see."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import paired_euclidean_distances

from geoshrink_bench.metrics.motion import ACC_ERR, GLOBAL_MPJPE, RA_MPJPE, ROOT_ERR, VEL_ERR

ALL = (RA_MPJPE, GLOBAL_MPJPE, ROOT_ERR, VEL_ERR, ACC_ERR)


def clips(seed=0, batch=3, frames=7, joints=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, frames, joints, 3, generator=generator, dtype=torch.float64)


def errors(joints, reference, lengths=None):
    return [metric.of(joints, reference, lengths).tolist() for metric in ALL]


# Metres added to every joint of frame t, and what RA, Global, Root, Vel and Acc make of it, in mm.
ADDED = {
    "nothing": (lambda t: 0 * t, (0, 0, 0, 0, 0)),
    "a shift of 100 mm": (lambda t: 0.1 + 0 * t, (0, 100, 100, 0, 0)),
    "a drift of 2 mm/frame": (lambda t: 0.002 * t, (0, 10, 10, 2, 0)),
    "1 mm/frame² from rest": (lambda t: 0.0005 * t**2, (0, 17.5, 17.5, 5, 1)),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_a_shift_and_a_drift_read(name):
    added, wanted = ADDED[name]
    way = torch.tensor([2.0, -1.0, 2.0], dtype=torch.float64) / 3
    moved = clips(frames=11) + added(torch.arange(11, dtype=torch.float64))[:, None, None] * way
    for found, want in zip(errors(moved, clips(frames=11)), wanted):
        assert found == pytest.approx([want] * 3, abs=1e-9)


def test_one_joint_off():
    """The root is one of the joints of a mean, and only the root is RootErr's."""
    reference = clips(joints=4)
    hand, hips = reference.clone(), reference.clone()
    hand[:, :, 3, 1] += 0.04
    hips[:, :, 0, 1] += 0.04
    for moved, wanted in ((hand, (10, 10, 0, 0, 0)), (hips, (30, 10, 40, 0, 0))):
        for found, want in zip(errors(moved, reference), wanted):
            assert found == pytest.approx([want] * 3, abs=1e-9)


def test_all_equal_scikit_learn_frame_by_frame():
    x, y, lengths = clips(), clips(1), [7, 3, 5]
    for i, n in enumerate(lengths):
        a, b = x[i, :n].numpy(), y[i, :n].numpy()
        pairs = (
            (RA_MPJPE, a - a[:, [0]], b - b[:, [0]]),
            (GLOBAL_MPJPE, a, b),
            (ROOT_ERR, a[:, 0], b[:, 0]),
            (VEL_ERR, np.diff(a, axis=0), np.diff(b, axis=0)),
            (ACC_ERR, np.diff(a, 2, axis=0), np.diff(b, 2, axis=0)),
        )
        for metric, p, q in pairs:
            want = 1000 * paired_euclidean_distances(p.reshape(-1, 3), q.reshape(-1, 3)).mean()
            assert float(metric.of(x, y, lengths)[i]) == pytest.approx(want, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(3, 7), min_size=1, max_size=4),
    st.sampled_from([0.0, 1e9, math.nan, math.inf]),
)
def test_rotation_neighbours_and_padding_change_nothing(seed, lengths, padding):
    x, y = clips(seed, len(lengths)), clips(seed + 1, len(lengths))
    alone = [errors(x[[i], :n], y[[i], :n]) for i, n in enumerate(lengths)]
    turn = torch.linalg.qr(clips(seed + 2)[0, 0, :3])[0]
    x, y = x @ turn, y @ turn
    for i, n in enumerate(lengths):
        x[i, n:] = padding
    for m, found in enumerate(errors(x, y, lengths)):
        assert found == pytest.approx([clip[m][0] for clip in alone], rel=1e-9)


@pytest.mark.parametrize("metric", ALL, ids=lambda m: m.name)
def test_what_is_no_number_is_refused(metric):
    """Where it counts: in the padding it may stand."""
    x, y = clips(), clips(1)
    x[1, 2, 0, 0] = math.nan
    with pytest.raises(ValueError, match="1 values of clip 1 are not finite"):
        metric.of(x, y, None)
    with pytest.raises(ValueError, match="1 values of reference 1 are not finite"):
        metric.of(y, x, None)


@pytest.mark.parametrize("metric, least", [(VEL_ERR, 2), (ACC_ERR, 3)])
def test_clips_that_are_too_short_are_quoted(metric, least):
    x = clips(batch=2)
    metric.of(x, x, [least, 7])
    with pytest.raises(
        ValueError, match=rf"at least {least} frames, got lengths \[7, {least - 1}\]"
    ):
        metric.of(x, x, [7, least - 1])


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_bad_clips_are_quoted(metric):
    x = clips(batch=2)
    for bad in (x[:1], x[..., :2], x[0], x[:, :0]):
        with pytest.raises(ValueError, match="one shape"):
            metric.of(x, bad, None)
        with pytest.raises(ValueError, match="one shape"):
            metric.of(bad, x, None)
    for empty in (x[:, :0], x[:, :, :0]):
        with pytest.raises(ValueError, match="one shape"):
            metric.of(empty, empty, None)
    for lengths in ([7], [7, 8], [0, 7], [7, 3.5], []):
        with pytest.raises(ValueError, match="2 numbers from 1 to 7"):
            metric.of(x, x, lengths)


def test_names_and_units():
    assert {m.name: m.unit for m in ALL} == {
        "RA-MPJPE": "mm",
        "Global MPJPE": "mm",
        "RootErr": "mm",
        "VelErr": "mm/frame",
        "AccErr": "mm/frame²",
    }
    assert not any(m.higher or m.needs for m in ALL)
