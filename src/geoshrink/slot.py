"""What is remembered of one output slot: z¹, Δz, and three dot products. Two output-sized tensors,
never more.

z is the output itself, or the data prediction a·x + b·output where the plan works in data space.
Δz⁻ need not be kept: its norm is the Δz-norm of the anchor before, and its product with the new Δz
is taken just before the new one takes its place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .grid import Track
from .retention import PER_SAMPLE, Blocks, Statistics, dot


class Slot:
    """The history of one output slot along its own σ-track."""

    def __init__(
        self,
        track: Track,
        data_space: bool,
        blocks: Blocks,
        mask: Tensor | None,
        dtype: torch.dtype,
    ):
        self.track, self.data_space = track, data_space
        self.blocks, self.mask, self.dtype = blocks, mask, dtype
        self.forget()

    def forget(self) -> None:
        self.z: Tensor | None = None
        self.dz: Tensor | None = None
        self.stats: Statistics | None = None
        self.finite: Tensor | None = None
        self.kind: tuple | None = None

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in (self.z, self.dz) if t is not None)

    def observe(self, n: int, output: Tensor, x: Tensor | None) -> None:
        """Takes in the exact output of stage n: Δz⁻ ← Δz, Δz ← z − z¹, z¹ ← z.

        An innovation that is not finite counts as none: Δz = 0, so that this anchor is held and the
        next one finds Δz⁻ = 0, all without asking the device.
        """
        z = self.encode(n, output, x)
        if self.z is not None:
            dz = z - self.z
            S = dot(dz, dz, self.blocks, self.mask, self.dtype)
            P, D = torch.zeros_like(S), torch.zeros_like(S)
            if self.dz is not None and self.stats is not None:
                P, D = self.stats.S, dot(dz, self.dz, self.blocks, self.mask, self.dtype)
            self.finite = S.isfinite()
            usable = self.blocks.spread(self.finite, dz) & dz.isfinite()
            self.dz = torch.where(usable, dz, 0)
            self.stats = Statistics(*(torch.where(self.finite, value, 0) for value in (S, P, D)))
        self.z, self.kind = z, kind_of(output)

    def predict(self, n: int, omega: Tensor | None, x: Tensor | None) -> Tensor:
        """z¹ + ω·Δz as an output; ω = None holds. Always a fresh tensor in the output's dtype."""
        assert self.z is not None and self.kind is not None
        if omega is None or self.dz is None:
            z = self.z.clone()
        else:
            z = self.z + self.blocks.spread(omega, self.z) * self.dz
        return self.decode(n, z, x).to(self.kind[1])

    def encode(self, n: int, output: Tensor, x: Tensor | None) -> Tensor:
        if not self.data_space or x is None:
            return output.detach().clone()
        a, b = self.track.data_map(n)
        return (a * x + b * output).detach()

    def decode(self, n: int, z: Tensor, x: Tensor | None) -> Tensor:
        if not self.data_space or x is None:
            return z
        a, b = self.track.data_map(n)
        return (z - a * x) / b if b else torch.zeros_like(z)

    def error(self, predicted: Tensor, output: Tensor) -> Tensor:
        """‖v̂ − v‖/‖v‖ of each sample, over the mask."""
        exact = output.detach()
        wrong = predicted.detach().to(torch.promote_types(exact.dtype, self.dtype)) - exact
        norms = [dot(t, t, PER_SAMPLE, self.mask, self.dtype) for t in (wrong, exact)]
        return torch.where(norms[0] > 0, norms[0] / norms[1], norms[0]).sqrt()

    def collapsed(
        self, stages: range, omega: Tensor | None, weights: Tensor | None, x: Tensor
    ) -> Tensor:
        """x after all of `stages` by Euler, in one update: A·x + (Σc_n)·z¹ + (Σc_n·ω_n)·Δz."""
        assert self.z is not None
        shrink, c = self.euler_weights(stages)
        moved = (x if shrink == 1 else shrink * x) + sum(c) * self.z
        if omega is not None and weights is not None and self.dz is not None:
            total = (weights.reshape(-1, *[1] * (omega.ndim - 1)) * omega).sum(0)
            moved = moved + self.blocks.spread(total, self.z) * self.dz
        return moved.to(x.dtype)

    def euler_weights(self, stages: range) -> tuple[float, list[float]]:
        """(A, c) with x_end = A·x_begin + Σ c_n·z_n over the stages, from x' = p·x + g·output."""
        shrink, weights = 1.0, []
        for n in reversed(stages):
            p, g = self.track.euler(n)
            if self.data_space:
                a, b = self.track.data_map(n)
                p, g = (p - g * a / b, g / b) if b else (1.0, 0.0)
            weights.append(g * shrink)
            shrink *= p
        return shrink, weights[::-1]


def kind_of(output: Tensor) -> tuple:
    return tuple(output.shape), output.dtype, output.device
