"""Fused GPU forms of the hot operations, with the results of slot.py up to rounding.

Triton is imported when the first tensor on a GPU comes along, and only if it is there.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
from typing import Any

import torch
from torch import Tensor

DTYPES = {torch.bfloat16, torch.float16, torch.float32, torch.float64}
logger = logging.getLogger("geoshrink")


def fused(like: Tensor) -> Any:
    """The module of fused kernels where they can run on this tensor, else None."""
    if not like.is_cuda or not like.numel() or like.dtype not in DTYPES:
        return None
    if torch.compiler.is_compiling():  # a compiler fuses plain torch itself
        return None
    return compiled(like.dtype, like.device)


@functools.cache
def compiled(dtype: torch.dtype, device: torch.device) -> Any:
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        module = importlib.import_module("geoshrink.history.kernels.triton")
        module.check(dtype, device)
        return module
    except Exception as error:  # no compiler, an unknown device: torch does the same in more passes
        logger.info("geoshrink: Triton cannot be used (%s): plain torch instead", error)
        return None
