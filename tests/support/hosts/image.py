"""Tiny, randomly initialised image pipelines: diffusers class name -> builder.

``PIPELINES[name]()`` returns ``(pipe, kwargs)``; ``run(pipe, kwargs)`` calls the pipeline with a
fresh generator and returns what it made as one tensor (latents wherever the class allows it).
Builders are deterministic and touch neither the network nor the disk.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from PIL import Image

from . import text

diffusers: Any = import_module("diffusers")  # untyped: its classes load lazily
PIPELINES: dict[str, Callable[[], tuple[Any, dict]]] = {}
SLOW: dict[str, Callable[[], tuple[Any, dict]]] = {}
DIM, SIZE, TOKENS = 32, 16, 8
OLD = "pipelines.deprecated."
INIT = {"strength": 0.875}  # of 8 steps 7 are taken, from a blend of image and noise


# --- helpers -----------------------------------------------------------------------------------


def run(pipe: Any, kwargs: dict, steps: int = 8, seed: int = 0) -> torch.Tensor:
    """One call with a fresh generator; its product as one tensor.

    The global generator is seeded too: some ControlNet pipelines encode their image with it.
    """
    torch.manual_seed(seed)
    extra = {} if "num_inference_steps" in kwargs else {"num_inference_steps": steps}
    return tensor(pipe(**kwargs, **extra, generator=torch.Generator().manual_seed(seed)))


def tensor(out: Any) -> torch.Tensor:
    """The images, frames, audio or embeddings of a pipeline's output as one tensor."""
    if isinstance(out, torch.Tensor):
        return out
    if isinstance(out, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(out))
    if isinstance(out, Image.Image):
        return torch.from_numpy(np.array(out))
    if isinstance(out, (list, tuple)):
        return torch.stack([tensor(one) for one in out])
    names = ("images", "frames", "audios", "image_embeddings", "image_embeds", "image")
    names += ("prediction", "rgb")
    return tensor(next(getattr(out, name) for name in names if hasattr(out, name)))


def hosts(*names: str, table: dict | None = None) -> Callable:
    """Register a builder ``(name) -> (pipe, kwargs)`` under each of ``names``."""

    def register(build: Callable) -> Callable:
        for name in names:
            (PIPELINES if table is None else table)[name] = functools.partial(_seeded, build, name)
        return build

    return register


def _seeded(build: Callable, name: str) -> tuple[Any, dict]:
    torch.manual_seed(0)
    return build(name)


def host(name: str, call: dict, **parts: Any) -> tuple[Any, dict]:
    """The pipeline ``name`` over ``parts``; every other component it requires is ``None``."""
    cls = getattr(diffusers, name)
    needs = [
        key
        for key, p in inspect.signature(cls.__init__).parameters.items()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and key != "self"
    ]
    pipe = cls(**{**dict.fromkeys(needs), **parts})
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            _wake(part.eval())
    pipe.set_progress_bar_config(disable=True)
    return pipe, {"output_type": "latent", **call}


def _wake(module: torch.nn.Module) -> None:
    """Give zero-initialised weights (gates, ControlNet taps) small random values."""
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1 and not weight.any():
                weight.normal_(std=0.05)


def inner(path: str) -> Any:
    """A submodule of diffusers, for classes that it does not export at the top."""
    return import_module(f"diffusers.{path}")


def embeds(*shape: int, seed: int = 1) -> torch.Tensor:
    """Seeded stand-ins for prompt embeddings: (1, 8, 32) unless a shape is given."""
    return torch.randn(shape or (1, TOKENS, DIM), generator=torch.Generator().manual_seed(seed))


def ones(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
    return torch.ones(shape or (1, TOKENS), dtype=dtype)


def picture(size: int = SIZE) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def mask(size: int = SIZE) -> Image.Image:
    """White (to be painted) on the left half."""
    pixels = np.zeros((size, size), dtype=np.uint8)
    pixels[:, : size // 2] = 255
    return Image.fromarray(pixels)


def vae(channels: int = 4, levels: int = 2, **more: Any) -> Any:
    """A KL autoencoder that halves the image ``levels - 1`` times."""
    return diffusers.AutoencoderKL(
        block_out_channels=(8,) * levels,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        latent_channels=channels,
        norm_num_groups=4,
        **{"sample_size": SIZE, "shift_factor": 0.0, **more},
    )


def flow(**more: Any) -> Any:
    return diffusers.FlowMatchEulerDiscreteScheduler(**more)


def square(size: int = SIZE) -> dict:
    return {"height": size, "width": size}


def pair(pooled: bool = False, masks: bool = False) -> dict:
    """Prompt and negative prompt embeddings under diffusers' usual names."""
    out: dict[str, Any] = {"prompt_embeds": embeds(), "negative_prompt_embeds": embeds(seed=2)}
    if pooled:
        out["pooled_prompt_embeds"] = embeds(1, DIM)
        out["negative_pooled_prompt_embeds"] = embeds(1, DIM, seed=2)
    if masks:
        out["prompt_attention_mask"] = out["negative_prompt_attention_mask"] = ones()
    return out


# --- Flux --------------------------------------------------------------------------------------


def flux_sizes(channels: int = 16) -> dict:
    sizes = dict(in_channels=channels, num_layers=1, num_single_layers=1, joint_attention_dim=DIM)
    return {**sizes, "attention_head_dim": 16, "num_attention_heads": 2}


def flux(name: str, call: dict, channels: int = 16, **parts: Any) -> tuple[Any, dict]:
    rope = dict(axes_dims_rope=(4, 4, 8), pooled_projection_dim=DIM)
    net = diffusers.FluxTransformer2DModel(
        **{**flux_sizes(channels), "out_channels": 16}, **rope, guidance_embeds=True
    )
    prompt = dict(prompt_embeds=embeds(), pooled_prompt_embeds=embeds(1, DIM), **square())
    return host(name, {**prompt, **call}, transformer=net, vae=vae(), scheduler=flow(), **parts)


@hosts("FluxPipeline")
def _flux(name: str) -> Any:
    return flux(name, {})


@hosts("FluxImg2ImgPipeline")
def _flux_image(name: str) -> Any:
    return flux(name, dict(image=picture(), **INIT))


@hosts("FluxInpaintPipeline")
def _flux_inpaint(name: str) -> Any:
    return flux(name, dict(image=picture(), mask_image=mask(), **INIT))


@hosts("FluxControlPipeline")
def _flux_control(name: str) -> Any:
    return flux(name, dict(control_image=picture()), channels=32)


@hosts("FluxControlImg2ImgPipeline")
def _flux_control_image(name: str) -> Any:
    call = dict(image=picture(), control_image=picture(), **INIT)
    return flux(name, call, channels=32)


@hosts("FluxControlInpaintPipeline")
def _flux_control_inpaint(name: str) -> Any:
    call = dict(image=picture(), control_image=picture(), mask_image=mask(), **INIT)
    return flux(name, call, channels=32)


def flux_controlnet() -> Any:
    rope = dict(axes_dims_rope=(4, 4, 8), pooled_projection_dim=DIM)
    return diffusers.FluxControlNetModel(**flux_sizes(), **rope, guidance_embeds=True)


@hosts("FluxControlNetPipeline")
def _flux_controlnet(name: str) -> Any:
    return flux(name, dict(control_image=picture()), controlnet=flux_controlnet())


@hosts("FluxControlNetImg2ImgPipeline")
def _flux_controlnet_image(name: str) -> Any:
    call = dict(image=picture(), control_image=picture(), **INIT)
    return flux(name, call, controlnet=flux_controlnet())


@hosts("FluxControlNetInpaintPipeline")
def _flux_controlnet_inpaint(name: str) -> Any:
    call = dict(image=picture(), control_image=picture(), mask_image=mask(), **INIT)
    return flux(name, call, controlnet=flux_controlnet())


@hosts("FluxFillPipeline")
def _flux_fill(name: str) -> Any:
    return flux(name, dict(image=picture(), mask_image=mask()), channels=16 + 16 + 16)


@hosts("FluxKontextPipeline")
def _flux_kontext(name: str) -> Any:
    return flux(name, dict(image=picture(), max_area=SIZE * SIZE, _auto_resize=False))


@hosts("FluxKontextInpaintPipeline")
def _flux_kontext_inpaint(name: str) -> Any:
    call = dict(image=picture(), mask_image=mask(), **INIT, max_area=SIZE * SIZE)
    return flux(name, dict(call, _auto_resize=False))


# --- Stable Diffusion 3 ------------------------------------------------------------------------


def sd3_sizes(channels: int = 4) -> dict:
    sizes = dict(sample_size=8, in_channels=channels, num_layers=2, attention_head_dim=16)
    sizes |= dict(num_attention_heads=2, joint_attention_dim=DIM, caption_projection_dim=DIM)
    return {**sizes, "pooled_projection_dim": DIM, "out_channels": channels}


def sd3(name: str, call: dict, channels: int = 4, **parts: Any) -> tuple[Any, dict]:
    net = diffusers.SD3Transformer2DModel(**sd3_sizes(channels))
    call = {**pair(pooled=True), **square(), **call}
    return host(name, call, transformer=net, vae=vae(channels), scheduler=flow(), **parts)


@hosts("StableDiffusion3Pipeline")
def _sd3(name: str) -> Any:
    return sd3(name, {})


@hosts("StableDiffusion3PAGPipeline")
def _sd3_pag(name: str) -> Any:
    return sd3(name, dict(pag_scale=2.0), pag_applied_layers="blocks.1")


@hosts("StableDiffusion3PAGImg2ImgPipeline")
def _sd3_pag_image(name: str) -> Any:
    call = dict(pag_scale=2.0, image=picture(), **INIT)
    return sd3(name, call, pag_applied_layers="blocks.1")


@hosts("StableDiffusion3Img2ImgPipeline")
def _sd3_image(name: str) -> Any:
    return sd3(name, dict(image=picture(), **INIT))


@hosts("StableDiffusion3InpaintPipeline")
def _sd3_inpaint(name: str) -> Any:
    return sd3(name, dict(image=picture(), mask_image=mask(), **INIT), channels=16)


@hosts("StableDiffusion3ControlNetPipeline")
def _sd3_controlnet(name: str) -> Any:
    net = diffusers.SD3ControlNetModel(**{**sd3_sizes(), "num_layers": 1})
    return sd3(name, dict(control_image=picture()), controlnet=net)


@hosts("StableDiffusion3ControlNetInpaintingPipeline")
def _sd3_controlnet_inpaint(name: str) -> Any:
    sizes = {**sd3_sizes(), "num_layers": 1, "extra_conditioning_channels": 1}
    call = dict(control_image=picture(), control_mask=mask())
    return sd3(name, call, controlnet=diffusers.SD3ControlNetModel(**sizes))


# --- Stable Diffusion 1/2 and XL ---------------------------------------------------------------


def unet_sizes(xl: bool = False) -> dict:
    sizes = dict(block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4)
    sizes |= dict(down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), sample_size=8)
    sizes |= dict(cross_attention_dim=DIM, attention_head_dim=2)
    if xl:  # six size and crop numbers of eight features each, and the pooled prompt
        sizes |= dict(addition_embed_type="text_time", addition_time_embed_dim=8)
        sizes |= dict(projection_class_embeddings_input_dim=6 * 8 + DIM)
    return sizes


def unet(xl: bool = False, **more: Any) -> Any:
    ups = dict(up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))
    return diffusers.UNet2DConditionModel(**{**unet_sizes(xl), **ups, **more})


