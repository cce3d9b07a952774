"""Clips in [0, 1], shape (n, channels, frames, height, width): FVD, frame by frame, flickering."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from geoshrink.compare.likeness import psnr, ssim

from .base import Metric, SetMetric
from .frechet import check_sets, frechet_distance
from .lpips import lpips
from .weights import load

Pairwise = Callable[[Tensor, Tensor], Tensor]
FEWEST = 9  # frames that I3D can look at


def fvd(clips: Tensor, reference: Tensor, weights: dict[str, Tensor] | None = None) -> float:
    """Fréchet video distance (Unterthiner et al., 2018) of RGB clips in [0, 1], lower is better.

    The Fréchet distance of the 400 logits of I3D: what frechet.py says of the number of samples
    holds, and here above all. It depends on the number of frames too.

    weights   of weights.load("i3d") (default)
    """
    check_sets(clips, reference)
    if clips.ndim != 5 or clips.shape[:3] != reference.shape[:3]:
        raise ValueError(
            "FVD needs clips (n, 3, frames, height, width) of as many frames as the references, "
            f"got {tuple(clips.shape)} and {tuple(reference.shape)}"
        )
    if weights is None:
        weights = load("i3d", device=clips.device)
    return frechet_distance(i3d_logits(clips, weights), i3d_logits(reference, weights))


@torch.no_grad()
def i3d_logits(clips: Tensor, weights: dict[str, Tensor], size: int = 224) -> Tensor:
    """Logits of Kinetics-400, one clip at a time, frames resized bilinearly to 224 pixels."""
    if clips.ndim != 5 or clips.shape[1] != 3 or clips.shape[2] < FEWEST:
        raise ValueError(
            f"I3D needs RGB clips (n, 3, frames, height, width) of at least {FEWEST} frames, got "
            f"{tuple(clips.shape)}"
        )
    parts = []
    for clip in clips.float():
        frames = F.interpolate(clip.transpose(0, 1), (size, size), mode="bilinear")
        parts.append(i3d(2 * frames.transpose(0, 1)[None] - 1, weights))
    return torch.cat(parts)


def i3d(x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """Inflated Inception (Carreira & Zisserman, 2017): clips (n, 3, t, 224, 224) in [−1, 1]."""

    def unit(x: Tensor, name: str, stride: int = 1) -> Tensor:
        kernel = weights[f"params.{name}.Conv_0.kernel"]
        stats = f"batch_stats.{name}.BatchNorm_0"
        mean, var = (weights[f"{stats}.{part}"].flatten() for part in ("mean", "var"))
        x = F.conv3d(same(x, tuple(kernel.shape[2:]), (stride,) * 3), kernel, stride=stride)
        bias = weights[f"params.{name}.BatchNorm_0.bias"]
        return F.batch_norm(x, mean, var, bias=bias, eps=1e-3).relu()

    def mixed(x: Tensor, name: str) -> Tensor:
        def branch(x: Tensor, i: int, *layers: str) -> Tensor:
            for layer in layers:
                x = unit(x, f"{name}.Branch_{i}/Conv3d_{layer}")
            return x

        return torch.cat(
            [
                branch(x, 0, "0a_1x1"),
                branch(x, 1, "0a_1x1", "0b_3x3"),
                branch(x, 2, "0a_1x1", "0b_3x3"),
                branch(pool(x, (3, 3, 3), (1, 1, 1)), 3, "0b_1x1"),
            ],
            1,
        )

    x = pool(unit(x, "Conv3d_1a_7x7", 2), (1, 3, 3), (1, 2, 2))
    x = pool(unit(unit(x, "Conv3d_2b_1x1"), "Conv3d_2c_3x3"), (1, 3, 3), (1, 2, 2))
    x = pool(mixed(mixed(x, "Mixed_3b"), "Mixed_3c"), (3, 3, 3), (2, 2, 2))
    for letter in "bcdef":
        x = mixed(x, f"Mixed_4{letter}")
    x = mixed(mixed(pool(x, (2, 2, 2), (2, 2, 2)), "Mixed_5b"), "Mixed_5c")
    kernel, bias = (weights[f"params.Logits/Conv3d_0c_1x1.Conv_0.{p}"] for p in ("kernel", "bias"))
    x = F.avg_pool3d(x, (2, *x.shape[3:]), 1)
    return F.conv3d(x, kernel, bias).mean((2, 3, 4))


def pool(x: Tensor, window: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    return F.max_pool3d(same(x, window, stride, -torch.inf), window, stride)


def same(x: Tensor, window: tuple[int, ...], stride: tuple[int, ...], value: float = 0.0) -> Tensor:
    """Padded as TensorFlow's "SAME": ⌈size/stride⌉ windows, what is odd at the end."""
    pads: list[int] = []
    for size, w, s in zip(reversed(x.shape[2:]), reversed(window), reversed(stride)):
        total = max((-(-size // s) - 1) * s + w - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads, value=value)


def per_frame(metric: Pairwise, clips: Tensor, reference: Tensor) -> Tensor:
    """The mean over the frames of each clip of a metric of pictures."""
    if clips.shape != reference.shape or clips.ndim != 5:
        raise ValueError(
            "clips and reference must have the same shape (n, channels, frames, height, width), "
            f"got {tuple(clips.shape)} and {tuple(reference.shape)}"
        )
    flat, other = (c.transpose(1, 2).flatten(0, 1) for c in (clips, reference))
    return metric(flat, other).unflatten(0, (len(clips), -1)).mean(1)


def temporal_flickering(clips: Tensor) -> Tensor:
    """1 − mean |difference of neighbouring frames|, per clip (VBench; Huang et al., 2024).

    Higher is steadier: of clips that should stand still. A clip that rightly moves scores less
    than a frozen one.
    """
    if clips.ndim != 5 or clips.shape[2] < 2:
        raise ValueError(
            "flickering needs clips (n, channels, frames, height, width) of two frames or more, "
            f"got {tuple(clips.shape)}"
        )
    return 1 - clips.double().diff(dim=2).abs().flatten(1).mean(1)


def of_frames(name: str, unit: str, higher: bool, metric: Pairwise, *needs: str) -> Metric:
    def of(clips: Tensor, reference: Tensor, lengths: Sequence[int] | None) -> Tensor:
        if lengths is not None:
            raise ValueError(f"{name} takes whole clips, got lengths {lengths}")
        return per_frame(metric, clips, reference)

    return Metric(f"{name} of frames", unit, higher, of, needs=needs)


def picture_psnr(values: Tensor, reference: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """Of pictures; of films the mean over frames."""
    return per_frame(psnr, values, reference) if values.ndim == 5 else psnr(values, reference)


PSNR = Metric("PSNR", "dB", True, picture_psnr)
SSIM = Metric("SSIM", "", True, lambda x, y, _: ssim(x, y))
FVD = SetMetric("FVD", "", False, fvd, "1: I3D, 400 logits, 224×224", ("i3d",))
FRAME_SSIM = of_frames("SSIM", "", True, ssim)
FRAME_LPIPS = of_frames("LPIPS alex", "", False, lpips, "lpips-alex")
FLICKERING = Metric("temporal flickering", "", True, lambda x, y, _: temporal_flickering(x))
