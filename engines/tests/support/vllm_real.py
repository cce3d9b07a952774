"""The denoising loops of real vLLM-Omni pipelines, unchanged, over toy networks.

What loads weights, reads prompts and decodes is left out. vllm_stubs.install() comes before this
module is imported.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm_omni.diffusion.data import DiffusionOutput
from vllm_omni.diffusion.models.qwen_image.pipeline_qwen_image import QwenImagePipeline
from vllm_omni.diffusion.models.sd3.pipeline_sd3 import StableDiffusion3Pipeline
from vllm_omni.diffusion.models.z_image.pipeline_z_image import ZImagePipeline
from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch
from vllm_stubs import with_pictures
from vllm_toys import FlowMatchEulerDiscreteScheduler, Network, config, words_of

wan = with_pictures("vllm_omni.diffusion.models.wan2_2.pipeline_wan2_2")


def prepared(
    pipeline: Any, req: DiffusionRequestBatch, frames: bool = False
) -> tuple[Tensor, Tensor, Any]:
    """(noise, words of the prompt, sampling parameters) of a request; sets the timesteps."""
    params = req.sampling_params
    size = (1, 4, 1, params.height, params.width) if frames else (1, 4, params.height, params.width)
    pipeline.scheduler.set_timesteps(params.num_inference_steps)
    pipeline._num_timesteps = params.num_inference_steps
    noise = torch.randn(size, generator=params.generator)
    return noise, words_of(str(req.prompts[0]))[None], params


def begin(pipeline: Any, network: nn.Module) -> None:
    nn.Module.__init__(pipeline)
    pipeline.transformer = network
    pipeline.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    pipeline.device, pipeline.od_config = torch.device("cpu"), config()
    pipeline._interrupt = False
    pipeline._progress_bar_config = {"disable": True}
    pipeline.eval().requires_grad_(False)


class SD3(StableDiffusion3Pipeline):
    def __init__(self) -> None:
        begin(self, Network())

    def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
        noise, words, params = prepared(self, req)
        times, scale = self.scheduler.timesteps, params.guidance_scale
        none = 0 * words
        made = self.diffuse(noise, times, words, None, none, None, scale > 1, scale)
        return DiffusionOutput(output=made)


class Rows(Network):
    """Takes rows of pixels, as Qwen-Image's network does, and time from 0 to 1."""

    def forward(self, hidden_states: Tensor, timestep: Tensor, **given: Any) -> tuple[Tensor]:  # type: ignore[override]
        rows = hidden_states.movedim(1, -1)[..., None]
        made = super().forward(rows, timestep * 1000, given["encoder_hidden_states"])[0]
        return (made[..., 0].movedim(-1, 1),)


class Qwen(QwenImagePipeline):
    def __init__(self) -> None:
        begin(self, Rows())

    def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
        noise, words, params = prepared(self, req)
        rows, scale = noise.flatten(2).movedim(1, -1), params.guidance_scale
        times, shapes = self.scheduler.timesteps, torch.ones(1)
        text = (words, None, 0 * words, None)
        lengths = (torch.ones(1), torch.ones(1))
        made = self.diffuse(*text, rows, shapes, *lengths, times, True, None, scale)
        return DiffusionOutput(output=made)


class Wan(wan.Wan22Pipeline):
    """Two experts, and a new scheduler for another flow shift."""

    def __init__(self) -> None:
        begin(self, Frames(0))
        self.transformer_2 = Frames(7).eval().requires_grad_(False)
        self.scheduler = wan.build_wan_scheduler("unipc", 3.0)
        self.expand_timesteps = self.is_dmd = False

    def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
        self.scheduler = wan.build_wan_scheduler("unipc", 3.0)
        noise, words, params = prepared(self, req, frames=True)
        made = self.diffuse(
            noise,
            self.scheduler.timesteps,
            words,
            0 * words,
            guidance_low=params.guidance_scale,
            guidance_high=2.0,
            boundary_timestep=600.0,
            dtype=torch.float32,
            attention_kwargs={},
        )
        return DiffusionOutput(output=made)


class Frames(Network):
    def forward(self, hidden_states: Tensor, timestep: Tensor, **given: Any) -> tuple[Tensor]:  # type: ignore[override]
        words = given["encoder_hidden_states"]
        return (super().forward(hidden_states[:, :, 0], timestep, words)[0][:, :, None],)


class Lists(Network):
    """Takes lists of samples, and time from 1 to 0, as Z-Image's network does."""

    in_channels = 4

    def forward(self, x: Any, timestep: Tensor, words: Any) -> tuple[list[Tensor]]:  # type: ignore[override]
        samples = torch.stack([one[:, 0] for one in x])
        made = super().forward(samples, 1000 * (1 - timestep), torch.cat(list(words)))[0]
        return ([-one[:, None] for one in made],)


class ZImage(ZImagePipeline):
    """All of its forward is its own."""

    def __init__(self) -> None:
        begin(self, Lists())
        self._execution_device, self.vae_scale_factor = torch.device("cpu"), 1

    def encode_prompt(self, prompt: list[str], **_: Any) -> tuple[list[Tensor], list[Tensor]]:  # type: ignore[override]
        words = [words_of(one)[None] for one in prompt]
        return words, [0 * one for one in words]