def controlnet(xl: bool = False) -> Any:
    sizes = unet_sizes(xl)
    del sizes["sample_size"]
    return diffusers.ControlNetModel(**sizes, conditioning_embedding_out_channels=(8, 16))


def ddim(**more: Any) -> Any:
    return diffusers.DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        steps_offset=1,
        **{"clip_sample": False, "set_alpha_to_one": False, **more},
    )


def sd(name: str, call: dict, sized: bool = True, **parts: Any) -> tuple[Any, dict]:
    takes = inspect.signature(getattr(diffusers, name).__init__).parameters
    known = dict(unet=parts.pop("unet", None) or unet(), vae=vae(), scheduler=ddim())
    if "requires_safety_checker" in takes:
        known["requires_safety_checker"] = False
    call = {**pair(), **(square() if sized else {}), **call}
    return host(name, call, **{**known, **parts})


def sdxl(name: str, call: dict, sized: bool = True, **parts: Any) -> tuple[Any, dict]:
    known = dict(unet=parts.pop("unet", None) or unet(xl=True), vae=vae(), scheduler=euler())
    call = {**pair(pooled=True), **(square() if sized else {}), **call}
    return host(name, call, **{**known, "add_watermarker": False, **parts})


def euler(**more: Any) -> Any:
    return diffusers.EulerDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1, **more
    )


@hosts("StableDiffusionPipeline")
def _sd(name: str) -> Any:
    return sd(name, {})


@hosts("StableDiffusionPAGPipeline", "StableDiffusionXLPAGPipeline")
def _sd_pag(name: str) -> Any:
    return (sdxl if "XL" in name else sd)(name, dict(pag_scale=2.0))


@hosts("StableDiffusionPAGImg2ImgPipeline", "StableDiffusionXLPAGImg2ImgPipeline")
def _sd_pag_image(name: str) -> Any:
    call = dict(pag_scale=2.0, image=picture(), **INIT)
    return (sdxl if "XL" in name else sd)(name, call, sized=False)


@hosts("StableDiffusionPAGInpaintPipeline", "StableDiffusionXLPAGInpaintPipeline")
def _sd_pag_inpaint(name: str) -> Any:
    call = dict(pag_scale=2.0, image=picture(), mask_image=mask(), **INIT)
    return (sdxl if "XL" in name else sd)(name, call)


@hosts("StableDiffusionImg2ImgPipeline", "StableDiffusionXLImg2ImgPipeline")
def _sd_image(name: str) -> Any:
    return (sdxl if "XL" in name else sd)(name, dict(image=picture(), **INIT), sized=False)


@hosts("StableDiffusionInpaintPipeline", "StableDiffusionXLInpaintPipeline")
def _sd_inpaint(name: str) -> Any:
    return (sdxl if "XL" in name else sd)(name, dict(image=picture(), mask_image=mask(), **INIT))


@hosts("StableDiffusionXLPipeline")
def _sdxl(name: str) -> Any:
    return sdxl(name, {})


def with_controlnet(name: str, call: dict) -> Any:
    return (sdxl if "XL" in name else sd)(name, call, controlnet=controlnet("XL" in name))


@hosts("StableDiffusionControlNetPipeline", "StableDiffusionXLControlNetPipeline")
def _sd_controlnet(name: str) -> Any:
    return with_controlnet(name, dict(image=picture()))


@hosts("StableDiffusionControlNetPAGPipeline", "StableDiffusionXLControlNetPAGPipeline")
def _sd_controlnet_pag(name: str) -> Any:
    return with_controlnet(name, dict(image=picture(), pag_scale=2.0))


@hosts("StableDiffusionControlNetImg2ImgPipeline", "StableDiffusionXLControlNetImg2ImgPipeline")
def _sd_controlnet_image(name: str) -> Any:
    return with_controlnet(name, dict(image=picture(), control_image=picture(), **INIT))


@hosts("StableDiffusionControlNetInpaintPipeline", "StableDiffusionXLControlNetInpaintPipeline")
def _sd_controlnet_inpaint(name: str) -> Any:
    call = dict(image=picture(), mask_image=mask(), control_image=picture(), **INIT)
    return with_controlnet(name, call)


@hosts("StableDiffusionControlNetPAGInpaintPipeline")
def _sd_controlnet_pag_inpaint(name: str) -> Any:
    call = dict(image=picture(), mask_image=mask(), control_image=picture(), **INIT)
    return with_controlnet(name, dict(call, pag_scale=2.0))


@hosts("StableDiffusionXLControlNetPAGImg2ImgPipeline")
def _sdxl_controlnet_pag_image(name: str) -> Any:
    call = dict(image=picture(), control_image=picture(), pag_scale=2.0, **INIT)
    return with_controlnet(name, call)


@hosts("LatentConsistencyModelPipeline")
def _lcm(name: str) -> Any:
    net = unet(time_cond_proj_dim=DIM)
    call = dict(prompt_embeds=embeds(), original_inference_steps=50)
    out = sd(name, call, unet=net, scheduler=diffusers.LCMScheduler())
    del out[1]["negative_prompt_embeds"]
    return out


@hosts("LatentConsistencyModelImg2ImgPipeline")
def _lcm_image(name: str) -> Any:
    net = unet(time_cond_proj_dim=DIM)
    call = dict(image=picture(), original_inference_steps=50, **INIT)
    out = sd(name, call, sized=False, unet=net, scheduler=diffusers.LCMScheduler())
    del out[1]["negative_prompt_embeds"]
    return out


# --- PixArt, Sana, DiT -------------------------------------------------------------------------


def pixart(name: str, call: dict, **parts: Any) -> tuple[Any, dict]:
    net = diffusers.PixArtTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        out_channels=8,
        num_layers=2,
        cross_attention_dim=DIM,
        caption_channels=DIM,
        sample_size=8,
        use_additional_conditions=False,
    )
    call = {**pair(masks=True), **square(), "use_resolution_binning": False, **call}
    call["negative_prompt"] = None
    solver = diffusers.DPMSolverMultistepScheduler()
    return host(name, call, transformer=net, vae=vae(), scheduler=solver, **parts)


@hosts("PixArtSigmaPipeline", "PixArtAlphaPipeline")
def _pixart(name: str) -> Any:
    return pixart(name, {})


@hosts("PixArtSigmaPAGPipeline")
def _pixart_pag(name: str) -> Any:
    return pixart(name, dict(pag_scale=2.0), pag_applied_layers=["blocks.1"])


@hosts("DiTPipeline")
def _dit(name: str) -> Any:
    net = diffusers.DiTTransformer2DModel(
        sample_size=8,
        num_layers=2,
        patch_size=4,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        attention_bias=True,
        activation_fn="gelu-approximate",
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_zero",
        norm_elementwise_affine=False,
    )
    call = dict(class_labels=[1], output_type="np")
    return host(name, call, transformer=net, vae=vae(), scheduler=diffusers.DDIMScheduler())


