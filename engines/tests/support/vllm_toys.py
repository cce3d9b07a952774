"""Small pipelines of vLLM-Omni's own kind, and its real runner over them.

vllm_stubs.install() comes before this module is imported.
"""

from __future__ import annotations

import copy
import zlib
from typing import Any

import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import Tensor, nn
from vllm_omni.diffusion.data import DiffusionOutput, OmniDiffusionConfig
from vllm_omni.diffusion.distributed.cfg_parallel import CFGParallelMixin
from vllm_omni.diffusion.models.schedulers import FlowUniPCMultistepScheduler
from vllm_omni.diffusion.request import OmniDiffusionRequest
from vllm_omni.diffusion.worker import diffusion_model_runner
from vllm_omni.diffusion.worker.request_batch import (
    DiffusionRequestBatch,
    split_diffusion_output_by_request,
)
from vllm_omni.inputs.data import OmniDiffusionSamplingParams
from vllm_omni.platforms import current_omni_platform

STEPS = 24
PLATFORM: Any = type(current_omni_platform)  # none that the engine knows: a processor
PLATFORM.synchronize = PLATFORM.supports_torch_inductor = lambda self: False


class Network(nn.Module):
    """A smooth field in x and t, with a prompt. `calls` grows by one with each call."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.outer = nn.Linear(9, 16), nn.Linear(16, 4)
        self.calls: list[float] = []
        self.fault: tuple[int, BaseException] | None = None

    def forward(
        self, hidden_states: Tensor, timestep: Tensor, encoder_hidden_states: Tensor, **_: Any
    ) -> tuple[Tensor]:
        self.calls.append(float(timestep.flatten()[0]))
        if self.fault is not None and len(self.calls) == self.fault[0]:
            raise self.fault[1]
        x = hidden_states.movedim(1, -1)
        time = (timestep / 1000).reshape(-1, 1, 1, 1).expand(*x.shape[:-1], 1)
        words = encoder_hidden_states[:, None, None, :].expand(*x.shape[:-1], 4)
        made = self.outer(torch.tanh(self.inner(torch.cat([x, time, words], -1))))
        return (x.sub(made).movedim(-1, 1),)


def words_of(prompt: str) -> Tensor:
    return torch.randn(4, generator=torch.Generator().manual_seed(zlib.crc32(prompt.encode())))


class Pipeline(nn.Module):
    """What the toys share: one batch of requests in, one output for each of them."""

    supports_request_batch = True
    _dit_modules = ("transformer",)

    def __init__(self, seed: int = 0, scheduler: Any = None, copies: bool = False):
        super().__init__()
        self.transformer = Network(seed)
        self.scheduler = scheduler or FlowMatchEulerDiscreteScheduler(shift=3.0)
        self.copies = copies  # its scheduler for every request: then threads may share it
        self.eval().requires_grad_(False)

    def forward(self, req: DiffusionRequestBatch) -> list[DiffusionOutput]:
        common = req.sampling_params_list[0]
        size = (4, common.height, common.width)
        made = [torch.randn(size, generator=s.generator) for s in req.sampling_params_list]
        words = torch.stack([words_of(str(prompt)) for prompt in req.prompts])
        scheduler = copy.deepcopy(self.scheduler) if self.copies else self.scheduler
        scheduler.set_timesteps(common.num_inference_steps)
        latents = self.diffuse(scheduler, torch.stack(made), words, common.guidance_scale)
        whole = DiffusionOutput(output=latents, stage_durations=None)
        return split_diffusion_output_by_request(whole, req, num_outputs_per_prompt=1)

    def diffuse(self, scheduler: Any, latents: Tensor, words: Tensor, scale: float) -> Any:
        raise NotImplementedError


class Guided(Pipeline, CFGParallelMixin):
    """Guidance by the engine's mixin, as in Qwen-Image, Flux, SD3."""

    def diffuse(self, scheduler: Any, latents: Tensor, words: Tensor, scale: float) -> Any:
        for t in scheduler.timesteps:
            given = {"hidden_states": latents, "timestep": t.expand(latents.shape[0])}
            noise = self.predict_noise_maybe_with_cfg(
                scale > 1,
                scale,
                {**given, "encoder_hidden_states": words},
                {**given, "encoder_hidden_states": 0 * words} if scale > 1 else None,
                False,
            )
            latents = self.scheduler_step_maybe_with_cfg(
                noise, t, latents, scale > 1, per_request_scheduler=scheduler
            )
        return latents


class Branches(Guided):
    """Guidance with three branches, as in OmniGen2."""

    def diffuse(self, scheduler: Any, latents: Tensor, words: Tensor, scale: float) -> Any:
        for t in scheduler.timesteps:
            given = {"hidden_states": latents, "timestep": t.expand(latents.shape[0])}
            noise = self.predict_noise_with_multi_branch_cfg(
                do_true_cfg=True,
                true_cfg_scale={"text": scale, "image": 1.5},
                branches_kwargs=[
                    {**given, "encoder_hidden_states": part * words} for part in (1, 0.5, 0)
                ],
            )
            latents = scheduler.step(noise, t, latents, return_dict=False)[0]
        return latents

    def combine_multi_branch_cfg_noise(
        self, predictions: list[Any], true_cfg_scale: Any, cfg_normalize: bool = False
    ) -> Any:
        text, image, none = predictions
        return (
            none
            + true_cfg_scale["image"] * (image - none)
            + true_cfg_scale["text"] * (text - image)
        )


