"""MiniMax-H3: a modular diffusers pipeline with two schedulers; N steps are N − 1 evaluations."""

from __future__ import annotations

from typing import Any

from . import diffusers
from .host import Host, is_a


def knows(host: Any) -> bool:
    return is_a(host, "MiniMaxH3ModularPipeline")


SETS = (*Host.sets, "output")
HOST = Host("MiniMax-H3", knows, diffusers.attach, sets=SETS, beyond=1)