def sana_sizes() -> dict:
    sizes = dict(in_channels=4, out_channels=4, num_layers=2, num_attention_heads=2)
    sizes |= dict(attention_head_dim=16, num_cross_attention_heads=2, cross_attention_head_dim=16)
    return {**sizes, "cross_attention_dim": DIM, "caption_channels": DIM, "sample_size": 8}


def dc_vae() -> Any:
    return diffusers.AutoencoderDC(
        latent_channels=4,
        attention_head_dim=2,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=[1, 1],
        downsample_block_type="conv",
        upsample_block_type="interpolate",
        decoder_norm_types="rms_norm",
        decoder_act_fns="silu",
        scaling_factor=0.41407,
    )


def sana(name: str, call: dict, **parts: Any) -> tuple[Any, dict]:
    more = parts.pop("net", {})
    net = diffusers.SanaTransformer2DModel(**sana_sizes(), **more)
    call = {**pair(masks=True), **square(32), "use_resolution_binning": False, **call}
    call["negative_prompt"] = None
    known = dict(vae=dc_vae(), scheduler=flow(shift=3.0), **parts)
    return host(name, call, transformer=net, **known)


@hosts("SanaPipeline")
def _sana(name: str) -> Any:
    return sana(name, {})


@hosts("SanaPAGPipeline")
def _sana_pag(name: str) -> Any:
    return sana(name, dict(pag_scale=2.0), pag_applied_layers=["blocks.1"])


@hosts("SanaControlNetPipeline")
def _sana_controlnet(name: str) -> Any:
    net = diffusers.SanaControlNetModel(**{**sana_sizes(), "num_layers": 1})
    return sana(name, dict(control_image=picture(32)), controlnet=net)


# --- Qwen-Image, Z-Image -----------------------------------------------------------------------


def qwen_sizes() -> dict:
    sizes = dict(in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16)
    sizes |= dict(num_attention_heads=2, joint_attention_dim=DIM)
    return {**sizes, "axes_dims_rope": (4, 6, 6)}


def qwen_vae() -> Any:
    sizes = dict(base_dim=8, z_dim=4, dim_mult=[1, 1], num_res_blocks=1)
    stats = dict(latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
    return diffusers.AutoencoderKLQwenImage(**sizes, temperal_downsample=[False], **stats)


def qwen_pair() -> dict:
    out = pair()
    out["prompt_embeds_mask"] = out["negative_prompt_embeds_mask"] = ones()
    return out


def qwen(name: str, call: dict, **parts: Any) -> tuple[Any, dict]:
    net = diffusers.QwenImageTransformer2DModel(**qwen_sizes())
    call = {**qwen_pair(), **square(), **call}
    return host(name, call, transformer=net, vae=qwen_vae(), scheduler=flow(), **parts)


@hosts("QwenImagePipeline")
def _qwen(name: str) -> Any:
    return qwen(name, {})


@hosts("QwenImageImg2ImgPipeline")
def _qwen_image(name: str) -> Any:
    return qwen(name, dict(image=picture(), **INIT))


@hosts("QwenImageInpaintPipeline")
def _qwen_inpaint(name: str) -> Any:
    return qwen(name, dict(image=picture(), mask_image=mask(), **INIT))


@hosts("QwenImageControlNetPipeline")
def _qwen_controlnet(name: str) -> Any:
    net = diffusers.QwenImageControlNetModel(**{**qwen_sizes(), "num_layers": 1})
    return qwen(name, dict(control_image=picture()), controlnet=net)


@hosts("QwenImageControlNetInpaintPipeline")
def _qwen_controlnet_inpaint(name: str) -> Any:
    sizes = {**qwen_sizes(), "num_layers": 1, "extra_condition_channels": 4}
    net = diffusers.QwenImageControlNetModel(**sizes)
    return qwen(name, dict(control_image=picture(), control_mask=mask()), controlnet=net)


def zimage(name: str, call: dict, **parts: Any) -> tuple[Any, dict]:
    net = parts.pop("transformer", None) or diffusers.ZImageTransformer2DModel(
        in_channels=4,
        dim=DIM,
        n_layers=2,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=DIM,
        axes_dims=[4, 6, 6],
        axes_lens=[256, 32, 32],
    )
    prompt = dict(prompt_embeds=[embeds(8, DIM)], negative_prompt_embeds=[embeds(8, DIM, seed=2)])
    call = {**prompt, **square(), **call}
    return host(name, call, transformer=net, vae=vae(), scheduler=flow(), **parts)


@hosts("ZImagePipeline")
def _zimage(name: str) -> Any:
    return zimage(name, {})


@hosts("ZImageImg2ImgPipeline")
def _zimage_image(name: str) -> Any:
    return zimage(name, dict(image=picture(), **INIT))


@hosts("ZImageInpaintPipeline")
def _zimage_inpaint(name: str) -> Any:
    return zimage(name, dict(image=picture(), mask_image=mask(), **INIT))


# --- Lumina, AuraFlow, Chroma, CogView, HunyuanDiT, HiDream ------------------------------------


@hosts("Lumina2Pipeline")
def _lumina2(name: str) -> Any:
    net = diffusers.Lumina2Transformer2DModel(
        sample_size=8,
        in_channels=4,
        hidden_size=24,
        num_layers=2,
        num_refiner_layers=1,
        num_attention_heads=3,
        num_kv_heads=1,
        multiple_of=2,
        axes_dim_rope=(4, 2, 2),
        axes_lens=(128, 128, 128),
        cap_feat_dim=DIM,
    )
    call = dict(**pair(), **square(64), prompt_attention_mask=ones(dtype=torch.bool))
    call["negative_prompt_attention_mask"] = ones(dtype=torch.bool)
    return host(name, call, transformer=net, vae=vae(), scheduler=flow())


@hosts("LuminaPipeline")
def _lumina(name: str) -> Any:
    net = diffusers.LuminaNextDiT2DModel(
        sample_size=8,
        in_channels=4,
        hidden_size=24,
        num_layers=2,
        num_attention_heads=3,
        num_kv_heads=1,
        multiple_of=16,
        cross_attention_dim=DIM,
        scaling_factor=1.0,
    )
    torch.nn.init.normal_(net.pad_token)  # left uninitialised
    call = dict(**pair(masks=True), **square(64))
    return host(name, call, transformer=net, vae=vae(), scheduler=flow())


@hosts("AuraFlowPipeline")
def _aura(name: str) -> Any:
    net = diffusers.AuraFlowTransformer2DModel(
        sample_size=8,
        in_channels=4,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=DIM,
        caption_projection_dim=DIM,
        pos_embed_max_size=64,
    )
    call = dict(**pair(masks=True), **square())
    return host(name, call, transformer=net, vae=vae(), scheduler=flow())


def chroma(name: str, call: dict) -> tuple[Any, dict]:
    net = diffusers.ChromaTransformer2DModel(
        **flux_sizes(),
        axes_dims_rope=(4, 4, 8),
        approximator_num_channels=16,
        approximator_hidden_dim=DIM,
        approximator_layers=1,
    )
    net.register_to_config(guidance_embeds=False)  # the inpainting pipeline asks for it
    masks = dict(prompt_attention_mask=ones(dtype=torch.bool))
    masks["negative_prompt_attention_mask"] = ones(dtype=torch.bool)
    call = {**pair(), **masks, **square(), **call}
    return host(name, call, transformer=net, vae=vae(), scheduler=flow())


@hosts("ChromaPipeline")
def _chroma(name: str) -> Any:
    return chroma(name, {})


@hosts("ChromaImg2ImgPipeline")
def _chroma_image(name: str) -> Any:
    return chroma(name, dict(image=picture(), **INIT))


@hosts("ChromaInpaintPipeline")
def _chroma_inpaint(name: str) -> Any:
    return chroma(name, dict(image=picture(), mask_image=mask(), **INIT))


def cogview(channels: int = 4) -> dict:
    sizes = dict(in_channels=channels, out_channels=4, num_layers=2, attention_head_dim=8)
    sizes |= dict(num_attention_heads=4, text_embed_dim=DIM, time_embed_dim=8, condition_dim=4)
    return {**sizes, "sample_size": 8}


@hosts("CogView4Pipeline")
def _cogview4(name: str) -> Any:
    net = diffusers.CogView4Transformer2DModel(**cogview(), rope_axes_dim=(64, 64))
    solver = flow(base_shift=0.25, max_shift=0.75, use_dynamic_shifting=True)
    call = dict(**pair(), **square())
    return host(name, call, transformer=net, vae=vae(), scheduler=solver)


@hosts("CogView4ControlPipeline")
def _cogview4_control(name: str) -> Any:
    net = diffusers.CogView4Transformer2DModel(**cogview(8), rope_axes_dim=(64, 64))
    solver = flow(base_shift=0.25, max_shift=0.75, use_dynamic_shifting=True)
    call = dict(**pair(), **square(), control_image=picture())
    return host(name, call, transformer=net, vae=vae(), scheduler=solver)


@hosts("CogView3PlusPipeline")
def _cogview3(name: str) -> Any:
    net = diffusers.CogView3PlusTransformer2DModel(**cogview(), pos_embed_max_size=8)
    solver = diffusers.CogVideoXDDIMScheduler()
    call = dict(**pair(), **square())
    return host(name, call, transformer=net, vae=vae(), scheduler=solver)


def hunyuan_sizes() -> dict:
    sizes = dict(sample_size=8, patch_size=2, in_channels=4, num_attention_heads=2)
    sizes |= dict(attention_head_dim=16, hidden_size=DIM, cross_attention_dim=DIM)
    sizes |= dict(cross_attention_dim_t5=DIM, pooled_projection_dim=DIM)
    return {**sizes, "text_len": TOKENS, "text_len_t5": TOKENS}


def hunyuan_dit(name: str, call: dict, **parts: Any) -> tuple[Any, dict]:
    net = diffusers.HunyuanDiT2DModel(**hunyuan_sizes(), num_layers=4)
    texts = pair(masks=True)
    texts |= {f"{key}_2": value for key, value in pair(masks=True).items()}
    call = {**texts, **square(), "use_resolution_binning": False, **call}
    known = dict(vae=vae(), scheduler=diffusers.DDPMScheduler(), requires_safety_checker=False)
    return host(name, call, transformer=net, **known, **parts)


@hosts("HunyuanDiTPipeline")
def _hunyuan_dit(name: str) -> Any:
    return hunyuan_dit(name, {})


@hosts("HunyuanDiTPAGPipeline")
def _hunyuan_dit_pag(name: str) -> Any:
    return hunyuan_dit(name, dict(pag_scale=2.0), pag_applied_layers="blocks.1")


@hosts("HunyuanDiTControlNetPipeline")
def _hunyuan_dit_controlnet(name: str) -> Any:
    net = diffusers.HunyuanDiT2DControlNetModel(**hunyuan_sizes(), transformer_num_layers=4)
    return hunyuan_dit(name, dict(control_image=picture()), controlnet=net)


@hosts("HiDreamImagePipeline")
def _hidream(name: str) -> Any:
    net = diffusers.HiDreamImageTransformer2DModel(
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_channels=[DIM, DIM],
        text_emb_dim=2 * DIM,
        axes_dims_rope=(4, 2, 2),
        max_resolution=(32, 32),
        llama_layers=(0, 1),
        force_inference_output=True,
    )
    call: dict[str, Any] = square()
    for seed, sign in enumerate(("", "negative_")):
        call[f"{sign}prompt_embeds_t5"] = embeds(seed=seed)
        call[f"{sign}prompt_embeds_llama3"] = embeds(2, 1, TOKENS, DIM, seed=seed)
        call[f"{sign}pooled_prompt_embeds"] = embeds(1, 2 * DIM, seed=seed)
    solver = diffusers.UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    )
    pipe, call = host(name, call, transformer=net, vae=vae(), scheduler=solver)
    pipe.default_sample_size = 8  # the requested size is scaled up to this area
    return pipe, call


