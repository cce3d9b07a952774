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
from ..teaching import teacher_of
from .odeint import numbers, stages_of
from .stages import Wrapped


def wrap(
    model: Callable[..., Tensor],
    sigmas: Any,
    budget: int | None = None,
    *,
    plan: Plan | None = None,
    mask: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    solver: str | None = None,
    learn: Any = None,
    **options: Any,
) -> Denoiser:
    """A denoiser for a sampler that calls it once at every σ but the last.

        denoiser = geoshrink.hosts.denoised.wrap(model, sigmas, budget=10)
        x0 = k_diffusion.sampling.sample_euler(denoiser, noise, sigmas)
        print(denoiser.report)

    `options` are those of Plan.of; say solver="euler" if that is the sampler. x is
    x₀ + σ·ε where σ goes beyond 1, and (1 − σ)·x₀ + σ·ε elsewhere, unless prediction= and alphas=
    say otherwise. A call at another σ than the next one runs the model, and so do all calls after
    it; a call at σ_0 begins a new run. Each thread has runs of its own.
    """
    levels = numbers(sigmas)
    if plan is None and not {"prediction", "alphas"} & set(options) and max(levels, default=0) > 1:
        options = {**options, "prediction": "epsilon", "alphas": "ve"}
    stages = stages_of(levels, None, budget, plan, options, solver)
    teacher = teacher_of(learn, options, plan, model=model)
    return Denoiser(model, *stages, mask, dtype, False, solver, teacher)


class Denoiser(Wrapped):
    """model(x, σ, …) with predictions."""

    def __call__(self, x: Tensor, sigma: Any, *args: Any, **kwargs: Any) -> Tensor:
        levels = torch.as_tensor(sigma, device=x.device)
        wide = levels.reshape(-1, *[1] * (x.ndim - 1)) if levels.ndim else levels

        stages = self.stages

        def evaluate() -> Tensor:
            denoised = self.inner(x, sigma, *args, **kwargs)
            stages.made = denoised.dtype
            return denoised

        return stages(
            levels.flatten()[0],
            evaluate,
            x,
            lambda denoised: (x - denoised) / wide,
            lambda d: (x - wide * d).to(stages.made),
        )
