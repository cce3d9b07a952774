"""Denoisers in the style of k-diffusion, denoised = model(x, σ), for any sampler that calls them
once a step (sample_euler, sample_dpmpp_2m, LMS …).

The innovation is formed in d = (x − denoised)/σ, which is dx/dσ, of noise predictions and of flows
alike; with space="data" in the denoised x itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..plan import Plan
from ..report import Report
from .odeint import numbers, stages_of
from .stages import Stages


def wrap(
    model: Callable[..., Tensor],
    sigmas: Any,
    budget: int | None = None,
    *,
    plan: Plan | None = None,
    mask: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Denoiser:
    """A denoiser for a sampler that calls it once at every σ but the last.

        denoiser = geoshrink.hosts.denoised.wrap(model, sigmas, budget=10)
        x0 = k_diffusion.sampling.sample_euler(denoiser, noise, sigmas)
        print(denoiser.report)

    `options` are those of Plan.of. x is x₀ + σ·ε where σ goes beyond 1, and (1 − σ)·x₀ + σ·ε
    elsewhere, unless prediction= and alphas= say otherwise. A call at another σ than the next one
    runs the model, and so do all calls after it; a call at σ_0 begins a new run.
    """
    levels = numbers(sigmas)
    if plan is None and not {"prediction", "alphas"} & set(options) and max(levels, default=0) > 1:
        options = {**options, "prediction": "epsilon", "alphas": "ve"}
    plan, times, note = stages_of(levels, None, budget, plan, options)
    return Denoiser(model, Stages(plan, times, note, mask, dtype))


class Denoiser:
    """model(x, σ, …) with predictions; `report` is that of the latest run."""

    def __init__(self, model: Callable[..., Tensor], stages: Stages):
        self.inner, self.stages, self.dtype = model, stages, torch.float32

    def __call__(self, x: Tensor, sigma: Any, *args: Any, **kwargs: Any) -> Tensor:
        levels = torch.as_tensor(sigma, device=x.device)
        wide = levels.reshape(-1, *[1] * (x.ndim - 1)) if levels.ndim else levels

        def evaluate() -> Tensor:
            denoised = self.inner(x, sigma, *args, **kwargs)
            self.dtype = denoised.dtype
            return denoised

        return self.stages(
            levels.flatten()[0],
            evaluate,
            x,
            lambda denoised: (x - denoised) / wide,
            lambda d: (x - wide * d).to(self.dtype),
        )

    @property
    def report(self) -> Report:
        return self.stages.report

    def __getattr__(self, name: str) -> Any:  # k-diffusion's models have sigma_min, inner_model …
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)
