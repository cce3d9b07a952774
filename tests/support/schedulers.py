"""diffusers' schedulers as tests use them, and a stage-by-stage replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from torch import Tensor

from geoshrink import Plan, Run

d: Any = pytest.importorskip("diffusers")
BETAS = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
Make = Callable[[], Any]


def vp(name: str, **config: Any) -> Make:
    return lambda: getattr(d, name)(**BETAS, **config)


def flow(**config: Any) -> Make:
    return lambda: d.FlowMatchEulerDiscreteScheduler(**config)


DDIM = {"steps_offset": 1, "clip_sample": False}
ORDER_1: dict[str, Make] = {
    "Euler": vp("EulerDiscreteScheduler"),
    "Euler, Karras": vp("EulerDiscreteScheduler", use_karras_sigmas=True),
    "Euler, v": vp("EulerDiscreteScheduler", prediction_type="v_prediction"),
    "Euler, trailing": vp("EulerDiscreteScheduler", timestep_spacing="trailing"),
    "Euler ancestral": vp("EulerAncestralDiscreteScheduler"),
    "LMS": vp("LMSDiscreteScheduler"),
    "DDIM": vp("DDIMScheduler", **DDIM),
    "DDIM, trailing": vp("DDIMScheduler", clip_sample=False, timestep_spacing="trailing"),
    "DDPM": vp("DDPMScheduler", **DDIM),
    "DPM++": vp("DPMSolverMultistepScheduler"),
    "DPM++, Karras": vp("DPMSolverMultistepScheduler", use_karras_sigmas=True),
    "DPM++, order 3": vp("DPMSolverMultistepScheduler", solver_order=3),
    "DPM++ SDE": vp("DPMSolverMultistepScheduler", algorithm_type="sde-dpmsolver++"),
    "DPM++ singlestep": vp("DPMSolverSinglestepScheduler"),
    "UniPC": vp("UniPCMultistepScheduler"),
    "DEIS": vp("DEISMultistepScheduler"),
    "SA": vp("SASolverScheduler"),
    "IPNDM": lambda: d.IPNDMScheduler(),
    "EDM Euler": lambda: d.EDMEulerScheduler(),
    "EDM DPM++": lambda: d.EDMDPMSolverMultistepScheduler(),
}
ORDER_2: dict[str, Make] = {
    "Heun": vp("HeunDiscreteScheduler"),
    "Heun, Karras": vp("HeunDiscreteScheduler", use_karras_sigmas=True),
    "KDPM2": vp("KDPM2DiscreteScheduler"),
    "KDPM2 ancestral": vp("KDPM2AncestralDiscreteScheduler"),
}
PNDM: dict[str, Make] = {
    "PLMS": vp("PNDMScheduler", skip_prk_steps=True, steps_offset=1),
    "PNDM": vp("PNDMScheduler", skip_prk_steps=False, steps_offset=1),
}
NO_SOLVER: dict[str, Make] = {"LCM": vp("LCMScheduler"), "TCD": vp("TCDScheduler")}
FLOW: dict[str, Make] = {
    "flow": flow(),
    "flow, shift": flow(shift=3.0),
    "flow, stochastic": flow(stochastic_sampling=True),
    "flow, Karras": flow(use_karras_sigmas=True),
    "flow, exponential": flow(use_exponential_sigmas=True),
    "flow, beta": flow(use_beta_sigmas=True),
}
ALL = ORDER_1 | ORDER_2 | PNDM | NO_SOLVER
STOCHASTIC: dict[str, tuple[Make, dict[str, Any]]] = {
    "Euler ancestral": (ORDER_1["Euler ancestral"], {}),
    "DDIM, eta 1": (ORDER_1["DDIM"], {"eta": 1.0}),
    "DDPM": (ORDER_1["DDPM"], {}),
    "DPM++ SDE": (ORDER_1["DPM++ SDE"], {}),
    "SA": (ORDER_1["SA"], {}),
    "KDPM2 ancestral": (ORDER_2["KDPM2 ancestral"], {}),
}


def replayed(seen: Sequence[tuple[Tensor, Tensor]], plan: Plan) -> list[Tensor]:
    """What a Run of its own makes of the exact outputs in `seen`."""
    run, outputs = Run(plan), []
    for n, (v, x) in enumerate(seen):
        outputs.append(run(n, lambda v=v: v, x))
    return outputs
