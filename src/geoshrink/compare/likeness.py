"""PSNR and SSIM of float pictures in [0, 1], shape (n, channels, height, width), one value each.

The definitions of scikit-image and torchmetrics, written out: geoshrink itself needs only torch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

WINDOW = 11  # pixels, of SSIM
SLACK = 0.5  # what a decoder may overshoot by; bytes and [−1, 1] are farther outside


def psnr(pictures: Tensor, reference: Tensor) -> Tensor:
    """10·log₁₀(1/MSE) in dB, higher is better; infinite for identical pictures."""
    check(pictures, reference)
    mse = (pictures.double() - reference.double()).square().flatten(1).mean(1)
    return -10 * mse.log10()


def ssim(pictures: Tensor, reference: Tensor, size: int = WINDOW, width: float = 1.5) -> Tensor:
    """Structural similarity (Wang et al., 2004), higher is better; Gaussian window, no padding.

    K₁ = 0.01, K₂ = 0.03, population covariances, mean over positions and channels.
    """
    check(pictures, reference)
    if min(pictures.shape[-2:]) < size:
        raise ValueError(
            f"SSIM needs pictures of at least {size}×{size}, got {pictures.shape[-2:]}"
        )
    x, y = pictures.double(), reference.double()
    channels = x.shape[1]
    offset = torch.arange(size, dtype=x.dtype, device=x.device) - (size - 1) / 2
    line = torch.exp(-offset.square() / (2 * width**2))
    line = line / line.sum()

    def blur(t: Tensor) -> Tensor:
        flat = t.flatten(0, 1)[:, None]
        both = F.conv2d(F.conv2d(flat, line.reshape(1, 1, -1, 1)), line.reshape(1, 1, 1, -1))
        return both.unflatten(0, (-1, channels)).squeeze(2)

    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    c1, c2 = 0.01**2, 0.03**2
    index = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    return index.flatten(1).mean(1)


def check(pictures: Tensor, reference: Tensor) -> None:
    """Two batches of one shape, of floats in [0, 1] or not far from it."""
    if pictures.shape != reference.shape or pictures.ndim != 4:
        raise ValueError(
            "pictures and reference must have the same shape (n, channels, height, width), got "
            f"{tuple(pictures.shape)} and {tuple(reference.shape)}"
        )
    for values, what in ((pictures, "picture"), (reference, "reference")):
        if not values.is_floating_point():
            raise ValueError(
                f"pictures must be floats in [0, 1], got a {what} of {values.dtype}: divide bytes "
                "by 255"
            )
        check_finite("pictures", values, what)
        low, high = (float(v) for v in values.aminmax()) if values.numel() else (0.0, 1.0)
        if low < -SLACK or high > 1 + SLACK:
            raise ValueError(
                f"pictures must be floats in [0, 1], got a {what} from {low:.3g} to {high:.3g}"
            )


def check_finite(name: str, values: Tensor, what: str) -> None:
    """Refuses a batch with NaN or infinite values, and says which sample."""
    bad = (~values.isfinite()).flatten(1).sum(1)
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"{name}: {int(bad[i])} values of {what} {i} are not finite")
