"""Where a pipeline's own settings switch its guidance on and off, read before it happens."""

from __future__ import annotations

from typing import Any

from .stack import variables_of


def switches(host: Any, scheduler: Any) -> list[int]:
    """The timesteps, by index, at which the guidance interval of ACE-Step begins and ends.

    Its loop guides where start ≤ 1 − t ≤ end, both variables of its __call__. What no setting
    tells is seen in the denoiser's calls when it happens, and costs a query.
    """
    known = variables_of(host)
    start, end = (known.get(f"cfg_interval_{which}") for which in ("start", "end"))
    if not known.get("do_cfg") or start is None or end is None:
        return []
    inside = [start <= 1.0 - t <= end for t in scheduler.timesteps.tolist()]
    return [i for i in range(1, len(inside)) if inside[i] != inside[i - 1]]
