"""PSNR and SSIM against scikit-image and against cases known in closed form."""

from __future__ import annotations

import math

import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from geoshrink.compare.likeness import psnr, ssim


def pictures(n=3, channels=3, height=24, width=31, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, channels, height, width, generator=generator, dtype=torch.float64)


def test_psnr_of_a_constant_error():
    x = torch.full((2, 3, 8, 8), 0.25)
    assert psnr(x + torch.tensor([0.1, 0.01]).reshape(2, 1, 1, 1), x).tolist() == pytest.approx(
        [20, 40], abs=1e-4
    )
    assert psnr(x, x).tolist() == [math.inf, math.inf]


def test_psnr_equals_scikit_image_per_picture():
    x, y = pictures(), pictures(seed=1)
    wanted = [peak_signal_noise_ratio(b.numpy(), a.numpy(), data_range=1) for a, b in zip(x, y)]
    assert psnr(x, y).tolist() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
def test_ssim_equals_scikit_image_on_the_valid_positions(channels):
    x = pictures(channels=channels)
    y = (x + 0.2 * pictures(channels=channels, seed=1)).clamp(0, 1)
    maps = [
        structural_similarity(
            a.numpy(),
            b.numpy(),
            data_range=1,
            channel_axis=0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            full=True,
        )[1][:, 5:-5, 5:-5].mean()
        for a, b in zip(x, y)
    ]
    assert ssim(x, y).tolist() == pytest.approx(maps, rel=1e-9)


def test_ssim_of_itself_is_one_and_falls_with_noise():
    x = pictures()
    values = [float(ssim(x, x + s * pictures(seed=2)).mean()) for s in (0.0, 0.1, 0.5)]
    assert values[0] == pytest.approx(1) and values[0] > values[1] > values[2]


def test_shapes_that_do_not_fit_are_quoted():
    with pytest.raises(ValueError, match=r"\(3, 3, 24, 31\) and \(2, 3, 24, 31\)"):
        psnr(pictures(), pictures(2))
    with pytest.raises(ValueError, match="at least 11"):
        ssim(torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8))


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_what_is_no_picture_in_0_to_1_is_refused(metric):
    """Bytes one level apart were −0 dB; 0.4 outside is measured as it is."""
    x = pictures()
    bytes_ = (255 * x).byte()
    with pytest.raises(ValueError, match=r"a picture of torch\.uint8: divide bytes by 255"):
        metric(bytes_, bytes_ ^ 1)
    with pytest.raises(ValueError, match=r"got a reference from 0.* to 25\d"):
        metric(x, 255 * x)
    with pytest.raises(ValueError, match=r"got a picture from -\d.* to"):
        metric(2 * x - 1, x)
    broken = x.clone()
    broken[1, 0, 5, 5:7] = torch.tensor([math.nan, math.inf])
    with pytest.raises(ValueError, match="2 values of reference 1 are not finite"):
        metric(x, broken)
    assert metric(x + 0.4, x).isfinite().all() and metric(x[:0], x[:0]).shape == (0,)
