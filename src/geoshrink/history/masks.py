"""Masks: which coordinates the statistics see. True (or 1) is seen, False (or 0) is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..tracing import bare


def check_mask(mask: Any) -> Any:
    """The mask, or one per slot, as booleans. Reads it, unless it is boolean: once, when given."""
    if mask is None or (isinstance(mask, Tensor) and mask.dtype == torch.bool):
        return mask
    if isinstance(mask, Mapping):
        return {key: check_mask(part) for key, part in mask.items()}
    if isinstance(mask, (list, tuple)):
        return [check_mask(part) for part in mask]
    if not isinstance(mask, Tensor):
        raise TypeError(f"a mask is a boolean tensor, or one per output tensor; got {mask!r}")
    values = torch.empty(0) if mask.is_meta else bare(mask).flatten()
    bad = values[(values != 0) & (values != 1)].tolist()
    if bad:
        raise ValueError(
            f"a mask is True (or 1) where a coordinate is seen and False (or 0) elsewhere, but "
            f"this one holds {bad[0]}: give mask == 0 if it is additive (0 and −inf), "
            "mask > 0.5 if it is a weight"
        )
    return mask.bool()


def fit_masks(mask: Any, leaves: Sequence[Tensor]) -> list[Tensor | None]:
    """One mask per slot, on its device; anything that does not broadcast is an error."""
    if isinstance(mask, Mapping):
        mask = [mask[key] for key in sorted(mask, key=str)]
    masks: list[Any] = list(mask) if isinstance(mask, list) else [mask] * len(leaves)
    if len(masks) != len(leaves):
        raise ValueError(f"{len(masks)} masks for {len(leaves)} output tensors")
    return [None if m is None else fit(m, leaf) for m, leaf in zip(masks, leaves)]


def fit(mask: Tensor, leaf: Tensor) -> Tensor:
    try:
        fits = torch.broadcast_shapes(mask.shape, leaf.shape) == leaf.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not broadcast to the output of shape "
            f"{tuple(leaf.shape)}"
        )
    return mask.to(leaf.device)
