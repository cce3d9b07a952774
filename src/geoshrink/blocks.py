"""Blocks: which coordinates of an output share one coefficient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .checks import check_switch, whole


@dataclass(frozen=True)
class Blocks:
    """Which coordinates share one coefficient (Prop. gs-blockwise): by default each sample has its
    own.

    dims     the axes that are kept apart: (0,) samples, (0, 1) samples and channels, () one for the
             whole tensor
    groups   sizes of consecutive groups along the last of these axes, e.g. tokens (512, 4096) along
             axis 1
    shared   one coefficient per sample over all blocks and all slots, eq. gs-shared-solution
    """

    dims: tuple[int, ...] = (0,)
    groups: tuple[int, ...] | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.dims, (tuple, list)):
            raise TypeError(f"dims are the axes that are kept apart, a tuple; got {self.dims!r}")
        object.__setattr__(self, "dims", tuple(whole(d, "an axis of dims") for d in self.dims))
        if self.groups is not None:
            sizes = tuple(whole(g, "a size of groups") for g in self.groups)
            object.__setattr__(self, "groups", sizes)
            if not self.dims or min(self.groups, default=0) < 1:
                raise ValueError(
                    f"groups {self.groups} need positive sizes and an axis in dims to run along"
                )
        check_switch("blocks: shared", self.shared)
        if self.shared and 0 not in self.dims:
            raise ValueError(
                f"a shared coefficient is per sample: dims {self.dims} must contain axis 0"
            )

    def axes(self, ndim: int) -> tuple[int, ...]:
        """dims as sorted non-negative axes of a tensor with ndim axes."""
        if ndim == 0:
            return ()
        bad = [d for d in self.dims if not -ndim <= d < ndim]
        if bad:
            raise ValueError(f"blocks over axis {bad[0]}, but the output has {ndim} axes")
        return tuple(sorted({d % ndim for d in self.dims}))

    def sum(self, t: Tensor) -> Tensor:
        """Sums t within each block."""
        kept = self.axes(t.ndim)
        rest = tuple(d for d in range(t.ndim) if d not in kept)
        total = t.sum(rest) if rest else t
        if self.groups is None or not kept:
            return total
        axis = kept.index(self.dims[-1] % t.ndim)
        if sum(self.groups) != total.shape[axis]:
            raise ValueError(
                f"groups {self.groups} add up to {sum(self.groups)}, the axis has "
                f"{total.shape[axis]}"
            )
        return torch.stack([part.sum(axis) for part in total.split(list(self.groups), axis)], axis)

    def spread(self, omega: Tensor, like: Tensor) -> Tensor:
        """A coefficient per block → a tensor that broadcasts against the output."""
        kept = self.axes(like.ndim)
        if self.groups is not None and kept and omega.ndim == len(kept):
            axis = kept.index(self.dims[-1] % like.ndim)
            if omega.shape[axis] != 1:
                pairs = zip(omega.split(1, axis), self.groups)
                wide = [w.expand(*w.shape[:axis], n, *w.shape[axis + 1 :]) for w, n in pairs]
                omega = torch.cat(wide, axis)
        shape = [1] * like.ndim
        for axis, size in zip(kept, omega.shape):
            shape[axis] = size
        return omega.reshape(shape)


PER_SAMPLE = Blocks()
