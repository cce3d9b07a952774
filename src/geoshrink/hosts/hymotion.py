"""HY-Motion: MotionFlowMatching, which always integrates 360 frames and pads the rest."""

from __future__ import annotations

from typing import Any

from .host import Host
from .odehosts import Integrating

MOTION = Integrating("MotionFlowMatching", "generate", real="x_mask_temporal")


def call(host: Any, arguments: dict[str, Any], steps: int, seed: int) -> Any:
    """Its steps are an attribute."""
    before, host.validation_steps = host.validation_steps, steps
    try:
        return host.generate(seed_input=[seed], **{"duration_slider": 5, **arguments})
    finally:
        host.validation_steps = before


def show(host: Any, output: Any) -> tuple[str, dict[str, Any]]:
    """The skeleton is that of its body model."""
    body = getattr(host, "body_model", None)
    if body is None:
        raise ValueError(f"{type(host).__name__} has no body_model: its joints are not known")
    return "Motions", {"joints": output["keypoints3d"], "parents": body.parents.tolist()}


HOST = Host(
    "HY-Motion", MOTION.knows, MOTION.attach, call, show, method="generate", prompt=("text",),
    sets=("seed_input",),
)  # fmt: skip