# --- Flux 2 and its relatives ------------------------------------------------------------------


def flux2(name: str, call: dict, **parts: Any) -> tuple[Any, dict]:
    net = diffusers.Flux2Transformer2DModel(
        **flux_sizes(),
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=name == "Flux2Pipeline",
    )
    call = {"prompt_embeds": embeds(), **square(), **call}
    return host(name, call, transformer=net, vae=flux2_vae(), scheduler=flow(), **parts)


@hosts("Flux2Pipeline", "Flux2KleinKVPipeline")
def _flux2(name: str) -> Any:
    return flux2(name, {})


@hosts("Flux2KleinPipeline")
def _flux2_klein(name: str) -> Any:
    return flux2(name, dict(negative_prompt_embeds=embeds(seed=2)), is_distilled=False)


@hosts("Flux2KleinInpaintPipeline")
def _flux2_klein_inpaint(name: str) -> Any:
    call = dict(negative_prompt_embeds=embeds(seed=2), image=picture(), mask_image=mask(), **INIT)
    return flux2(name, call)


@hosts("OvisImagePipeline")
def _ovis(name: str) -> Any:
    net = diffusers.OvisImageTransformer2DModel(
        **flux_sizes(), out_channels=16, axes_dims_rope=(4, 4, 8)
    )
    call = dict(**pair(), **square(), negative_prompt=None)
    return host(name, call, transformer=net, vae=vae(), scheduler=flow())


@hosts("BriaPipeline")
def _bria(name: str) -> Any:
    net = diffusers.BriaTransformer2DModel(**flux_sizes(), axes_dims_rope=[0, 4, 12])
    call = dict(**pair(), **square())
    return host(name, call, transformer=net, vae=vae(), scheduler=flow())


@hosts("PRXPipeline")
def _prx(name: str) -> Any:
    net = diffusers.PRXTransformer2DModel(
        in_channels=4,
        patch_size=2,
        context_in_dim=DIM,
        hidden_size=DIM,
        mlp_ratio=2.0,
        num_heads=2,
        depth=2,
        axes_dim=[8, 8],
    )
    call = dict(**pair(masks=True), **square(), use_resolution_binning=False)
    return host(name, call, transformer=net, vae=vae(), scheduler=flow(), text_encoder=text.gemma())


@hosts("NucleusMoEImagePipeline")
def _nucleus(name: str) -> Any:
    net = diffusers.NucleusMoEImageTransformer2DModel(
        **{**qwen_sizes(), "num_layers": 3},
        num_key_value_heads=2,
        mlp_ratio=2.0,
        dense_moe_strategy="leave_first_block_dense",
        num_experts=4,
        moe_intermediate_dim=16,
        capacity_factors=[2.0, 2.0, 2.0],
    )
    with torch.no_grad():  # the experts are left uninitialised
        for key, weight in net.named_parameters():
            if "gate_up_proj" in key or "down_proj" in key:
                weight.normal_(std=0.1)
    call = dict(**qwen_pair(), **square())
    return host(name, call, transformer=net, vae=qwen_vae(), scheduler=flow())


@hosts("Krea2Pipeline")
def _krea2(name: str) -> Any:
    net = diffusers.Krea2Transformer2DModel(
        in_channels=16,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=DIM,
        timestep_embed_dim=16,
        text_hidden_dim=DIM,
        num_text_layers=2,
        text_num_attention_heads=2,
        text_num_key_value_heads=2,
        text_intermediate_size=DIM,
        num_layerwise_text_blocks=1,
        num_refiner_text_blocks=1,
        axes_dims_rope=(4, 6, 6),
    )
    call: dict[str, Any] = square()
    for seed, sign in enumerate(("", "negative_")):
        call[f"{sign}prompt_embeds"] = embeds(1, TOKENS, 2, DIM, seed=seed)
        call[f"{sign}prompt_embeds_mask"] = ones(dtype=torch.bool)
    return host(name, call, transformer=net, vae=qwen_vae(), scheduler=flow())


@hosts("HunyuanImagePipeline")
def _hunyuan_image(name: str) -> Any:
    net = diffusers.HunyuanImageTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=1,
        num_single_layers=1,
        num_refiner_layers=1,
        text_embed_dim=DIM,
        text_embed_2_dim=DIM,
        rope_axes_dim=(8, 8),
    )
    coder = diffusers.AutoencoderKLHunyuanImage(
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        block_out_channels=(32, 32),
        layers_per_block=1,
        spatial_compression_ratio=2,
        sample_size=SIZE,
        scaling_factor=0.5,
    )
    call: dict[str, Any] = square()
    for seed, sign in enumerate(("", "negative_")):
        for end in ("", "_2"):
            call[f"{sign}prompt_embeds{end}"] = embeds(seed=seed)
            call[f"{sign}prompt_embeds_mask{end}"] = ones()
    guide = diffusers.AdaptiveProjectedMixGuidance(adaptive_projected_guidance_start_step=2)
    return host(name, call, transformer=net, vae=coder, scheduler=flow(), guider=guide)


@hosts("Kandinsky5T2IPipeline")
def _kandinsky5(name: str) -> Any:
    net = diffusers.Kandinsky5Transformer3DModel(
        in_visual_dim=4,
        in_text_dim=DIM,
        in_text_dim2=DIM,
        time_dim=16,
        out_visual_dim=4,
        patch_size=(1, 2, 2),
        model_dim=DIM,
        ff_dim=DIM,
        num_text_blocks=1,
        num_visual_blocks=2,
        axes_dims=(4, 6, 6),
    )
    call: dict[str, Any] = square()
    for seed, sign in enumerate(("", "negative_")):
        call[f"{sign}prompt_embeds_qwen"] = embeds(seed=seed)
        call[f"{sign}prompt_embeds_clip"] = embeds(1, DIM, seed=seed)
        call[f"{sign}prompt_cu_seqlens"] = torch.tensor([0, TOKENS], dtype=torch.int32)
    pipe, call = host(name, call, transformer=net, vae=vae(), scheduler=flow())
    pipe.resolutions = [(64, 64)]  # a megapixel otherwise
    return pipe, call


@hosts("Cosmos2TextToImagePipeline")
def _cosmos2(name: str) -> Any:
    net = diffusers.CosmosTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=2,
        mlp_ratio=2,
        text_embed_dim=DIM,
        adaln_lora_dim=4,
        max_size=(4, 32, 32),
        extra_pos_embed_type=None,
        concat_padding_mask=False,  # else it resizes the mask with torchvision
    )
    known = dict(vae=wan_vae(), scheduler=flow(use_karras_sigmas=True))
    call = dict(**pair(), **square())
    return host(name, call, transformer=net, safety_checker=Unchecked(), **known)


