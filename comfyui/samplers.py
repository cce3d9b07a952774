"""What ComfyUI's samplers do with the model, found out by running them on unit impulses.

A sampler is a loop that we do not see into. But it is a function, so it can be run once more with a
stand-in for the model, on the CPU, in some milliseconds: at which σ it calls, how often, whether it
draws noise, and what its state at one call owes to the outputs of the calls before.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoshrink.solvers.response import ROUNDING, ProbedResponse

#: Samplers whose results were compared with the full run's, by the name of their function.
EULER = ("sample_euler",)
PLAIN = (
    *EULER,
    "sample_deis",
    "sample_dpmpp_2m",
    "sample_gradient_estimation",
    "sample_ipndm",
    "sample_ipndm_v",
    "sample_lms",
    "sample_res_multistep",
    "sample_unipc",
    "sample_unipc_bh2",
)
NOISY = (
    "sample_ddpm",
    "sample_dpmpp_2m_sde",
    "sample_dpmpp_2m_sde_gpu",
    "sample_dpmpp_2m_sde_heun",
    "sample_dpmpp_2m_sde_heun_gpu",
    "sample_dpmpp_3m_sde",
    "sample_dpmpp_3m_sde_gpu",
    "sample_er_sde",
    "sample_euler_ancestral",
    "sample_res_multistep_ancestral",
    "sample_sa_solver",
)
#: Why others are left alone.
LEFT = {
    "sample_lcm": "lcm makes few, large steps: there is nothing to skip",
    "sample_ar_video": "ar_video samples one block of frames after another",
}
#: Samplers of ComfyUI that are tried out to say why they are not accelerated.
TRIED = (
    "dpm_adaptive_function",
    "dpm_fast_function",
    "sample_dpm_2",
    "sample_dpm_2_ancestral",
    "sample_dpmpp_2s_ancestral",
    "sample_dpmpp_sde",
    "sample_dpmpp_sde_gpu",
    "sample_exp_heun_2_x0",
    "sample_exp_heun_2_x0_sde",
    "sample_heun",
    "sample_heunpp2",
    "sample_sa_solver_pece",
    "sample_seeds_2",
    "sample_seeds_3",
)
TWICE = "it calls the model more than once a step"
OFF_GRID = "it calls the model between the steps"
GUIDED = "it reads the unconditional output, too (CFG++)"
MEMORY = 4  # results of ours that a sampler may keep
KEPT = 16  # trials that are remembered
LOUD = 1e4  # an impulse so large that whatever is not linear shows


class Refused(ValueError):
    """The sampler is not accelerated: every call is exact. The message says why."""


@dataclass(frozen=True)
class Trial:
    """What a sampler did on impulses.

    name       of its function
    sigmas     at which it called the model, and where it ended
    data       the outputs of the response are denoised x, else d = (x − denoised)/σ
    response   what its state owes to the outputs of earlier calls: x, then the results that it
               keeps, the latest first; None if that is not known
    why        there is no response
    euler      its steps are Euler's
    """

    name: str
    sigmas: tuple[float, ...]
    data: bool = False
    response: ProbedResponse | None = None
    why: str = ""
    euler: bool = False

    @property
    def noisy(self) -> bool:
        return self.name in NOISY


#: What samplers did on the grids that were used last.
TRIALS: dict[Any, Trial] = {}


def name_of(sampler: Any) -> str:
    """The name of a sampler's function; of a sampler that has none, its class."""
    function = getattr(sampler, "sampler_function", None)
    return getattr(function, "__name__", "") or type(sampler).__name__


def try_out(sampler: Any, sigmas: Tensor, guider: Any, data: bool = False) -> Trial:
    """What a sampler does; Refused says why it is not to be accelerated.

    data   outputs are predicted as denoised x
    """
    sampling = getattr(getattr(guider, "inner_model", None), "model_sampling", None)
    key = (
        getattr(sampler, "sampler_function", sampler),
        repr(sorted(getattr(sampler, "extra_options", {}).items())),
        tuple(sigmas.tolist()),
        (type(sampling), getattr(sampling, "shift", None)),
        data,
    )
    if key not in TRIALS:
        if len(TRIALS) >= KEPT:
            TRIALS.pop(next(iter(TRIALS)))
        TRIALS[key] = tried(sampler, sigmas, guider, data)
    return TRIALS[key]


def tried(sampler: Any, sigmas: Tensor, guider: Any, data: bool) -> Trial:
    name = name_of(sampler)
    short = name.removeprefix("sample_")
    if name in LEFT:
        raise Refused(LEFT[name])
    known, tried = name in PLAIN or name in NOISY, name in TRIED or name.endswith("_cfg_pp")
    if not hasattr(sampler, "sampler_function") or not (known or tried):
        raise Refused(f"the sampler {short} is not known")
    levels = sigmas.detach().to("cpu", torch.float64)
    try:
        try:
            seen = run(sampler, levels, guider, data)
        except RuntimeError:  # a sampler with constants in float32
            levels = levels.float()
            seen = run(sampler, levels, guider, data)
    except Refused as refusal:
        raise Refused(f"the sampler {short}: {refusal}") from None
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise Refused(f"the sampler {short} could not be tried out ({why})") from None
    if not known:
        raise Refused(f"the sampler {short} is not known")
    called = (*seen.sigmas, float(levels[-1]))
    try:
        response = response_of(sampler, levels, guider, seen)
        euler = name in EULER and is_euler(response, called, data)
        return Trial(name, called, data, response, "", euler)
    except Refused as refusal:
        return Trial(name, called, data, None, f"{short}: {refusal}")


