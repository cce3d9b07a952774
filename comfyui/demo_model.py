"""A flow model of ours as a ComfyUI MODEL, and its pixels as a VAE."""

from __future__ import annotations

from typing import Any, ClassVar

import comfy.conds
import comfy.latent_formats
import comfy.model_base
import comfy.model_management
import comfy.model_patcher
import comfy.supported_models_base
import torch
from comfy.patcher_extension import WrapperExecutor, WrappersMP, get_all_wrappers
from torch import Tensor, nn

SHIFT = 3.0


class PixelFormat(comfy.latent_formats.LatentFormat):
    latent_channels = 3
    spacial_downscale_ratio = 1


class Config(comfy.supported_models_base.BASE):
    unet_config: ClassVar[dict[str, Any]] = {}
    latent_format = PixelFormat
    sampling_settings: ClassVar[dict[str, Any]] = {"shift": SHIFT}
    supported_inference_dtypes: ClassVar[list[torch.dtype]] = [torch.float32]


class DemoBase(comfy.model_base.BaseModel):
    """ComfyUI's side of a model: the class number travels as cross attention."""

    def extra_conds(self, **kwargs: Any) -> dict[str, Any]:
        found = super().extra_conds(**kwargs)
        if (number := kwargs.get("cross_attn")) is not None:
            found["c_crossattn"] = comfy.conds.CONDRegular(number)
        return found


class Network(nn.Module):
    """The network as ComfyUI calls it; other nodes' wrappers around it work."""

    dtype = torch.float32

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(
        self,
        x: Tensor,
        timesteps: Tensor,
        context: Tensor | None = None,
        control: Any = None,
        transformer_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Tensor:
        options = transformer_options or {}
        wrappers = get_all_wrappers(WrappersMP.DIFFUSION_MODEL, options)
        executor = WrapperExecutor.new_class_executor(self.velocity, self, wrappers)
        # EasyCache (0.33) writes into the x that it is given, which in float32 is the sampler's own
        return executor.execute(x.clone(), timesteps, context, control, options, **kwargs)

    def velocity(self, x: Tensor, timesteps: Tensor, context: Tensor, *_: Any, **__: Any) -> Tensor:
        return self.network(x, timesteps.float() / 1000, context[:, 0, 0].round().long(), None)


class Pixels:
    """A VAE that has nothing to decode."""

    def __init__(self, model: Any):
        self.model = model

    def decode(self, latent: Tensor) -> Tensor:
        """(batch, height, width, 3) in [0, 1]."""
        return self.model.values(latent.float()).movedim(1, -1).clamp(0, 1)


def model_of(model: Any) -> Any:
    """A MODEL, with a network of its own."""
    base = DemoBase(Config({"disable_unet_model_creation": True}), comfy.model_base.ModelType.FLOW)
    base.diffusion_model = Network(model.network)
    management = comfy.model_management
    return comfy.model_patcher.ModelPatcher(
        base,
        load_device=management.get_torch_device(),
        offload_device=management.unet_offload_device(),
    )