def wan_vae() -> Any:
    sizes = dict(base_dim=8, z_dim=4, dim_mult=[1, 1], num_res_blocks=1, scale_factor_spatial=2)
    stats = dict(latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
    return diffusers.AutoencoderKLWan(**sizes, temperal_downsample=[False], **stats)


class Unchecked(torch.nn.Module):
    """A safety checker that passes everything."""

    device, dtype = torch.device("cpu"), torch.float32

    def check_text_safety(self, prompt: str) -> bool:
        return True

    def check_video_safety(self, video: Any) -> Any:
        return video


# --- Stable Diffusion's relatives --------------------------------------------------------------


@hosts("StableDiffusionUpscalePipeline")
def _upscale(name: str) -> Any:
    net = unet(in_channels=7, num_class_embeds=1000)
    low = diffusers.DDPMScheduler()
    known = dict(unet=net, low_res_scheduler=low, vae=vae(scaling_factor=0.08333))
    return sd(name, dict(image=picture(8)), sized=False, **known)


@hosts("StableDiffusionLatentUpscalePipeline")
def _latent_upscale(name: str) -> Any:
    net = unet(in_channels=8, out_channels=5, time_cond_proj_dim=128 + DIM)
    call = dict(image=embeds(1, 4, 4, 4), **pair(pooled=True))
    return sd(name, call, sized=False, unet=net, scheduler=euler())


@hosts("StableDiffusionInstructPix2PixPipeline", "StableDiffusionXLInstructPix2PixPipeline")
def _instruct(name: str) -> Any:
    build, net = (sdxl, unet(xl=True, in_channels=8)) if "XL" in name else (sd, unet(in_channels=8))
    return build(name, dict(image=picture()), sized="XL" in name, unet=net)


@hosts("StableDiffusionDepth2ImgPipeline")
def _depth(name: str) -> Any:
    call = dict(image=picture(), depth_map=embeds(1, SIZE, SIZE), **INIT)
    return sd(name, call, sized=False, unet=unet(in_channels=5))


@hosts("StableDiffusionImageVariationPipeline")
def _variation(name: str) -> Any:
    call = dict(image=embeds(1, 3, 32, 32), **square())
    known = dict(unet=unet(), vae=vae(), scheduler=ddim(), requires_safety_checker=False)
    return host(name, call, image_encoder=text.clip_vision(), **known)


@hosts("StableDiffusionSAGPipeline")
def _sag(name: str) -> Any:
    return sd(name, {})


@hosts("StableDiffusionLDM3DPipeline")
def _ldm3d(name: str) -> Any:
    return sd(name, dict(output_type="np"), vae=vae(in_channels=6, out_channels=6))


@hosts("StableDiffusionPanoramaPipeline")
def _panorama(name: str) -> Any:
    return sd(name, dict(height=128, width=160), vae=vae(levels=4))


@hosts("StableDiffusionAdapterPipeline", "StableDiffusionXLAdapterPipeline")
def _adapter(name: str) -> Any:
    side = diffusers.T2IAdapter(channels=[8, 16], num_res_blocks=1, downscale_factor=2)
    order = dict(down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"))
    order |= dict(up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
    known = dict(unet=unet("XL" in name, **order), vae=vae(), adapter=side)
    known["scheduler"] = euler() if "XL" in name else ddim()
    if "XL" not in name:
        known["requires_safety_checker"] = False
    return host(name, dict(image=picture(), **pair("XL" in name), **square()), **known)


@hosts("StableDiffusionControlNetXSPipeline", "StableDiffusionXLControlNetXSPipeline")
def _controlnet_xs(name: str) -> Any:
    net = unet("XL" in name, use_linear_projection=True, layers_per_block=2)
    side = diffusers.ControlNetXSAdapter.from_unet(
        net, size_ratio=1.0, conditioning_embedding_out_channels=(8, 16)
    )
    build = sdxl if "XL" in name else sd
    return build(name, dict(image=picture()), unet=net, controlnet=side)


def union() -> Any:
    sizes = unet_sizes(xl=True)
    del sizes["sample_size"]
    sizes |= dict(num_trans_channel=8, num_trans_head=2, num_proj_channel=8)
    return diffusers.ControlNetUnionModel(**sizes, conditioning_embedding_out_channels=(8, 16))


@hosts("StableDiffusionXLControlNetUnionPipeline")
def _union(name: str) -> Any:
    return sdxl(name, dict(control_image=[picture()], control_mode=[0]), controlnet=union())


@hosts("StableDiffusionXLControlNetUnionImg2ImgPipeline")
def _union_image(name: str) -> Any:
    call = dict(image=picture(), control_image=[picture()], control_mode=[0], **INIT)
    return sdxl(name, call, controlnet=union())


@hosts("StableDiffusionXLControlNetUnionInpaintPipeline")
def _union_inpaint(name: str) -> Any:
    call = dict(image=picture(), mask_image=mask(), control_image=[picture()], control_mode=[0])
    return sdxl(name, dict(call, **INIT), controlnet=union())


@hosts("KolorsPipeline", "KolorsPAGPipeline")
def _kolors(name: str) -> Any:
    call = dict(**pair(pooled=True), **square())
    return host(name, call, unet=unet(xl=True), vae=vae(), scheduler=euler())


@hosts("StableUnCLIPImg2ImgPipeline")
def _unclip_image(name: str) -> Any:
    known = dict(image_encoder=text.clip_vision(), **unclip_parts())
    return sd(name, dict(image_embeds=embeds(1, DIM)), **known)


@hosts("StableUnCLIPPipeline")
def _unclip(name: str) -> Any:
    prior = dict(prior=prior_net(), prior_scheduler=unclip_scheduler())
    prior |= dict(prior_tokenizer=text.clip_tokenizer(), prior_text_encoder=text.clip_text(True))
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    call = dict(prompt="a red cat", prior_num_inference_steps=4)
    pipe, call = sd(name, call, **unclip_parts(), **prior, **texts)
    return pipe, {key: value for key, value in call.items() if "embeds" not in key}


def unclip_parts() -> dict:
    net = unet(class_embed_type="projection", projection_class_embeddings_input_dim=2 * DIM)
    noise = diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2")
    normal = inner("pipelines.stable_diffusion").StableUnCLIPImageNormalizer(embedding_dim=DIM)
    return dict(unet=net, image_normalizer=normal, image_noising_scheduler=noise)


def prior_net() -> Any:
    sizes = dict(num_attention_heads=2, attention_head_dim=16, num_layers=2, embedding_dim=DIM)
    return diffusers.PriorTransformer(**sizes)


def unclip_scheduler() -> Any:
    return diffusers.UnCLIPScheduler(
        variance_type="fixed_small_log", prediction_type="sample", clip_sample_range=10.0
    )


@hosts("MarigoldDepthPipeline", "MarigoldNormalsPipeline")
def _marigold(name: str) -> Any:
    texts = dict(text_encoder=text.clip_text(), tokenizer=text.clip_tokenizer())
    call = dict(image=picture(32), processing_resolution=0, output_type="pt")
    known = dict(unet=unet(in_channels=8), vae=vae(), scheduler=ddim(), **texts)
    return host(name, call, **known)


# --- Kandinsky ---------------------------------------------------------------------------------


def movq(channels: int = 4) -> Any:
    return diffusers.VQModel(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=channels,
        num_vq_embeddings=16,
        vq_embed_dim=channels,
        norm_num_groups=4,
    )


def kandinsky22(name: str, call: dict, **sizes: Any) -> tuple[Any, dict]:
    net = unet(
        out_channels=8,
        encoder_hid_dim=DIM,
        encoder_hid_dim_type="image_proj",
        **{"addition_embed_type": "image", **sizes},
    )
    texts = dict(image_embeds=embeds(1, DIM), negative_image_embeds=embeds(1, DIM, seed=2))
    call = {**texts, **square(64), **call}
    return host(name, call, unet=net, movq=movq(), scheduler=ddim())


@hosts("KandinskyV22Pipeline")
def _kandinsky22(name: str) -> Any:
    return kandinsky22(name, {})


@hosts("KandinskyV22Img2ImgPipeline")
def _kandinsky22_image(name: str) -> Any:
    return kandinsky22(name, dict(image=picture(64), **INIT))


@hosts("KandinskyV22InpaintPipeline")
def _kandinsky22_inpaint(name: str) -> Any:
    hole = np.zeros((64, 64), dtype=np.float32)
    hole[:, :32] = 1.0
    return kandinsky22(name, dict(image=picture(64), mask_image=hole), in_channels=9)


@hosts("KandinskyV22PriorPipeline")
def _kandinsky22_prior(name: str) -> Any:
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text(True))
    known = dict(prior=prior_net(), image_encoder=text.clip_vision(), scheduler=unclip_scheduler())
    return host(name, dict(prompt="a red cat", output_type="pt"), **known, **texts)


@hosts("Kandinsky3Pipeline", "Kandinsky3Img2ImgPipeline")
def _kandinsky3(name: str) -> Any:
    net = diffusers.Kandinsky3UNet(
        time_embedding_dim=8,
        groups=2,
        attention_head_dim=4,
        layers_per_block=3,
        block_out_channels=(8, 16),
        cross_attention_dim=8,
        encoder_hid_dim=DIM,
    )
    masks = dict(attention_mask=ones(), negative_attention_mask=ones())
    more = dict(image=picture(64), **INIT) if "Img2Img" in name else square(64)
    known = dict(unet=net, movq=movq(), scheduler=diffusers.DDPMScheduler())
    return host(name, dict(**pair(), **masks, **more), **known)


# --- Cascades, pixels and tokens ---------------------------------------------------------------


def cascade(**more: Any) -> Any:
    sizes = dict(timestep_ratio_embedding_dim=16, conditioning_dim=DIM, num_attention_heads=(2, 2))
    sizes |= dict(block_out_channels=(16, 16), down_num_layers_per_block=(1, 1))
    sizes |= dict(up_num_layers_per_block=(1, 1), clip_text_pooled_in_channels=DIM)
    blocks = ("SDCascadeResBlock", "SDCascadeTimestepBlock", "SDCascadeAttnBlock")
    sizes |= dict(block_types_per_layer=(blocks, blocks), switch_level=(False,))
    return inner("models").StableCascadeUNet(
        **{**sizes, "in_channels": 4, "out_channels": 4, **more}
    )


def cascade_pair() -> dict:
    out = pair()
    for seed, sign in enumerate(("", "negative_")):
        out[f"{sign}prompt_embeds_pooled"] = embeds(1, 1, DIM, seed=seed)
    return out


@hosts("StableCascadePriorPipeline")
def _cascade_prior(name: str) -> Any:
    net = cascade(clip_text_in_channels=DIM, clip_image_in_channels=DIM)
    call = dict(**cascade_pair(), **square(128), output_type="pt")
    solver = diffusers.DDPMWuerstchenScheduler()
    known = dict(text_encoder=text.clip_text(True), resolution_multiple=16.0)
    return host(name, call, prior=net, scheduler=solver, **known)


@hosts("StableCascadeDecoderPipeline")
def _cascade_decoder(name: str) -> Any:
    net = cascade(effnet_in_channels=4, patch_size=1)
    call = dict(**cascade_pair(), image_embeddings=embeds(1, 4, 4, 4), guidance_scale=2.0)
    known = dict(decoder=net, scheduler=diffusers.DDPMWuerstchenScheduler(), latent_dim_scale=2.0)
    return host(name, call, **known)


@hosts("WuerstchenPriorPipeline")
def _wuerstchen(name: str) -> Any:
    net = inner(OLD + "wuerstchen").WuerstchenPrior(
        c_in=4, c=16, c_cond=DIM, c_r=16, depth=1, nhead=2
    )
    call = dict(**pair(), **square(128), output_type="pt")
    solver = diffusers.DDPMWuerstchenScheduler()
    known = dict(text_encoder=text.clip_text(True), resolution_multiple=16.0)
    return host(name, call, prior=net, scheduler=solver, **known)


def pixel_unet(**more: Any) -> Any:
    sizes = dict(sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4)
    sizes |= dict(down_block_types=("DownBlock2D", "AttnDownBlock2D"), attention_head_dim=4)
    return diffusers.UNet2DModel(
        **{**sizes, "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), **more}
    )


@hosts("DDIMPipeline", "DDPMPipeline", "PNDMPipeline")
def _pixels(name: str) -> Any:
    solver = getattr(diffusers, name.replace("Pipeline", "Scheduler"))()
    return host(name, dict(output_type="np"), unet=pixel_unet(), scheduler=solver)


@hosts("ConsistencyModelPipeline")
def _consistency(name: str) -> Any:
    known = dict(unet=pixel_unet(), scheduler=diffusers.CMStochasticIterativeScheduler())
    return host(name, dict(output_type="pt"), **known)


@hosts("ScoreSdeVePipeline")
def _score(name: str) -> Any:
    solver = diffusers.schedulers.ScoreSdeVeScheduler()
    return host(name, dict(output_type="np"), unet=pixel_unet(), scheduler=solver)


@hosts("LDMPipeline")
def _ldm(name: str) -> Any:
    net = pixel_unet(in_channels=4, out_channels=4)
    return host(name, dict(output_type="np"), unet=net, vqvae=movq(), scheduler=ddim())


@hosts("LDMSuperResolutionPipeline")
def _ldm_upscale(name: str) -> Any:
    net = pixel_unet(in_channels=6, out_channels=3)
    call = dict(image=picture(32), output_type="pt")
    return host(name, call, unet=net, vqvae=movq(3), scheduler=ddim())


@hosts("LDMTextToImagePipeline")
def _ldm_text(name: str) -> Any:
    texts = dict(bert=text.clip_text(), tokenizer=text.clip_tokenizer())
    call = dict(prompt="a red cat", guidance_scale=4.0, **square(64), output_type="pt")
    return host(name, call, unet=unet(), vqvae=vae(), scheduler=ddim(), **texts)


@hosts("IFPipeline", "IFImg2ImgPipeline", "IFInpaintingPipeline")
def _deepfloyd(name: str) -> Any:
    net = unet(in_channels=3, out_channels=6)
    more: dict[str, Any] = square() if name == "IFPipeline" else dict(image=picture(), **INIT)
    if "Inpaint" in name:
        more["mask_image"] = mask()
    solver = diffusers.DDPMScheduler(variance_type="learned_range", clip_sample=True)
    known = dict(unet=net, scheduler=solver, requires_safety_checker=False)
    return host(name, dict(**pair(), **more, output_type="pt"), **known)


@hosts("IFSuperResolutionPipeline")
def _deepfloyd_upscale(name: str) -> Any:
    net = unet(in_channels=6, out_channels=6, num_class_embeds=1000)
    solver = diffusers.DDPMScheduler(variance_type="learned_range", clip_sample=True)
    known = dict(unet=net, scheduler=solver, requires_safety_checker=False)
    known["image_noising_scheduler"] = diffusers.DDPMScheduler()
    return host(name, dict(**pair(), image=picture(), **square(), output_type="pt"), **known)


def amused(name: str, call: dict) -> tuple[Any, dict]:
    net = diffusers.UVit2DModel(
        hidden_size=DIM,
        cond_embed_dim=DIM,
        micro_cond_encode_dim=8,
        micro_cond_embed_dim=5 * 8,
        encoder_hidden_size=DIM,
        vocab_size=17,
        codebook_size=16,
        in_channels=DIM,
        block_out_channels=DIM,
        num_res_blocks=1,
        block_num_heads=2,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=DIM,
        sample_size=8,
    )
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text(True))
    known = dict(
        transformer=net, vqvae=movq(), scheduler=diffusers.AmusedScheduler(mask_token_id=16)
    )
    return host(name, {"prompt": "a red cat", **square(), **call}, **known, **texts)


@hosts("AmusedPipeline")
def _amused(name: str) -> Any:
    return amused(name, {})


# --- the newest families -----------------------------------------------------------------------


def flux2_vae() -> Any:
    blocks = dict(block_out_channels=(8, 8), norm_num_groups=4, layers_per_block=1)
    blocks |= dict(down_block_types=("DownEncoderBlock2D",) * 2, latent_channels=4)
    return diffusers.AutoencoderKLFlux2(**blocks, up_block_types=("UpDecoderBlock2D",) * 2)


@hosts("LongCatImagePipeline")
def _longcat(name: str) -> Any:
    rope = dict(axes_dims_rope=[4, 4, 8], pooled_projection_dim=DIM)
    net = diffusers.LongCatImageTransformer2DModel(**flux_sizes(64), **rope)
    call = dict(prompt="a red cat", **square(), enable_prompt_rewrite=False)
    texts = dict(text_encoder=text.qwen_vl(), tokenizer=text.tokenizer())
    pipe, call = host(name, call, transformer=net, vae=vae(16), scheduler=flow(), **texts)
    pipe.tokenizer_max_length = 16
    return pipe, call


@hosts("BriaFiboPipeline")
def _fibo(name: str) -> Any:
    net = diffusers.BriaFiboTransformer2DModel(
        **{**flux_sizes(4), "joint_attention_dim": 2 * DIM},
        axes_dims_rope=[0, 4, 12],
        text_encoder_dim=DIM,
    )
    texts = dict(text_encoder=text.llama(head=True), tokenizer=text.tokenizer())
    call = dict(prompt="a red cat", negative_prompt="a dog", **square(64))
    return host(name, call, transformer=net, vae=wan_vae(), scheduler=flow(), **texts)


@hosts("BriaFibo2Pipeline")
def _fibo2(name: str) -> Any:
    net = diffusers.BriaFibo2Transformer2DModel(
        in_channels=4,
        dim=DIM,
        n_layers=2,
        n_refiner_layers=1,
        n_heads=2,
        cap_feat_dim=DIM,
        injection_layer_ids=(1,),
        perceiver_num_layers=1,
        min_num_gist_tokens=4,
        max_num_gist_tokens=8,
        gist_step=4,
        gist_min_text_len=4,
        gist_max_text_len=16,
        axes_dims=(4, 6, 6),
        axes_lens=(64, 32, 32),
    )
    call = dict(prompt_embeds=embeds(1, 2, 8, DIM), **square())
    call["negative_prompt_embeds"] = embeds(1, 2, 8, DIM, seed=2)
    return host(name, call, transformer=net, vae=flux2_vae(), scheduler=flow())


@hosts("ErnieImagePipeline")
def _ernie(name: str) -> Any:
    net = diffusers.ErnieImageTransformer2DModel(
        hidden_size=DIM,
        num_attention_heads=2,
        num_layers=2,
        ffn_hidden_size=DIM,
        in_channels=16,
        out_channels=16,
        text_in_dim=DIM,
        rope_axes_dim=(4, 6, 6),
    )
    prompt = dict(prompt_embeds=[embeds(8, DIM)], negative_prompt_embeds=[embeds(8, DIM, seed=2)])
    call = dict(**prompt, **square())
    return host(name, call, transformer=net, vae=flux2_vae(), scheduler=flow())


@hosts("GlmImagePipeline")
def _glm(name: str) -> Any:
    net = diffusers.GlmImageTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        text_embed_dim=DIM,
        time_embed_dim=8,
        condition_dim=4,
        prior_vq_quantizer_codebook_size=16,
    )
    call = dict(**pair(), **square(32), prior_token_ids=torch.arange(64)[None] % 16)
    return host(name, call, transformer=net, vae=vae(), scheduler=flow())


@hosts("Ideogram4Pipeline")
def _ideogram(name: str) -> Any:
    def net() -> Any:
        return diffusers.Ideogram4Transformer2DModel(
            in_channels=16,
            num_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            intermediate_size=DIM,
            adaln_dim=8,
            llm_features_dim=13 * DIM,
            mrope_section=(4, 2, 2),
        )

    texts = dict(text_encoder=text.qwen3_vl(layers=36), tokenizer=text.tokenizer())
    nets = dict(transformer=net(), unconditional_transformer=net())
    call = dict(prompt="a red cat", guidance_scale=4.0, guidance_schedule=None, **square())
    call["max_sequence_length"] = 16
    return host(name, call, vae=flux2_vae(), scheduler=flow(), **nets, **texts)


@hosts("QwenImage21Pipeline")
def _qwen21(name: str) -> Any:
    net = diffusers.QwenImage21Transformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        context_in_dim=DIM,
        axes_dims_rope=(4, 6, 6),
    )
    call = dict(**qwen_pair(), **square(128), true_cfg_scale=4.0)
    known = dict(transformer=net, scheduler=flow(), processor=text.processor(eos=False))
    return host(name, call, **known)