class Impulses:
    """Stands in for the model: the output of call n is 1 in row n, the last row is a mixture.

    data      the output is denoised x, else d = (x − denoised)/σ
    follow    from its middle call on, the state and the results that the sampler keeps are replaced
              by those of another run; the two must then go on alike
    """

    def __init__(
        self,
        guider: Any,
        sigmas: Tensor,
        data: bool,
        follow: Impulses | None = None,
        kept: int = 0,
    ):
        self.inner_model, self.levels, self.data = guider, sigmas, data
        self.follow, self.kept = follow, kept
        self.steps = len(sigmas) - 1
        self.mix = LOUD * torch.cos(torch.arange(self.steps, dtype=torch.float64))
        self.sigmas: list[float] = []
        self.states: list[Tensor] = []
        self.results: list[Tensor] = []
        self.given: list[Tensor] = []  # the results, as the sampler has them

    def __call__(self, x: Tensor, sigma: Tensor, *_: Any, **options: Any) -> Tensor:
        n, level = len(self.states), float(sigma.flatten()[0])
        self.check(n, level, options)
        middle = self.steps // 2
        if self.follow is not None and n == middle:
            x.copy_(self.follow.states[n])
            for mine, theirs in zip(self.given[::-1][: self.kept], self.follow.results[:n][::-1]):
                mine.copy_(theirs)
        z = torch.zeros_like(x)
        if self.follow is None or n >= middle:
            z[n], z[self.steps] = 1.0, self.mix[n]
        self.sigmas.append(level)
        self.states.append(x.clone())
        result = z if self.data else x - level * z
        self.results.append(result.clone())
        self.given.append(result)
        return result

    def check(self, n: int, level: float, options: dict[str, Any]) -> None:
        if len((options.get("model_options") or {}).get("sampler_post_cfg_function", ())):
            raise Refused(GUIDED)
        if n >= self.steps or (n and level >= self.sigmas[-1]):
            raise Refused(TWICE)
        if abs(level - float(self.levels[n])) > 1e-3 * float(self.levels[n]):
            raise Refused(OFF_GRID)


def run(
    sampler: Any,
    sigmas: Tensor,
    guider: Any,
    data: bool,
    follow: Impulses | None = None,
    kept: int = 0,
) -> Impulses:
    """Runs the sampler's function with zeros for noise."""
    model = Impulses(guider, sigmas, data, follow, kept)
    function = sampler.sampler_function
    options = dict(getattr(sampler, "extra_options", {}))
    takes = inspect.signature(function).parameters
    if "noise_sampler" in takes:
        options["noise_sampler"] = lambda *_, **__: torch.zeros_like(x)
    x = torch.zeros(model.steps + 1, 1, 1, 1, dtype=sigmas.dtype)
    arguments = {"model_options": {}, "seed": 0, "denoise_mask": None}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        end = function(
            model, x, sigmas, extra_args=arguments, callback=None, disable=True, **options
        )
    if len(model.states) < model.steps:
        raise Refused("it calls the model at some of the steps only")
    model.states.append(end)
    return model


def response_of(sampler: Any, sigmas: Tensor, guider: Any, seen: Impulses) -> ProbedResponse:
    """The response, with as many of our latest results as must be moved beside x."""
    steps = seen.steps
    states = table(seen.states[:steps], steps)
    check_linear(states, seen.mix.numpy())
    for kept in range(MEMORY):
        twin = run(sampler, sigmas, guider, seen.data, seen, kept)
        if alike(twin, seen):
            rows = [states]
            for back in range(1, kept + 1):
                older = [torch.zeros_like(seen.results[0])] * back + seen.results
                rows.append(table(older[:steps], steps))
            places = [("results", back) for back in range(kept)]
            return ProbedResponse(places, np.stack(rows)[..., :steps])
    raise Refused("it keeps its past where it cannot be reached")


def alike(twin: Impulses, seen: Impulses) -> bool:
    """Whether two runs go on alike from the middle on; at σ = 0 most samplers forget their past."""
    pairs = zip(twin.states[seen.steps // 2 :], seen.states[seen.steps // 2 :])
    return all(torch.allclose(a, b, rtol=ROUNDING, atol=ROUNDING) for a, b in pairs)


def is_euler(response: ProbedResponse, sigmas: Sequence[float], data: bool) -> bool:
    """Whether x at each call owes to the outputs before it what it owes by Euler's steps."""
    if response.stored:
        return False
    steps = len(sigmas) - 1
    own = np.zeros((steps, steps))
    for stage in range(steps):
        for n in range(stage):
            now, after = sigmas[n], sigmas[n + 1]
            own[stage, n] = (1 - after / now) * sigmas[stage] / after if data else after - now
    return bool(
        np.allclose(response.table[0], own, rtol=ROUNDING, atol=ROUNDING * np.abs(own).max())
    )


def table(states: Sequence[Tensor], steps: int) -> np.ndarray:
    return np.array([t.flatten().double().numpy() for t in states])


def check_linear(states: np.ndarray, mix: np.ndarray) -> None:
    steps = len(mix)
    wrong = np.abs(states[:, :steps] @ mix - states[:, steps])
    scale = LOUD * (np.abs(states[:, :steps]).sum(-1) + 1e-12)
    if not (np.isfinite(states).all() and (wrong <= ROUNDING * scale).all()):
        raise Refused("its state is not linear in the outputs")
