"""SI-SDR, MPJPE and the error of a signed distance: analytic cases, and what they must not see."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoshrink.bench.metrics.audio import si_sdr
from geoshrink.bench.metrics.motion import mpjpe
from geoshrink.bench.metrics.shape import sdf_error


def test_si_sdr_of_orthogonal_noise():
    """A tenth of the amplitude, at right angles: 20 dB, at any volume and offset."""
    t = torch.arange(800, dtype=torch.float64) * 2 * math.pi / 100
    wave, noise = t.sin()[None], t.cos()[None]
    for gain, offset in ((1.0, 0.0), (7.0, 0.3), (-2.0, 0.0)):
        assert float(si_sdr(gain * (wave + 0.1 * noise) + offset, wave)) == pytest.approx(20)


def test_si_sdr_is_that_of_numpy():
    rng = np.random.default_rng(0)
    w, r = rng.normal(size=(2, 3, 500))
    want = []
    for x, y in zip(w - w.mean(1, keepdims=True), r - r.mean(1, keepdims=True)):
        part = np.dot(x, y) / np.dot(y, y) * y
        want.append(10 * np.log10(np.dot(part, part) / np.dot(x - part, x - part)))
    assert si_sdr(torch.tensor(w), torch.tensor(r)).tolist() == pytest.approx(want)


def test_si_sdr_of_silence_is_no_number():
    assert si_sdr(torch.ones(1, 8), torch.zeros(1, 8)).isnan().all()


def test_mpjpe_is_a_distance_in_space():
    joints = torch.zeros(2, 4, 3, 3)
    moved = joints + torch.tensor([3.0, 0.0, 4.0])
    assert mpjpe(moved, joints).tolist() == [5, 5]
    moved[0, 2:] = 1e6  # padding
    assert mpjpe(moved, joints, lengths=[2, 4]).tolist() == [5, 5]
    half = joints.clone()
    half[:, :, 0] = 3.0
    assert mpjpe(half, joints).tolist() == pytest.approx([math.sqrt(27) / 3] * 2)


def test_sdf_error_is_a_mean():
    fields = torch.zeros(2, 2, 2, 2)
    other = fields.clone()
    other[1, 0] = -0.1
    assert sdf_error(other, fields).tolist() == pytest.approx([0, 0.05])


@pytest.mark.parametrize(
    "metric, shape", [(si_sdr, (2, 8)), (mpjpe, (2, 4, 5, 3)), (sdf_error, (2, 3, 3, 3))]
)
def test_other_shapes_are_quoted(metric, shape):
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        metric(torch.zeros(1, 2), torch.zeros(shape))


@pytest.mark.parametrize("lengths", [[2], [0, 2], [2, 5]])
def test_lengths_that_do_not_fit_are_quoted(lengths):
    joints = torch.zeros(2, 4, 3, 3)
    with pytest.raises(ValueError, match="2 numbers from 1 to 4"):
        mpjpe(joints, joints, lengths)