@hosts("ZImageControlNetPipeline")
def _zimage_controlnet(name: str) -> Any:
    return zimage(name, dict(control_image=picture()), controlnet=zimage_controlnet(4))


@hosts("ZImageControlNetInpaintPipeline")
def _zimage_controlnet_inpaint(name: str) -> Any:
    call = dict(image=picture(), mask_image=mask(), control_image=picture())
    return zimage(name, call, controlnet=zimage_controlnet(9))


def zimage_controlnet(channels: int) -> Any:
    return diffusers.ZImageControlNetModel(
        control_layers_places=[0, 1],
        control_in_dim=channels,
        dim=DIM,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
    )


@hosts("PRXPixelPipeline")
def _prx_pixel(name: str) -> Any:
    net = diffusers.PRXTransformer2DModel(
        in_channels=3,
        patch_size=4,
        context_in_dim=DIM,
        hidden_size=DIM,
        mlp_ratio=2.0,
        num_heads=2,
        depth=2,
        axes_dim=[8, 8],
        bottleneck_size=16,
    )
    call = dict(**pair(masks=True), **square(), use_resolution_binning=False)
    return host(name, call, transformer=net, scheduler=flow(), text_encoder=text.qwen3())


@hosts("HunyuanImageRefinerPipeline")
def _hunyuan_refiner(name: str) -> Any:
    net = diffusers.HunyuanImageTransformer2DModel(
        in_channels=16,  # the latents and the encoded image, each with its frame doubled
        out_channels=8,
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=1,
        num_single_layers=1,
        num_refiner_layers=1,
        patch_size=(1, 1, 1),
        text_embed_dim=DIM,
        rope_axes_dim=(4, 6, 6),
        guidance_embeds=True,
    )
    coder = diffusers.AutoencoderKLHunyuanImageRefiner(
        latent_channels=4,
        block_out_channels=(32, 32),
        layers_per_block=1,
        spatial_compression_ratio=2,
        temporal_compression_ratio=1,
    )
    call = dict(**qwen_pair(), **square(), image=picture())
    return host(name, call, transformer=net, vae=coder, scheduler=flow())


