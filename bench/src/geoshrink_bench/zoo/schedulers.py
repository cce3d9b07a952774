"""Schedulers of diffusers' that solve the zoo's flows, on the zoo's grids."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from torch import Tensor


def flow_scheduler(kind: str = "euler", shift: float = 3.0) -> Any:
    """A solver of dx/dσ = v on the grid of zoo.shifted_sigmas, or very nearly."""
    from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
        FlowMatchEulerDiscreteScheduler,
    )
    from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler

    flow: dict[str, Any] = dict(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift
    )
    if kind == "euler":
        return FlowMatchEulerDiscreteScheduler(shift=shift)
    if kind == "unipc":
        return UniPCMultistepScheduler(**flow)
    if kind == "dpm++":
        return DPMSolverMultistepScheduler(**flow)
    raise ValueError(f"no scheduler {kind!r}: choose 'euler', 'unipc' or 'dpm++', or give your own")


def as_scheduler(given: Any, shift: float) -> Any:
    """A scheduler from its kind, from itself or, from None, Euler's."""
    if given is None or isinstance(given, str):
        return flow_scheduler(given or "euler", shift)
    return given


def set_timesteps(scheduler: Any, steps: int, device: Any) -> Tensor:
    """The scheduler's timesteps; one that takes σ gets 1 … 1/steps and shifts them itself."""
    options: dict[str, Any] = {}
    if "sigmas" in inspect.signature(scheduler.set_timesteps).parameters:
        options["sigmas"] = np.linspace(1, 1 / steps, steps)
    scheduler.set_timesteps(steps, device=device, **options)
    scheduler.set_begin_index(0)  # whole timesteps may repeat: the first is not to be looked up
    return scheduler.timesteps
