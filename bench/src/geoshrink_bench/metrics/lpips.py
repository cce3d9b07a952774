"""LPIPS of float pictures in [0, 1], shape (n, channels, height, width), one value per pair."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from geoshrink.compare.likeness import check

from .base import Metric
from .weights import load

# per network: its name among the weights, the smallest side it sees anything in, and its five
# stages, each (the window of the pooling before it, its number of convolutions)
NETS = {
    "alex": ("AlexNet_0", 31, ((0, 1), (3, 1), (3, 1), (0, 1), (0, 1))),
    "vgg": ("VGG16_0", 16, ((0, 2), (2, 2), (2, 3), (2, 3), (2, 3))),
}
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of pictures in [−1, 1]
PIXELS = 2**19  # of pictures that go through the network together


@torch.no_grad()
def lpips(
    pictures: Tensor,
    reference: Tensor,
    net: str = "alex",
    weights: dict[str, Tensor] | None = None,
) -> Tensor:
    """Learned perceptual distance (Zhang et al., 2018), version 0.1, lower is better, 0 for equal.

    Σ_layers mean over places of Σ_channels w·(x̂ − ŷ)²: x̂ and ŷ are features of a network trained on
    ImageNet, of length one at each place, w ≥ 0 what was fitted to human judgement. The values of
    the two networks differ a lot: never mix them in one column. Grey pictures count as equal RGB.

    net       "alex" or "vgg"
    weights   of weights.load("lpips-alex") or ("lpips-vgg") (default)
    """
    check(pictures, reference)
    if net not in NETS:
        raise ValueError(f"LPIPS has the networks {', '.join(NETS)}; got {net!r}")
    _, channels, height, width = pictures.shape
    _, smallest, _ = NETS[net]
    if channels not in (1, 3) or min(height, width) < smallest:
        raise ValueError(
            f"LPIPS ({net}) needs grey or RGB pictures of at least {smallest}×{smallest}, got "
            f"{tuple(pictures.shape)}"
        )
    if weights is None:
        weights = load(f"lpips-{net}", device=pictures.device)
    size = max(1, PIXELS // (height * width))
    parts = zip(pictures.split(size), reference.split(size))
    return torch.cat([distances(x, y, net, weights) for x, y in parts])


def distances(x: Tensor, y: Tensor, net: str, weights: dict[str, Tensor]) -> Tensor:
    shift, scale = (x.new_tensor(c, dtype=torch.float32)[:, None, None] for c in (SHIFT, SCALE))
    pair = [stages((2 * p.float() - 1 - shift) / scale, net, weights) for p in (x, y)]
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for stage, features in enumerate(zip(*pair)):
        a, b = (f / (f.norm(dim=1, keepdim=True) + 1e-10) for f in features)
        head = weights[f"NetLinLayer_{stage}.Conv_0.kernel"]
        total += F.conv2d((a - b).square(), head).double().mean((1, 2, 3))
    return total


def stages(x: Tensor, net: str, weights: dict[str, Tensor]) -> Iterator[Tensor]:
    """The features after each of the five stages, one at a time."""
    name, _, layout = NETS[net]
    layer = 0
    for window, convolutions in layout:
        if window:
            x = F.max_pool2d(x, window, 2)
        for _ in range(convolutions):
            kernel, bias = (weights[f"{name}.Conv_{layer}.{part}"] for part in ("kernel", "bias"))
            stride, padding = (4, 2) if kernel.shape[-1] == 11 else (1, kernel.shape[-1] // 2)
            x = F.conv2d(x, kernel, bias, stride, padding).relu()
            layer += 1
        yield x


def lpips_metric(net: str) -> Metric:
    def of(pictures: Tensor, reference: Tensor, lengths: object) -> Tensor:
        return lpips(pictures, reference, net)

    return Metric(f"LPIPS {net}", "", False, of, "1: v0.1", (f"lpips-{net}",))


LPIPS_ALEX, LPIPS_VGG = lpips_metric("alex"), lpips_metric("vgg")