@hosts("SanaSprintPipeline", "SanaSprintImg2ImgPipeline")
def _sana_sprint(name: str) -> Any:
    net = diffusers.SanaTransformer2DModel(
        **sana_sizes(), guidance_embeds=True, qk_norm="rms_norm_across_heads"
    )
    call = dict(prompt_embeds=embeds(), prompt_attention_mask=ones(), **square(32))
    call |= dict(use_resolution_binning=False, intermediate_timesteps=None)
    if "Img2Img" in name:
        call |= dict(image=picture(32), **INIT)
    return host(name, call, transformer=net, vae=dc_vae(), scheduler=diffusers.SCMScheduler())


@hosts("AmusedImg2ImgPipeline")
def _amused_image(name: str) -> Any:
    pipe, call = amused(name, dict(image=picture(), **INIT))
    return pipe, {key: value for key, value in call.items() if key not in square()}


class PooledVAE(diffusers.AutoencoderKLQwenImage):
    """Qwen's autoencoder behind a pooling by 32: the edit pipelines fix a megapixel."""

    def encode(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().encode(x[..., ::32, ::32], *args, **kwargs)


@hosts("QwenImageEditPipeline", "QwenImageEditPlusPipeline", "QwenImageEditInpaintPipeline")
def _qwen_edit(name: str) -> Any:
    sizes = dict(base_dim=8, z_dim=4, dim_mult=[1, 1], num_res_blocks=1)
    stats = dict(latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
    coder = PooledVAE(**sizes, temperal_downsample=[False], **stats)
    net = diffusers.QwenImageTransformer2DModel(**qwen_sizes())
    call = dict(**qwen_pair(), **square(512), image=picture(64))
    if "Inpaint" in name:
        call |= dict(mask_image=mask(64), **square(1024), **INIT)
    pipe, call = host(name, call, transformer=net, vae=coder, scheduler=flow())
    pipe.vae_scale_factor = 64
    return pipe, call


@hosts("QwenImageLayeredPipeline")
def _qwen_layered(name: str) -> Any:
    sizes = dict(base_dim=8, z_dim=8, dim_mult=[1, 1], num_res_blocks=1, input_channels=4)
    stats = dict(latents_mean=[0.0] * 8, latents_std=[1.0] * 8)
    coder = PooledVAE(**sizes, temperal_downsample=[False], **stats)
    more = dict(use_additional_t_cond=True, use_layer3d_rope=True)
    more |= dict(in_channels=32, out_channels=8)
    net = diffusers.QwenImageTransformer2DModel(**{**qwen_sizes(), **more})
    call = dict(**qwen_pair(), image=picture(64).convert("RGBA"), prompt="a red cat", layers=2)
    call["output_type"] = "pt"  # latents are refused
    known = dict(transformer=net, vae=coder, scheduler=flow(), text_encoder=text.qwen_vl())
    pipe, call = host(name, call, **known)
    pipe.vae_scale_factor = 64
    return pipe, call


# --- older relatives ---------------------------------------------------------------------------


@hosts("KandinskyV22ControlnetPipeline", "KandinskyV22ControlnetImg2ImgPipeline")
def _kandinsky22_control(name: str) -> Any:
    more = dict(addition_embed_type="image_hint", in_channels=8)
    call = dict(
        hint=embeds(1, 3, 256, 256),
        **(dict(image=picture(64), **INIT) if "Img2Img" in name else {}),
    )
    return kandinsky22(name, dict(call, output_type="pt"), **more)


@hosts("KandinskyV22PriorEmb2EmbPipeline")
def _kandinsky22_emb(name: str) -> Any:
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text(True))
    known = dict(prior=prior_net(), image_encoder=text.clip_vision(), scheduler=unclip_scheduler())
    call = dict(prompt="a red cat", image=embeds(1, DIM), output_type="pt", **INIT)
    return host(name, call, **known, **texts)


@hosts("SemanticStableDiffusionPipeline")
def _semantic(name: str) -> Any:
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    pipe, call = sd(name, dict(prompt="a red cat"), **texts)
    return pipe, {key: value for key, value in call.items() if "embeds" not in key}


@hosts("PaintByExamplePipeline")
def _paint(name: str) -> Any:
    sizes = text.clip_vision().config
    eye = inner(OLD + "paint_by_example").PaintByExampleImageEncoder(sizes, proj_size=DIM)
    call = dict(example_image=embeds(1, 3, 32, 32), image=picture(), mask_image=mask(), **square())
    known = dict(unet=unet(in_channels=9), vae=vae(), scheduler=ddim())
    return host(name, call, image_encoder=eye, **known)


@hosts("StableDiffusionGLIGENPipeline")
def _gligen(name: str) -> Any:
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    call = dict(gligen_phrases=["a cat"], gligen_boxes=[[0.1, 0.2, 0.6, 0.7]])
    return sd(name, call, unet=unet(attention_type="gated"), **texts)


@hosts("RePaintPipeline")
def _repaint(name: str) -> Any:
    known = dict(unet=pixel_unet(), scheduler=diffusers.RePaintScheduler())
    call = dict(image=picture(32), mask_image=mask(32), output_type="np", jump_length=2)
    return host(name, dict(call, jump_n_sample=2), **known)


@hosts("KarrasVePipeline")
def _karras(name: str) -> Any:
    known = dict(unet=pixel_unet(), scheduler=diffusers.KarrasVeScheduler())
    return host(name, dict(output_type="np"), **known)


@hosts("StableCascadeCombinedPipeline")
def _cascade_both(name: str) -> Any:
    solvers = [diffusers.DDPMWuerstchenScheduler() for _ in range(2)]
    first = cascade(clip_text_in_channels=DIM, clip_image_in_channels=DIM)
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text(True))
    prior = dict(prior_prior=first, prior_scheduler=solvers[0])
    prior |= {f"prior_{key}": value for key, value in texts.items()}
    known = dict(decoder=cascade(effnet_in_channels=4), scheduler=solvers[1], **texts)
    call = dict(prompt="a red cat", **square(128), prior_num_inference_steps=8)
    return host(name, call, vqgan=paella(), **prior, **known)


