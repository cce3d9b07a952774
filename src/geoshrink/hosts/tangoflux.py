"""TangoFlux: a FLUX transformer over sound, stepped in TangoFlux.inference_flow.

The inference object that people hold (TangoFluxInference) has the model in it.
"""

from __future__ import annotations

from typing import Any

from .handle import Handle
from .host import Host
from .known import Known

MODEL = Known(
    "TangoFlux",
    scheduler="noise_scheduler",
    denoiser="transformer",
    method="inference_flow",
    takes=("prompt", "num_inference_steps", "guidance_scale", "duration"),
    version="tangoflux 0.1.0",
)


def model_of(host: Any) -> Any:
    return host if MODEL.is_host(host) else getattr(host, "model", None)


def knows(host: Any) -> bool:
    return MODEL.is_host(model_of(host))


def attach(host: Any, budget: int | None = None, **options: Any) -> Handle:
    return MODEL.attach(model_of(host), budget, **options)


def call(host: Any, arguments: dict[str, Any], steps: int, seed: int) -> Any:
    return host.generate(steps=steps, **arguments)


def show(host: Any, wave: Any) -> tuple[str, dict[str, Any]]:
    return "Sounds", {"waves": wave[None], "rate": host.vae.config.sampling_rate}


HOST = Host("TangoFlux", knows, attach, call, show, method="generate", sets=("steps",))
