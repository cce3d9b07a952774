"""What of a sampling changes between two steps, though the σ-grid does not show it.

Prompts, ControlNets and LoRA hooks may act within a range of σ, and CFGOverride changes the
guidance in one. Where such a thing begins or ends, outputs from before say little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Key = tuple[bool, ...]


def switches(guider: Any, sigmas: Sequence[float]) -> tuple[int, ...]:
    """The stages at which a prompt, a ControlNet or a hook begins or ends; `sigmas` is one each."""
    windows = list(windows_of(guider))
    keys = [key_at(windows, sigma) for sigma in sigmas]
    return tuple(n for n in range(1, len(keys)) if keys[n] != keys[n - 1])


def key_at(windows: Sequence[tuple[float, float]], sigma: float) -> Key:
    """Which of them act at σ; ComfyUI compares in float32."""
    level = single(sigma)
    return tuple(end <= level <= start for start, end in windows)


def single(value: float) -> float:
    return float(np.float32(value))


def windows_of(guider: Any) -> Iterator[tuple[float, float]]:
    """(first σ, last σ) of everything that acts in a range, the first one being larger."""
    for conds in (getattr(guider, "conds", None) or {}).values():
        for cond in conds or ():
            if "timestep_start" in cond or "timestep_end" in cond:
                yield window(cond.get("timestep_start"), cond.get("timestep_end"))
            control = cond.get("control")
            while control is not None:
                if (limits := getattr(control, "timestep_range", None)) is not None:
                    yield window(*limits)
                control = getattr(control, "previous_controlnet", None)
            for hook in getattr(cond.get("hooks"), "hooks", ()):
                frames = getattr(getattr(hook, "hook_keyframe", None), "keyframes", ())
                for frame in frames[1:]:  # the first begins the run
                    yield window(getattr(frame, "start_t", None), None)


def window(start: Any, end: Any) -> tuple[float, float]:
    first = float("inf") if start is None else single(float(start))
    return first, float("-inf") if end is None else single(float(end))


def guidance(guider: Any) -> str:
    """The guidance scales as they are now: other words after CFGOverride has acted."""
    names = ("cfg", "cfg1", "cfg2", "cfg_cond2_negative")
    values = (getattr(guider, name, None) for name in names)
    return "guidance " + ", ".join(f"{v:g}" for v in values if isinstance(v, (int, float)))
