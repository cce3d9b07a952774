"""Who follows a tensor: autograd, forward differentiation, or a transform of torch.func.

What is followed goes through plain torch, nothing in place; the record gets the bare numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import debug_unwrap


def followed(*tensors: Tensor | None) -> bool:
    """Whether a derivative or a transform would miss what is done to these tensors in place."""
    return transformed(*tensors) or any(t is not None and t.requires_grad for t in tensors)


def transformed(*tensors: Tensor | None) -> bool:
    """Whether there are no numbers to be had: it is compiled, or under a transform."""
    if torch.compiler.is_compiling() or forward_ad._current_level >= 0:
        return True
    return any(t is not None and debug_unwrap(t) is not t for t in tensors)


def bare(t: Tensor) -> Tensor:
    """The numbers alone. Under vmap they are those of the whole batch."""
    if not followed(t):
        return t
    t = t.detach()
    return t if torch.compiler.is_compiling() else debug_unwrap(t)
