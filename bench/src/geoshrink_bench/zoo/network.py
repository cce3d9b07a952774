"""One small diffusion transformer for every modality: tokens in, velocity (ε, x₀) out.

Time and class enter by adaptive layer norm (Peebles & Xie, 2023), queries and keys are normalised
(QK-norm), and the index `classes` stands for "no class", so that one network serves both branches
of classifier-free guidance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Spread = Callable[[Tensor], Tensor]


class Patcher(nn.Module):
    """(batch, channels, *extent) ⟷ (batch, tokens, channels · prod(patch)), for any number of axes.

    >>> Patcher((3, 64, 64), (4, 4)).tokens, Patcher((3, 64, 64), (4, 4)).features
    (256, 48)
    """

    def __init__(self, shape: Sequence[int], patch: Sequence[int]):
        super().__init__()
        channels, *extent = shape
        if len(extent) != len(patch) or any(e % p for e, p in zip(extent, patch)):
            raise ValueError(f"patch {tuple(patch)} does not tile the extent {tuple(extent)}")
        self.channels, self.patch = channels, tuple(patch)
        self.counts = tuple(e // p for e, p in zip(extent, patch))
        self.tokens, self.features = math.prod(self.counts), channels * math.prod(patch)

    def fold(self, x: Tensor) -> Tensor:
        d = len(self.patch)
        pairs = [side for pair in zip(self.counts, self.patch) for side in pair]
        order = [0, *range(2, 2 * d + 1, 2), 1, *range(3, 2 * d + 2, 2)]
        x = x.reshape(len(x), self.channels, *pairs).permute(order)
        return x.reshape(len(x), self.tokens, self.features)

    def unfold(self, tokens: Tensor) -> Tensor:
        d = len(self.patch)
        x = tokens.reshape(len(tokens), *self.counts, self.channels, *self.patch)
        order = [0, d + 1, *(axis for i in range(d) for axis in (1 + i, d + 2 + i))]
        extent = [c * p for c, p in zip(self.counts, self.patch)]
        return x.permute(order).reshape(len(tokens), self.channels, *extent)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.q_norm = nn.RMSNorm(width // heads)
        self.k_norm = nn.RMSNorm(width // heads)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, attn_mask=seen)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """x + gate·f(scale·norm(x) + shift), once for attention and once for the MLP (adaLN-zero)."""

    def __init__(self, width: int, heads: int, condition: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = zeroed(nn.Linear(condition, 6 * width))

    def forward(self, x: Tensor, c: Tensor, spread: Spread, seen: Tensor | None) -> Tensor:
        mods = spread(self.modulation(c)).chunk(6, -1)
        shift1, scale1, gate1, shift2, scale2, gate2 = mods
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1, seen)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class Trunk(nn.Module):
    """The blocks, and what conditions them: σ and a class; `spread` says which σ a token has."""

    def __init__(
        self, classes: int, width: int = 256, depth: int = 6, heads: int = 4, condition: int = 96
    ):
        super().__init__()
        self.classes, self.width = classes, width
        self.label = nn.Embedding(classes + 1, condition)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, condition))
        self.blocks = nn.ModuleList(Block(width, heads, condition) for _ in range(depth))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = zeroed(nn.Linear(condition, 2 * width))

    @property
    def device(self) -> torch.device:
        return self.label.weight.device

    def condition(self, sigma: Tensor, label: Tensor) -> Tensor:
        """(batch, σ-grids, condition) from σ (batch, σ-grids) and label (batch,)."""
        waves = frequencies(sigma).to(self.label.weight.dtype)
        return F.silu(self.time(waves) + self.label(label)[:, None])

    def trunk(self, h: Tensor, c: Tensor, spread: Spread, seen: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            h = block(h, c, spread, seen)
        shift, scale = spread(self.modulation(c)).chunk(2, -1)
        return self.norm(h) * (1 + scale) + shift


class DiT(Trunk):
    """output = DiT(x, σ, label); label == classes means "no class".

    `length`, for a one-dimensional extent, is the number of tokens of each sample that are not
    padding: padding is not looked at, and its output is zero.
    """

    def __init__(self, shape: Sequence[int], patch: Sequence[int], classes: int, **size: int):
        super().__init__(classes, **size)
        self.patcher = Patcher(shape, patch)
        self.embed = nn.Linear(self.patcher.features, self.width)
        self.position = nn.Parameter(0.02 * torch.randn(self.patcher.tokens, self.width))
        self.head = zeroed(nn.Linear(self.width, self.patcher.features))

    def forward(
        self, x: Tensor, sigma: Tensor, label: Tensor, length: Tensor | None = None
    ) -> Tensor:
        h = self.embed(self.patcher.fold(x)) + self.position
        valid = None
        if length is not None:
            valid = torch.arange(self.patcher.tokens, device=x.device) < length[:, None]
        seen = None if valid is None else valid[:, None, None]
        h = self.trunk(h, self.condition(sigma[:, None], label), lambda m: m, seen)
        out = self.head(h)
        if valid is not None:
            out = out * valid[..., None]
        return self.patcher.unfold(out)


class JointDiT(Trunk):
    """outputs = JointDiT(xs, σ, label): several modalities in one sequence, each at its own σ.

    xs is one tensor per modality, σ is (batch, modalities).
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        patches: Sequence[Sequence[int]],
        classes: int,
        **size: int,
    ):
        super().__init__(classes, **size)
        width = self.width
        patchers = [Patcher(*pair) for pair in zip(shapes, patches)]
        self.patchers = nn.ModuleList(patchers)
        self.sizes = [p.tokens for p in patchers]
        self.embeds = nn.ModuleList(nn.Linear(p.features, width) for p in patchers)
        self.position = nn.Parameter(0.02 * torch.randn(sum(self.sizes), width))
        self.heads = nn.ModuleList(zeroed(nn.Linear(width, p.features)) for p in patchers)

    def forward(
        self, xs: Sequence[Tensor], sigma: Tensor, label: Tensor, length: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        folded = [p.fold(x) for p, x in zip(self.patchers, xs)]  # type: ignore[operator]
        h = torch.cat([embed(f) for embed, f in zip(self.embeds, folded)], 1) + self.position
        h = self.trunk(h, self.condition(sigma, label), self.spread)
        parts = zip(self.patchers, self.heads, h.split(self.sizes, 1))
        return tuple(p.unfold(head(part)) for p, head, part in parts)  # type: ignore[operator]

    def spread(self, m: Tensor) -> Tensor:
        """(batch, modalities, n) → (batch, tokens, n)."""
        parts = [m[:, i : i + 1].expand(-1, size, -1) for i, size in enumerate(self.sizes)]
        return torch.cat(parts, 1)


def asked(
    network: nn.Module, xs: Sequence[Tensor], sigma: Tensor, label: Tensor, length: Tensor | None
) -> tuple[Tensor, ...]:
    """The outputs for xs at σ (batch, parts), also of a network that knows one part only."""
    if len(xs) > 1:
        return network(tuple(xs), sigma, label, length)
    return (network(xs[0], sigma[:, 0], label, length),)


def frequencies(sigma: Tensor, dim: int = 256) -> Tensor:
    """cos and sin of 1000·σ at geometrically spaced frequencies (Vaswani et al., 2017)."""
    ladder = torch.arange(dim // 2, device=sigma.device, dtype=torch.float32) / (dim // 2)
    angle = 1000 * sigma[..., None].float() * torch.exp(-math.log(10000) * ladder)
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


def zeroed(linear: nn.Linear) -> nn.Linear:
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
