"""What real checkouts import and their loops do not need: viewers, tokenizers, CUDA attention."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def stub(name: str, **attributes: Any) -> None:
    """A module that stands in for one that the loop does not need."""
    module = MagicMock(__path__=[], __spec__=importlib.machinery.ModuleSpec(name, None))
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module


def package(name: str, path: Path) -> None:
    """A package whose __init__ is not run: it would import viewers and renderers."""
    module = ModuleType(name)
    module.__path__ = [str(path)]
    sys.modules[name] = module


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, q_ends: Tensor, k_ends: Tensor) -> Tensor:
    """Attention within each of the sequences that are packed one after another."""
    out = []
    for (a, b), (c, d) in zip(spans(q_ends), spans(k_ends)):
        one, two, three = (t.movedim(0, 1)[None] for t in (q[a:b], k[c:d], v[c:d]))
        out.append(F.scaled_dot_product_attention(one, two, three)[0].movedim(0, 1))
    return torch.cat(out)


def spans(ends: Tensor) -> list[tuple[int, int]]:
    return list(pairwise(ends.tolist()))


def stub_attention() -> None:
    """The interface of flash_attn that sparse attention needs, by PyTorch's own."""
    os.environ.update(ATTN_BACKEND="sdpa", SPARSE_ATTN_BACKEND="flash_attn")
    stub(
        "flash_attn",
        flash_attn_varlen_qkvpacked_func=lambda qkv, ends, _: varlen_attention(
            qkv[:, 0], qkv[:, 1], qkv[:, 2], ends, ends
        ),
        flash_attn_varlen_kvpacked_func=lambda q, kv, a, b, *_: varlen_attention(
            q, kv[:, 0], kv[:, 1], a, b
        ),
        flash_attn_varlen_func=lambda q, k, v, a, b, *_: varlen_attention(q, k, v, a, b),
    )


class Attributes(dict):
    """What easydict gives."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__  # type: ignore[assignment]


def shaken(network: nn.Module, std: float = 0.15) -> nn.Module:
    """Weights at random everywhere: upstream starts with zeros in its last layers."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
    return network.eval().requires_grad_(False)


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
