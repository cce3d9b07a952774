"""What is remembered of one output slot: z¹, Δz, and three dot products. Two output-sized tensors,
never more.

z is the output itself, or the data prediction a·x + b·output where the plan works in data space.
Δz⁻ need not be kept: its norm is the Δz-norm of the anchor before, and its product with the new Δz
is taken just before the new one takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..blocks import PER_SAMPLE, Blocks
from ..grid import Track
from ..rules import Rule
from ..rules.retention import Statistics, dot
from ..tracing import bare, followed
from .correction import Closing, told
from .kernels import fused
from .sharding import add_up

#: Below this many coordinates one torch call is quicker to launch than a fused kernel.
LARGE = 1 << 20


class Slot:
    """The history of one output slot along its own σ-track."""

    def __init__(
        self,
        track: Track,
        data_space: bool,
        blocks: Blocks,
        mask: Tensor | None,
        dtype: torch.dtype,
        group: Any = None,
    ):
        self.track, self.data_space = track, data_space
        self.blocks, self.mask, self.dtype = blocks, mask, dtype
        self.reduce = None if group is None else partial(add_up, group=group)
        self.forget()

    def forget(self) -> None:
        self.z: Tensor | None = None
        self.dz: Tensor | None = None
        self.stats: Statistics | None = None
        self.finite: Tensor | None = None  # whether the innovation is, per block
        self.exact: Tensor | None = None  # whether the latest output is
        self.blind: Tensor | None = None  # whether the mask hides all of a sample
        self.kind: tuple | None = None
        self.moved: Any = None  # (the output, the state) that the solver goes on with
        self.correction: Tensor | None = None  # how far the state was moved, relative to ‖z_k‖
        self.evaluated: Statistics | None = None  # of the latest output, before it was moved

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in (self.z, self.dz) if t is not None)

    def observe(
        self,
        n: int,
        output: Tensor,
        x: Tensor | None,
        omega: Tensor | None = None,
        closing: Closing | None = None,
        state: Sequence[Tensor | None] = (),
    ) -> Tensor | None:
        """Takes in the exact output of stage n: Δz⁻ ← Δz, Δz ← z − z¹, z¹ ← z.

        Returns the self-check ‖v̂ − v‖/‖v‖ of each sample, v̂ predicted with ω. An innovation that is
        not finite counts as none: Δz = 0, so that this anchor is held and the next one finds
        Δz⁻ = 0, all without asking the device.

        With a closing the cell that ends here is put right: `moved` is then what the solver
        receives, and its state (x and what it stores) after the correction. z¹ is what the output
        moved to.
        """
        kernels, self.kind = self.kernels(output, omega), kind_of(output)
        self.moved, self.correction, self.evaluated = None, None, None
        quick = self.z is not None and kernels is not None
        if quick and (closing is None or self.fuses(output, closing, state)):
            output = output.detach().contiguous()
            return self.observe_fused(kernels, output, omega, closing, state)
        self.exact = bare(ends_of(output).isfinite())
        z = self.encode(n, output, x)
        if self.z is None:
            self.z = z if kernels is None else z.contiguous()
            return None
        with torch.no_grad():
            wrong, whole = self.error_sums(self.predict(n, omega, x), output)
        dz = z - self.z
        sums = {"S": self.dot(dz, dz), "wrong": wrong, "whole": whole}
        if self.mask is not None:
            sums["seen"] = PER_SAMPLE.sum(self.mask.expand(output.shape)).to(whole.dtype)
        if self.dz is not None:
            sums["D"] = self.dot(dz, self.dz)
        if closing is not None:
            sums["size"] = self.dot(self.z, self.z)
        if self.reduce is not None:
            sums = dict(zip(sums, self.reduce(list(sums.values()))))
        S = sums["S"]
        P, D = torch.zeros_like(S), torch.zeros_like(S)
        if self.dz is not None and self.stats is not None:
            P, D = self.stats.S, sums["D"]
        finite = S.isfinite()
        stats = Statistics(*torch.where(finite, torch.stack((S, P, D)), 0.0).unbind())
        usable = self.blocks.spread(finite, dz)
        if self.mask is not None:  # S has not seen all of Δz
            usable = usable & dz.isfinite()
        self.evaluated = stats
        if closing is not None:
            factor, d2 = closing.factor(stats, sums["size"], omega)
            self.correction = told(factor, d2, sums["size"])
            z, dz = self.move(closing, factor, z, output, state, usable)
            stats = closing.moved(stats, factor)
        self.z, self.dz, self.finite = z, torch.where(usable, dz, 0), bare(finite)
        self.stats = stats
        wrong = sums["wrong"]
        error = torch.where(wrong > 0, wrong / sums["whole"], wrong).sqrt()
        if self.mask is None:
            return bare(error)
        self.blind = bare(sums["seen"] == 0)
        return bare(torch.where(sums["seen"] == 0, torch.nan, error))

    def begin(self, n: int, output: Tensor, x: Tensor | None) -> None:
        """Takes in the first exact output of a regime: z¹ ← z. Δz stays that of the regime before:
        the jump between them is no innovation.
        """
        kernels, self.kind = self.kernels(output), kind_of(output)
        self.moved, self.correction, self.evaluated, self.finite = None, None, None, None
        self.exact = bare(ends_of(output).isfinite())
        z = self.encode(n, output, x)
        self.z = z if kernels is None else z.contiguous()

    def fuses(self, output: Tensor, closing: Closing, state: Sequence[Tensor | None]) -> bool:
        """Whether the fused kernels can move this state."""
        wide = torch.promote_types(output.dtype, self.dtype)
        parts = [t for t in state if t is not None]
        plain = not followed(*parts, closing.omega) and wide == torch.float32
        return plain and all(
            t.shape == output.shape
            and t.is_contiguous()
            and torch.promote_types(t.dtype, wide) == wide
            for t in parts
        )

    def dot(self, a: Tensor, b: Tensor) -> Tensor:
        return dot(a, b, self.blocks, self.mask, self.dtype)

    def move(
        self,
        closing: Closing,
        factor: Tensor,
        z: Tensor,
        output: Tensor,
        state: Sequence[Tensor | None],
        usable: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(z, Δz) after the correction; sets what the solver receives."""
        assert self.z is not None
        wide = torch.promote_types(z.dtype, self.dtype)
        ahead, behind = z.to(wide) - self.z, self.dz

        def moves(part: int) -> Tensor:
            d = self.blocks.spread(factor * closing.a[part], z) * ahead
            if behind is not None and closing.omega is not None:
                back = factor * closing.weight(part, factor)
                d = d - self.blocks.spread(back, z) * behind
            return torch.where(usable, d, 0)

        d = moves(0)
        after = list(state)
        for i, t in enumerate(state):
            if t is not None and not closing.idle[i]:
                after[i] = (t + (moves(i) if i else d)).to(t.dtype)
        self.moved = (output + (closing.received or 0.0) * d).to(output.dtype), after
        return (z + closing.kept * d).to(z.dtype), (ahead + closing.kept * d).to(z.dtype)

    def observe_fused(
        self,
        kernels: Any,
        output: Tensor,
        omega: Tensor | None,
        closing: Closing | None,
        state: Sequence[Tensor | None],
    ) -> Tensor:
        """The same in one pass over the output and the two held tensors; in two with a closing."""
        assert self.z is not None
        before = None if self.stats is None else self.stats.S
        self.dz = torch.empty_like(self.z) if self.dz is None else self.dz
        wide = torch.promote_types(output.dtype, self.dtype)
        held = output, self.z, self.dz, omega, before, wide, self.reduce
        if closing is None:
            found = kernels.anchor(*held)
            self.evaluated = found.stats
        else:
            found, *self.moved, self.correction, self.evaluated = kernels.close(
                *held, closing, state
            )
        self.stats, self.finite, self.exact = found.stats, found.usable, found.finite
        return found.error

    def kernels(self, output: Tensor, *others: Tensor | None) -> Any:
        """The fused kernels, where each sample of a plain output has one coefficient."""
        plain = not self.data_space and self.mask is None and self.blocks.groups is None
        if not plain or output.ndim == 0 or self.blocks.axes(output.ndim) != (0,):
            return None
        found, held = fused(output), [t for t in (self.z, self.dz) if t is not None]
        if found is None or followed(output, *held, *others):
            return None
        return found if all(t.is_contiguous() for t in held) else None

    def retains(self, rule: Rule) -> Any:
        """The fused kernels, where they know the rule."""
        if self.z is None or self.stats is None:
            return None
        kernels = self.kernels(self.z, *self.stats)
        return kernels if kernels is not None and kernels.retains(rule, self.stats) else None

    def predict(self, n: int, omega: Tensor | None, x: Tensor | None) -> Tensor:
        """z¹ + ω·Δz as an output; ω = None holds. Always a fresh tensor in the output's dtype."""
        assert self.z is not None and self.kind is not None
        if omega is None or self.dz is None:
            z = self.z.clone()
        elif self.z.numel() >= LARGE and (kernels := self.kernels(self.z, omega)):
            return kernels.combine(self.z, self.dz, omega)
        else:
            free = self.data_space or followed(self.z, self.dz, omega)
            out = None if free else torch.empty_like(self.z)
            z = torch.addcmul(self.z, self.blocks.spread(omega, self.z), self.dz, out=out)
        return self.decode(n, z, x).to(self.kind[1])

    def encode(self, n: int, output: Tensor, x: Tensor | None) -> Tensor:
        if not self.data_space or x is None:
            return output.clone()
        a, b = self.track.data_map(n)
        return a * x + b * output

    def decode(self, n: int, z: Tensor, x: Tensor | None) -> Tensor:
        if not self.data_space or x is None:
            return z
        a, b = self.track.data_map(n)
        return (z - a * x) / b if b else torch.zeros_like(z)

    def data_size(self, track: Track, n: int, output: Tensor, x: Tensor) -> Tensor:
        """‖x̂₀‖² of each sample, over the mask, and how many coordinates that are: (2, samples).

        track   what the output says about the data
        """
        a, b = track.data_map(n)
        with torch.no_grad():
            data = a * x.detach() + b * output.detach()
            size = dot(data, data, PER_SAMPLE, self.mask, self.dtype)
            seen = torch.full_like(size, output.shape[1:].numel())
            if self.mask is not None:
                seen = PER_SAMPLE.sum(self.mask.expand(output.shape)).to(size.dtype)
            found = [size, seen] if self.reduce is None else self.reduce([size, seen])
            return bare(torch.stack(list(found)))

    def error_sums(self, predicted: Tensor, output: Tensor) -> list[Tensor]:
        """‖v̂ − v‖² and ‖v‖² of each sample, over the mask."""
        exact = output.detach()
        wrong = predicted.detach().to(torch.promote_types(exact.dtype, self.dtype)) - exact
        return [dot(t, t, PER_SAMPLE, self.mask, self.dtype) for t in (wrong, exact)]

    def collapsed(
        self, stages: range, omega: Tensor | None, weights: Tensor | None, x: Tensor
    ) -> Tensor:
        """x after all of `stages` by Euler, in one update: A·x + (Σc_n)·z¹ + (Σc_n·ω_n)·Δz."""
        assert self.z is not None
        shrink, c = self.track.euler_weights(stages, self.data_space)
        if omega is None or weights is None or self.dz is None:
            return ((x if shrink == 1 else shrink * x) + sum(c) * self.z).to(x.dtype)
        total = (weights.reshape(-1, *[1] * (omega.ndim - 1)) * omega).sum(0)
        alike = self.z.shape == x.shape
        kernels = self.kernels(self.z, total, x) if alike else None
        if kernels is not None and x.is_contiguous() and total.dtype == torch.float32:
            return kernels.combine(self.z, self.dz, total, x, shrink, sum(c))
        moved = (x if shrink == 1 else shrink * x) + sum(c) * self.z
        return torch.addcmul(moved, self.blocks.spread(total, self.z), self.dz).to(x.dtype)


def ends_of(output: Tensor) -> Tensor:
    """The least and the largest coordinate; NaN where there is one."""
    if not output.numel():
        return output.detach().flatten()
    return torch.stack(torch.aminmax(output.detach()))


def kind_of(output: Tensor) -> tuple:
    return tuple(output.shape), output.dtype, output.device
