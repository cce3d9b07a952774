"""What the nodes that sample by themselves share: KSampler's inputs, and one sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import comfy.sample
import comfy.samplers
import comfy.utils
from torch import Tensor

from ..api import Input

INPUTS = (
    Input("model", "MODEL", about="as for KSampler"),
    Input("positive", "CONDITIONING", about="what the picture is to show"),
    Input("negative", "CONDITIONING", about="what it is not to show"),
    Input("latent_image", "LATENT", about="empty, or a picture to start from"),
    Input(
        "seed",
        "INT",
        0,
        "of the noise",
        limits={"min": 0, "max": 2**64 - 1, "control_after_generate": True},
    ),
    Input("steps", "INT", 30, "of the full run", limits={"min": 1, "max": 10000}),
    Input("cfg", "FLOAT", 5.0, "guidance", limits={"min": 0.0, "max": 100.0, "step": 0.1}),
    Input(
        "sampler_name",
        lambda: list(comfy.samplers.KSampler.SAMPLERS),
        "euler",
        "one with a call a step: euler, dpmpp_2m, uni_pc …",
    ),
    Input(
        "scheduler",
        lambda: list(comfy.samplers.KSampler.SCHEDULERS),
        "simple",
        "how the steps are spaced",
    ),
    Input(
        "denoise",
        "FLOAT",
        1.0,
        "1: from noise alone",
        limits={"min": 0.0, "max": 1.0, "step": 0.01},
    ),
)


def latent_of(model: Any, latent: Any) -> Tensor:
    """The latent of a node, with as many channels as the model has."""
    return comfy.sample.fix_empty_latent_channels(model, latent["samples"])


def sampled(
    model: Any, words: dict[str, Any], latent: Any, steps: int, step: Callable[[], Any]
) -> Tensor:
    """One sampling as KSampler makes it; step() after every one of its steps."""
    samples = latent_of(model, latent)
    noise = comfy.sample.prepare_noise(samples, words["seed"], latent.get("batch_index"))
    return comfy.sample.sample(
        model,
        noise,
        steps,
        words["cfg"],
        words["sampler_name"],
        words["scheduler"],
        words["positive"],
        words["negative"],
        samples,
        denoise=words["denoise"],
        noise_mask=latent.get("noise_mask"),
        callback=lambda *_: step(),
        disable_pbar=True,
        seed=words["seed"],
    )