def paella() -> Any:
    sizes = dict(levels=1, bottleneck_blocks=1, num_vq_embeddings=16)
    return inner(OLD + "wuerstchen").PaellaVQModel(**sizes)


@hosts("WuerstchenDecoderPipeline")
def _wuerstchen_decoder(name: str) -> Any:
    net = inner(OLD + "wuerstchen").WuerstchenDiffNeXt(
        c_in=4,
        c_out=4,
        c_r=16,
        c_cond=DIM,
        c_hidden=[16, 16, 16, 16],
        nhead=[-1, 2, 2, 2],
        blocks=[1, 1, 1, 1],
        level_config=["CT", "CTA", "CTA", "CTA"],
        clip_embd=DIM,
        effnet_embd=4,
    )
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    call = dict(image_embeddings=embeds(1, 4, 4, 4), prompt="a red cat", guidance_scale=2.0)
    solver = diffusers.DDPMWuerstchenScheduler()
    known = dict(decoder=net, scheduler=solver, vqgan=paella(), latent_dim_scale=8.0)
    return host(name, call, **known, **texts)


@hosts("AmusedInpaintPipeline")
def _amused_inpaint(name: str) -> Any:
    pipe, call = amused(name, dict(image=picture(), mask_image=mask(), strength=1.0))
    return pipe, {key: value for key, value in call.items() if key not in square()}


@hosts("StableDiffusionPipelineSafe")
def _safe(name: str) -> Any:
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    pipe, call = sd(name, dict(prompt="a red cat"), **texts)
    pipe._safety_text_concept = "dog"
    return pipe, {key: value for key, value in call.items() if "embeds" not in key}


@hosts("IFImg2ImgSuperResolutionPipeline", "IFInpaintingSuperResolutionPipeline")
def _deepfloyd_redo(name: str) -> Any:
    net = unet(in_channels=6, out_channels=6, num_class_embeds=1000)
    solver = diffusers.DDPMScheduler(variance_type="learned_range", clip_sample=True)
    known = dict(unet=net, scheduler=solver, requires_safety_checker=False)
    known["image_noising_scheduler"] = diffusers.DDPMScheduler()
    call = dict(image=picture(8), original_image=picture(), **pair(), **INIT)
    if "Inpaint" in name:
        call["mask_image"] = mask()
    return host(name, dict(call, output_type="pt"), **known)


@hosts("MarigoldIntrinsicsPipeline")
def _marigold_intrinsics(name: str) -> Any:
    texts = dict(text_encoder=text.clip_text(), tokenizer=text.clip_tokenizer())
    call = dict(image=picture(32), processing_resolution=0, output_type="pt")
    net = unet(in_channels=12, out_channels=8)
    names = {"target_names": ["albedo", "material"]}
    names |= {
        key: {"prediction_space": "linear", "up_to_scale": True} for key in names["target_names"]
    }
    known = dict(unet=net, vae=vae(), scheduler=ddim(), target_properties=names, **texts)
    return host(name, call, **known)


@hosts("ShapEPipeline")
def _shap_e(name: str) -> Any:
    prior = diffusers.PriorTransformer(
        num_attention_heads=2,
        attention_head_dim=16,
        embedding_dim=8,
        num_embeddings=4,
        embedding_proj_dim=DIM,
        time_embed_dim=16,
        num_layers=1,
        clip_embed_dim=16,
        additional_embeddings=0,
        time_embed_act_fn="gelu",
        norm_in_type="layer",
        encoder_hid_proj_type=None,
        added_emb_type=None,
    )
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text(True))
    solver = diffusers.HeunDiscreteScheduler(
        beta_schedule="exp", prediction_type="sample", use_karras_sigmas=True, clip_sample=True
    )
    return host(name, dict(prompt="a red cat"), prior=prior, scheduler=solver, **texts)


@hosts("VisualClozeGenerationPipeline")
def _cloze(name: str) -> Any:
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    texts |= dict(tokenizer_2=text.tokenizer(), text_encoder_2=text.t5())
    grid = [[picture(), picture()], [picture(), None]]
    call: dict[str, Any] = dict(task_prompt="a cat", content_prompt="a red cat", image=grid)
    call["max_sequence_length"] = 16
    pipe, call = flux(name, call, channels=16 + 16 + 16, resolution=32, **texts)
    gone = ("height", "width", "prompt_embeds", "pooled_prompt_embeds")
    return pipe, {key: value for key, value in call.items() if key not in gone}


@hosts("BriaFiboEditPipeline")
def _fibo_edit(name: str) -> Any:
    pipe, call = _fibo(name)
    prompt = '{"edit_instruction": "a red cat"}'
    return pipe, dict(call, prompt=prompt, image=picture(64), _auto_resize=False)


@hosts("KandinskyV22CombinedPipeline", "KandinskyV22Img2ImgCombinedPipeline")
def _kandinsky22_both(name: str) -> Any:
    net = unet(
        out_channels=8,
        addition_embed_type="image",
        encoder_hid_dim=DIM,
        encoder_hid_dim_type="image_proj",
    )
    prior = dict(prior_prior=prior_net(), prior_scheduler=unclip_scheduler())
    prior |= dict(prior_tokenizer=text.clip_tokenizer(), prior_text_encoder=text.clip_text(True))
    prior |= dict(prior_image_encoder=text.clip_vision(), prior_image_processor=None)
    call = dict(prompt="a red cat", prior_num_inference_steps=8, **square(64))
    if "Img2Img" in name:
        call |= dict(image=picture(64), **INIT)
    return host(name, call, unet=net, movq=movq(), scheduler=ddim(), **prior)


@hosts("CycleDiffusionPipeline")
def _cycle(name: str) -> Any:
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    call = dict(prompt="a red cat", source_prompt="a dog", image=picture(), eta=0.1, **INIT)
    pipe, call = sd(name, call, sized=False, **texts)
    return pipe, {key: value for key, value in call.items() if "embeds" not in key}


@hosts("StableDiffusionParadigmsPipeline")
def _paradigms(name: str) -> Any:
    solver = diffusers.DDIMParallelScheduler(clip_sample=False, steps_offset=1)
    return sd(name, dict(parallel=4), scheduler=solver)


@hosts("VQDiffusionPipeline")
def _vq(name: str) -> Any:
    net = diffusers.Transformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        num_vector_embeds=17,
        num_embeds_ada_norm=100,
        sample_size=4,
        norm_num_groups=4,
        cross_attention_dim=DIM,
        activation_fn="geglu-approximate",
    )
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    known = dict(transformer=net, vqvae=movq(), **texts)
    known["scheduler"] = diffusers.VQDiffusionScheduler(num_vec_classes=17, num_train_timesteps=100)
    learned = inner(OLD + "vq_diffusion.pipeline_vq_diffusion")
    empty = learned.LearnedClassifierFreeSamplingEmbeddings(learnable=False)
    known["learned_classifier_free_sampling_embeddings"] = empty
    return host(name, dict(prompt="a red cat", output_type="np"), **known)


@hosts("ZImageOmniPipeline")
def _zimage_omni(name: str) -> Any:
    prompt = dict(
        prompt_embeds=[[embeds(8, DIM)]], negative_prompt_embeds=[[embeds(8, DIM, seed=2)]]
    )
    return zimage(name, prompt)


@hosts("WuerstchenCombinedPipeline")
def _wuerstchen_both(name: str) -> Any:
    (first, _), (last, call) = (
        _wuerstchen("WuerstchenPriorPipeline"),
        _wuerstchen_decoder("WuerstchenDecoderPipeline"),
    )
    texts = dict(tokenizer=text.clip_tokenizer(), text_encoder=text.clip_text())
    prior = {f"prior_{key}": value for key, value in texts.items()}
    prior |= dict(prior_prior=first.prior, prior_scheduler=first.scheduler)
    known = dict(decoder=last.decoder, scheduler=last.scheduler, vqgan=last.vqgan)
    call = dict(prompt="a red cat", **square(128), prior_num_inference_steps=8)
    return host(name, call, **known, **texts, **prior)
