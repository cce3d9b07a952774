"""Hunyuan3D-2 and 2.1: shapes from noise at σ = 0 to data at σ = 1, by their own Euler scheduler.

Its last stage has no length: it is queried only where every stage is. The turbo models are
consistency models, whose few steps are all needed.
"""

from __future__ import annotations

from typing import Any

import torch

from .handle import Handle
from .host import STEPS, Host
from .known import Known

PIPELINE = Known(
    "Hunyuan3DDiTFlowMatchingPipeline",
    scheduler="scheduler",
    denoiser="model",
    method="__call__",
    takes=("image", "num_inference_steps", "guidance_scale", "sigmas"),
    version="hy3dgen 2.0.2",
)


def attach(host: Any, budget: int | None = None, **options: Any) -> Handle:
    scheduler = type(getattr(host, "scheduler", None)).__name__
    if scheduler.startswith("Consistency"):
        raise TypeError(
            f"{type(host).__name__} with a {scheduler} is a turbo model: a consistency model needs "
            "every one of its few steps; use it without geoshrink"
        )
    return PIPELINE.attach(host, budget, **options)


def call(host: Any, arguments: dict[str, Any], steps: int, seed: int) -> Any:
    noise = torch.Generator().manual_seed(seed)
    own = {STEPS: steps, "generator": noise, "output_type": "trimesh"}
    return host(**own, **{"enable_pbar": False, **arguments})


def show(host: Any, meshes: Any) -> tuple[str, dict[str, Any]]:
    return "Meshes", {"meshes": meshes}


IMAGE = ("image",)
HOST = Host("Hunyuan3D", PIPELINE.is_host, attach, call, show, prompt=IMAGE, beyond=1, idle=1)
