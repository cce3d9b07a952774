"""Hunyuan3D-2 and 2.1: shapes from noise at σ = 0 to data at σ = 1, by their own Euler scheduler.

Its last stage has no length: it is queried only where every stage is. The turbo models are
consistency models, whose few steps are all needed.
"""

from __future__ import annotations

from typing import Any

from .handle import Handle
from .known import Known

PIPELINE = Known(
    "Hunyuan3DDiTFlowMatchingPipeline",
    scheduler="scheduler",
    denoiser="model",
    method="__call__",
    takes=("image", "num_inference_steps", "guidance_scale", "sigmas"),
    version="hy3dgen 2.0.2",
)


def knows(host: Any) -> bool:
    return PIPELINE.is_host(host)


def attach(host: Any, budget: int | None = None, **options: Any) -> Handle:
    scheduler = type(getattr(host, "scheduler", None)).__name__
    if scheduler.startswith("Consistency"):
        raise TypeError(
            f"{type(host).__name__} with a {scheduler} is a turbo model: a consistency model needs "
            "every one of its few steps; use it without geoshrink"
        )
    return PIPELINE.attach(host, budget, **options)
