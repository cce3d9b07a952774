"""Which machine measures, and how the kernels on it are counted."""

from __future__ import annotations

import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch


def profiler(cuda: bool) -> Any:
    kinds = torch.profiler.ProfilerActivity
    return torch.profiler.profile(activities=[kinds.CUDA if cuda else kinds.CPU])


def kernels(profile: Any) -> int:
    """Kernels, copies and fills on the device; −1 where the profiler fails."""
    try:
        return sum(str(event.device_type).endswith("CUDA") for event in profile.events())
    except Exception:
        return -1


def header() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    for name in ("diffusers", "cache_dit", "geoshrink", "triton"):
        try:
            versions[name] = __import__(name).__version__
        except Exception as error:
            versions[name] = f"none ({type(error).__name__})"
    command = "python benchmarks/gpu/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {"command": command, "device": device, "versions": versions, "date": time.strftime("%F")}