class Experts(Guided):
    """Two networks and two guidance scales, one behind the other, as in Wan 2.2."""

    _dit_modules = ("transformer", "transformer_2")

    def __init__(self, boundary: float = 700.0, scales: tuple[float, float] = (3.0, 3.0)):
        super().__init__(0)
        self.transformer_2 = Network(7).eval().requires_grad_(False)
        self.boundary, self.scales = boundary, scales
        self.same = False  # the first network does it all

    def predict_noise(self, current_model: nn.Module, **kwargs: Any) -> Any:
        return current_model(**kwargs)[0]

    def diffuse(self, scheduler: Any, latents: Tensor, words: Tensor, scale: float) -> Any:
        for t in scheduler.timesteps:
            late = bool(t < self.boundary)
            scale = self.scales[late]
            model = self.transformer_2 if late and not self.same else self.transformer
            given = {
                "hidden_states": latents,
                "timestep": t.expand(latents.shape[0]),
                "current_model": model,
            }
            noise = self.predict_noise_maybe_with_cfg(
                do_true_cfg=scale > 1,
                true_cfg_scale=scale,
                positive_kwargs={**given, "encoder_hidden_states": words},
                negative_kwargs={**given, "encoder_hidden_states": 0 * words},
                cfg_normalize=False,
            )
            latents = self.scheduler_step_maybe_with_cfg(noise, t, latents, scale > 1)
        return latents


class Plain(Pipeline):
    """Calls its network and steps its scheduler itself, as Z-Image does."""

    def diffuse(self, scheduler: Any, latents: Tensor, words: Tensor, scale: float) -> Any:
        for t in scheduler.timesteps:
            both = torch.cat([latents, latents])
            time, text = t.expand(len(both)), torch.cat([words, 0 * words])
            yes, no = self.transformer(both, time, encoder_hidden_states=text)[0].chunk(2)
            noise = no + scale * (yes - no)
            latents = scheduler.step(noise, t, latents, return_dict=False)[0]
        return latents


class Both:
    """Steps a tuple with two schedulers."""

    def __init__(self, video: Any, audio: Any):
        self.video, self.audio = video, audio

    def set_timesteps(self, steps: int) -> None:
        self.video.set_timesteps(steps)
        self.audio.set_timesteps(steps)

    @property
    def timesteps(self) -> Tensor:
        return self.video.timesteps

    def step(self, noise_pred: Any, t: Any, latents: Any, return_dict: bool = False) -> Any:
        pairs = zip((self.video, self.audio), noise_pred, latents)
        return (tuple(each.step(v, t, x, return_dict=False)[0] for each, v, x in pairs),)


class Tuples(Guided):
    """Video and audio, both from one network."""

    def __init__(self, seed: int = 0):
        flow = FlowMatchEulerDiscreteScheduler
        super().__init__(seed, Both(flow(shift=3.0), flow(shift=3.0)))

    def predict_noise(self, **kwargs: Any) -> Any:
        made = super().predict_noise(**kwargs)
        return made, 0.5 * made.mean((2, 3))

    def combine_cfg_noise(self, positive: Any, negative: Any, scale: float, *_: Any) -> Any:
        return tuple(n + scale * (p - n) for p, n in zip(positive, negative))

    def diffuse(self, scheduler: Any, latents: Tensor, words: Tensor, scale: float) -> Any:
        state = latents, latents.mean((2, 3))
        for t in scheduler.timesteps:
            given = {"hidden_states": state[0], "timestep": t.expand(len(words))}
            noise = self.predict_noise_maybe_with_cfg(
                True,
                scale,
                {**given, "encoder_hidden_states": words},
                {**given, "encoder_hidden_states": 0 * words},
                False,
            )
            state = self.scheduler_step_maybe_with_cfg(noise, t, state, True)
        return torch.cat([state[0].flatten(1), state[1]], 1)


class Swaps(Guided):
    """Gives itself a new scheduler in every forward, as Wan does for another flow shift."""

    def forward(self, req: DiffusionRequestBatch) -> list[DiffusionOutput]:
        self.scheduler = FlowMatchEulerDiscreteScheduler(shift=2.0)
        return super().forward(req)


class Solver(Guided):
    """With the engine's own scheduler of Wan, which remembers its outputs."""

    def __init__(self, seed: int = 0):
        super().__init__(seed, FlowUniPCMultistepScheduler(shift=3.0))


# -- the engine


def request(
    name: str = "a",
    asked: Any = None,
    *,
    prompt: str = "a lighthouse",
    seed: int = 0,
    steps: int = STEPS,
    size: tuple[int, int] = (6, 6),
    scale: float = 3.0,
) -> OmniDiffusionRequest:
    params = OmniDiffusionSamplingParams(
        seed=seed,
        num_inference_steps=steps,
        height=size[0],
        width=size[1],
        guidance_scale=scale,
        extra_args={} if asked is None else {"geoshrink": asked},
    )
    return OmniDiffusionRequest(prompt=prompt, sampling_params=params, request_id=name)


def config(backend: str | None = "geoshrink", **options: Any) -> OmniDiffusionConfig:
    return OmniDiffusionConfig(
        model="toy",
        model_class_name="ToyPipeline",
        cache_backend=backend,
        cache_config=options,
        dtype=torch.float32,
        enforce_eager=True,
    )


def runner(
    pipeline: nn.Module, backend: str | None = "geoshrink", **options: Any
) -> diffusion_model_runner.DiffusionModelRunner:
    """The engine's runner with a pipeline that load_model() has been through."""
    made = diffusion_model_runner.DiffusionModelRunner(
        None, config(backend, **options), torch.device("cpu")
    )

    class Loader:
        def __init__(self, *args: Any, **kwargs: Any):
            pass

        def load_model(self, **kwargs: Any) -> nn.Module:
            return pipeline

    plain = diffusion_model_runner.DiffusersPipelineLoader
    diffusion_model_runner.DiffusersPipelineLoader = Loader
    try:
        made.load_model()
    finally:
        diffusion_model_runner.DiffusersPipelineLoader = plain
    return made
