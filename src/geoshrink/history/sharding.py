"""Outputs that several processes hold in parts: statistics are added up over a process group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import debug_unwrap


def check_group(group: Any) -> Any:
    """The process group over which outputs are sharded; None, and False, where they are whole."""
    if group is None or group is False:
        return None
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise ValueError(
            f"group={group!r} needs torch.distributed: call init_process_group first, or leave it "
            "out where one process holds the whole output"
        )
    return torch.distributed.group.WORLD if group is True else group


def add_up(sums: Any, group: Any) -> Any:
    """The same sums over all shards of the outputs, in float64: one all-reduce."""
    flat = torch.cat([s.double().flatten() for s in sums])
    if debug_unwrap(flat) is not flat:
        raise RuntimeError(
            f"group={group!r} adds up over processes, which torch.func cannot see through: leave "
            "the group out, or use autograd (backward) without vmap, grad or jvp around it"
        )
    flat = AddedUp.apply(flat, group)
    parts = flat.split([s.numel() for s in sums])
    total = [part.reshape(s.shape).to(s.dtype) for part, s in zip(parts, sums)]
    return torch.stack(total) if isinstance(sums, Tensor) else total


class AddedUp(torch.autograd.Function):
    """all_reduce, in place. What every process gets depends on all, so their gradients add up."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, group: Any) -> Tensor:  # type: ignore[override]
        ctx.group = group
        torch.distributed.all_reduce(flat, group=group)
        ctx.mark_dirty(flat)
        return flat

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return AddedUp.apply(gradient.clone(), ctx.group), None  # type: ignore[return-value]
