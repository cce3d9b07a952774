"""MiniMax-H3: a modular diffusers pipeline with two schedulers; N steps are N − 1 evaluations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import diffusers
from .host import is_a


def knows(host: Any) -> bool:
    return is_a(host, "MiniMaxH3ModularPipeline")


HOST = replace(
    diffusers.HOST,
    name="MiniMax-H3",
    knows=knows,
    load=None,
    files=(),
    sets=(*diffusers.HOST.sets, "output"),
    beyond=1,
)
