"""What is found here: versions, devices, kernels, hosts, plugins and extras. Nothing of a host's
library is imported, and no path or name of a user or a machine is told.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import torch

from .. import __version__
from ..hosts.registry import known
from ..report import size

PACKAGES = (
    "geoshrink-bench", "torch", "numpy", "diffusers", "transformers", "accelerate", "triton",
)  # fmt: skip
#: The modules that the loops of a kind of hosts come in, by the host's name.
LIBRARIES = {
    "ACE-Step v1": ("acestep",),
    "F5-TTS": ("f5_tts",),
    "HY-Motion": ("hymotion",),
    "Hunyuan3D": ("hy3dgen", "hy3dshape"),
    "MiniMax-H3": ("diffusers",),
    "TRELLIS": ("trellis", "trellis2"),
    "TangoFlux": ("tangoflux",),
    "diffusers": ("diffusers",),
    "torchdiffeq": ("torchdiffeq",),
    "ComfyUI": ("comfy",),
    "SGLang-Diffusion": ("sglang",),
    "vLLM-Omni": ("vllm_omni",),
}
GROUPS = (
    "geoshrink.commands", "geoshrink.hosts", "geoshrink.kinds", "geoshrink.models",
    "sglang.multimodal_gen.plugins", "vllm_omni.general_plugins",
)  # fmt: skip
#: Extras for those who work on geoshrink itself.
OWN = ("dev", "docs", "release", "test")
NAME = re.compile(r"[A-Za-z0-9._-]+")


def versions() -> dict[str, str | None]:
    """None: not installed."""
    found: dict[str, str | None] = {"geoshrink": __version__}
    found |= {name: version_of(name) for name in PACKAGES}
    found["ComfyUI"] = comfyui()
    found["Python"] = platform.python_version()
    found["system"] = f"{platform.system()} {platform.release()}, {platform.machine()}"
    return found


def version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def comfyui() -> str | None:
    if not is_there("comfyui_version"):
        return version_of("comfyui")
    try:
        return str(getattr(import_module("comfyui_version"), "__version__", "unknown"))
    except Exception:  # somebody else's file of this name
        return "unknown"


def is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def devices() -> list[dict[str, Any]]:
    """The GPUs that torch can use, then the CPU; memory in bytes, where it is known."""
    found: list[dict[str, Any]] = []
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found.append({"kind": "cuda", **cuda(i)})
    if torch.backends.mps.is_available():
        most = getattr(torch.mps, "recommended_max_memory", lambda: None)()
        found.append({"kind": "mps", "name": "Apple GPU", "memory": most})
    cpu = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    return [*found, {"kind": "cpu", "name": cpu, "memory": cpu_memory()}]


def cuda(i: int) -> dict[str, Any]:
    try:
        about = torch.cuda.get_device_properties(i)
    except Exception as error:
        return {"name": f"not usable ({type(error).__name__})", "memory": None}
    return {"name": about.name, "memory": about.total_memory}


def cpu_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def kernels() -> str:
    """Whether the fused kernels can be used, or why not; plain torch does the same."""
    if not torch.cuda.is_available():
        return "not used: no CUDA device"
    if not is_there("triton"):
        return "not used: Triton is not installed"
    try:
        module: Any = import_module("geoshrink.history.kernels.triton")
        module.check(torch.float32, torch.device("cuda"))
    except Exception as error:
        return f"not used: Triton cannot compile here ({type(error).__name__})"
    return "Triton"


def hosts() -> dict[str, bool]:
    """What accelerate() knows, and the servers that know us; whether its library is here."""
    names = [*dict.fromkeys([*(host.name for host in known()), *LIBRARIES])]
    return {name: any(map(is_there, LIBRARIES.get(name, ("geoshrink",)))) for name in names}


def plugins() -> dict[str, list[str]]:
    """The entry points of each group: what packages add to us, and we to servers."""
    found = {group: metadata.entry_points(group=group) for group in GROUPS}
    return {group: sorted(f"{e.name} ({e.value})" for e in es) for group, es in found.items() if es}


def extras() -> dict[str, list[str]]:
    """The packages that are missing for each extra."""
    needs: dict[str, list[str]] = {}
    try:
        wanted = metadata.requires("geoshrink") or []
    except metadata.PackageNotFoundError:  # run from its sources
        return {}
    for line in wanted:
        if found := re.search(r"extra == ['\"]([\w-]+)['\"]", line):
            needs.setdefault(found[1], []).append(line)
    return {name: [*lacking(name, needs)] for name in sorted(needs) if name not in OWN}


def lacking(extra: str, needs: dict[str, list[str]]) -> Iterator[str]:
    for line in needs.get(extra, ()):
        name = NAME.match(line)
        if name and name[0] != "geoshrink":
            if version_of(name[0]) is None:
                yield name[0]
        elif part := re.search(r"\[([\w,-]+)\]", line):
            for other in part[1].split(","):
                yield from lacking(other, needs)


def memory(device: dict[str, Any]) -> str:
    return "memory not known" if device["memory"] is None else size(device["memory"])
