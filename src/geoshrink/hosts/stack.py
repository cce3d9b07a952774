"""Who is calling: the code that called a denoiser, and the pipeline that runs on the stack."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

OURS = "geoshrink.hosts"
PLUMBING = ("torch", "accelerate", "diffusers.hooks")


def stack(frame: FrameType | None = None) -> Iterator[FrameType]:
    """The frames from the innermost outwards, without our own."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if not module_of(frame).startswith(OURS):
            yield frame
        frame = frame.f_back


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "")


def caller() -> CodeType | None:
    """The code that made the call, beyond the plumbing of torch and offloading."""
    return next((f.f_code for f in stack() if not module_of(f).startswith(PLUMBING)), None)


def running(
    is_host: Callable[[Any], bool], method: str = "__call__", within: FrameType | None = None
) -> Any:
    """The innermost host whose method that loops is on the stack, or None."""
    for frame in stack(within):
        if frame.f_code.co_name == method:
            found = frame.f_locals.get("self")
            if found is not None and is_host(found):
                return found
    return None


def variables_of(host: Any, method: str = "__call__") -> dict[str, Any]:
    """The variables of the host's method that loops, where it is running."""
    for frame in stack():
        if frame.f_code.co_name == method and frame.f_locals.get("self") is host:
            return dict(frame.f_locals)
    return {}
