"""Fréchet distance of two sets of samples in a feature space, and FID.

The estimate is biased upwards, by more the fewer the samples. So two sets must have the same size,
and only distances at one size compare: also those to real data, whose moments are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .base import SetMetric
from .weights import load


@dataclass(frozen=True)
class Moments:
    """Of features (count, d) of real examples: mean (d), and factor A with AᵀA the covariance."""

    mean: Tensor
    factor: Tensor
    count: int


@torch.no_grad()
def moments(features: Tensor) -> Moments:
    """In float64; the covariance divides by n − 1."""
    if features.ndim != 2 or len(features) < 2 or not features.isfinite().all():
        raise ValueError(f"moments need two finite features (n, d), got {tuple(features.shape)}")
    x = features.double()
    spread = (x - x.mean(0)) / (len(x) - 1) ** 0.5
    rows = torch.linalg.qr(spread, mode="r").R if len(spread) > spread.shape[1] else spread
    return Moments(x.mean(0), rows, len(x))


def frechet_distance(features: Tensor, reference: Tensor) -> float:
    """‖μ₁ − μ₂‖² + tr(C₁ + C₂ − 2(C₁C₂)^½) of features (n, d) (Dowson & Landau, 1982), in float64.

    With C = AᵀA, the eigenvalues of (C₁C₂)^½ are the singular values of A₁A₂ᵀ: no matrix root is
    taken, and fewer samples than dimensions do no harm. Covariances divide by n − 1.
    """
    check_sets(features, reference)
    if features.shape != reference.shape or features.ndim != 2:
        raise ValueError(
            "the Fréchet distance needs two sets of features of one shape (n, d), got "
            f"{tuple(features.shape)} and {tuple(reference.shape)}"
        )
    if not (features.isfinite().all() and reference.isfinite().all()):
        raise ValueError("some features are infinite or no number: the samples are broken")
    return distance(moments(features), moments(reference))


def distance(a: Moments, b: Moments) -> float:
    """The Fréchet distance of two normal distributions with these moments."""
    cross = torch.linalg.svdvals(a.factor @ b.factor.T).sum()
    trace = a.factor.square().sum() + b.factor.square().sum() - 2 * cross
    return max(0.0, float((a.mean - b.mean).square().sum() + trace))


def check_sets(values: Tensor, reference: Tensor) -> None:
    if len(values) != len(reference) or len(values) < 2:
        raise ValueError(
            "a Fréchet distance compares sets of one size, at least 2, as its bias depends on the "
            f"size; got {len(values)} samples and {len(reference)} references"
        )


def fid(pictures: Tensor, reference: Tensor, weights: dict[str, Tensor] | None = None) -> float:
    """Fréchet Inception distance (Heusel et al., 2017) of RGB pictures in [0, 1], lower is better.

    weights   of weights.load("inception") (default)
    """
    check_sets(pictures, reference)
    if weights is None:
        weights = load("inception", device=pictures.device)
    return frechet_distance(
        inception_features(pictures, weights), inception_features(reference, weights)
    )


@torch.no_grad()
def inception_features(pictures: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The 2048 pooled features of the Inception network of December 2015 that FID was defined by.

    Pictures are rounded to 8 bits and resized to 299×299 as TensorFlow 1 did: linear between the
    pixels at i·size/299.
    """
    if pictures.ndim != 4 or pictures.shape[1] != 3:
        raise ValueError(f"FID needs RGB pictures (n, 3, h, w), got {tuple(pictures.shape)}")
    rows, columns = (resizing(size).to(pictures.device) for size in pictures.shape[2:])
    parts = []
    for part in pictures.float().split(16):
        pixels = (255 * part.clamp(0, 1)).round()
        parts.append(inception((rows @ pixels @ columns.T - 128) / 128, weights))
    return torch.cat(parts)


def resizing(size: int, to: int = 299) -> Tensor:
    """The matrix (to, size) of linear interpolation at i·size/to, constant past the last pixel."""
    place = torch.arange(to, dtype=torch.float64) * size / to
    distance = (place.clamp(max=size - 1)[:, None] - torch.arange(size)).abs()
    return (1 - distance).clamp(min=0).float()


def inception(x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """Inception v3 (Szegedy et al., 2015) up to its last pooling, of pictures in [−1, 1]."""

    def conv(x: Tensor, name: str, stride: int = 1, valid: bool = False) -> Tensor:
        w = {part: weights[f"net.layers.{name}.{part}"] for part in PARTS}
        padding = [0, 0] if stride == 2 or valid else [k // 2 for k in w["weight"].shape[2:]]
        x = F.conv2d(x, w["weight"], stride=stride, padding=padding)
        return F.batch_norm(x, w["mean"], w["var"], bias=w["beta"], eps=1e-3).relu()

    def tower(x: Tensor, name: str, stride: int = 1) -> Tensor:
        """All the convolutions of a branch, the last with the stride."""
        names = [f"{name}.conv", *(f"{name}.conv_{i}" for i in range(1, 5))]
        names = [n for n in names if f"net.layers.{n}.weight" in weights]
        for n in names[:-1]:
            x = conv(x, n)
        return conv(x, names[-1], stride)

    def mixed(x: Tensor, name: str) -> Tensor:
        branches = [conv(x, f"{name}.conv"), tower(x, f"{name}.tower")]
        branches += [tower(x, f"{name}.tower_1"), tower(average(x), f"{name}.tower_2")]
        return torch.cat(branches, 1)

    def split(x: Tensor, name: str) -> list[Tensor]:
        return [conv(x, f"{name}_mixed_conv"), conv(x, f"{name}_mixed_conv_1")]

    def wide(x: Tensor, name: str, pool: Callable[[Tensor], Tensor]) -> Tensor:
        deep = conv(conv(x, f"{name}.tower_1_conv"), f"{name}.tower_1_conv_1")
        branches = [conv(x, f"{name}.conv"), *split(conv(x, f"{name}.tower_conv"), f"{name}.tower")]
        branches += [*split(deep, f"{name}.tower_1"), conv(pool(x), f"{name}.tower_2_conv")]
        return torch.cat(branches, 1)

    x = conv(conv(conv(x, "conv", 2), "conv_1", valid=True), "conv_2")
    x = conv(conv(halved(x), "conv_3"), "conv_4", valid=True)
    x = mixed(mixed(mixed(halved(x), "mixed"), "mixed_1"), "mixed_2")
    x = torch.cat([conv(x, "mixed_3.conv", 2), tower(x, "mixed_3.tower", 2), halved(x)], 1)
    for i in range(4, 8):
        x = mixed(x, f"mixed_{i}")
    x = torch.cat([tower(x, f"mixed_8.{t}", 2) for t in ("tower", "tower_1")] + [halved(x)], 1)
    x = wide(wide(x, "mixed_9", average), "mixed_10", lambda x: F.max_pool2d(x, 3, 1, 1))
    return x.mean((2, 3))


PARTS = ("weight", "beta", "mean", "var")


def halved(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, 2)


def average(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


FID = SetMetric("FID", "", False, fid, "1: Inception of 2015, 8 bits", ("inception",))
