"""Who is calling: the code that called a denoiser, and the pipeline that runs on the stack."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from torch import nn

OURS = "geoshrink.adapters"
PLUMBING = ("torch", "accelerate", "diffusers.hooks")


def stack() -> Iterator[FrameType]:
    """The frames from the innermost outwards, without our own."""
    frame = sys._getframe(1)
    while frame is not None:
        if not module_of(frame).startswith(OURS):
            yield frame
        frame = frame.f_back


def module_of(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")


def caller() -> CodeType | None:
    """The code that made the call, beyond the plumbing of torch and offloading."""
    return next((f.f_code for f in stack() if not module_of(f).startswith(PLUMBING)), None)


def running(is_host: Callable[[Any], bool]) -> Any:
    """The innermost host whose __call__ is on the stack, or None."""
    for frame in stack():
        if frame.f_code.co_name == "__call__":
            found = frame.f_locals.get("self")
            if found is not None and not isinstance(found, nn.Module) and is_host(found):
                return found
    return None
