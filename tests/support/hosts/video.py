"""Tiny, randomly initialised video, audio, 3D and other non-image pipelines, built offline.

``PIPELINES[name]()`` returns a pipeline of that diffusers class (a variant in brackets) and the
keyword arguments of a call, without ``num_inference_steps`` and ``generator``. ``FIXED`` holds
classes whose call takes no ``num_inference_steps``: their "steps" gives what it takes instead.
``MODULAR`` holds modular pipelines, made of their denoising blocks alone, whose call returns a
dictionary. Latents are asked for wherever the class can return them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import diffusers as d
import numpy as np
import torch
import transformers as hf
from PIL import Image

from hosts.text import (
    VOCAB,
    clip_text,
    clip_tokenizer,
    clip_vision,
    qwen3,
    seeded,
    t5,
    tokenizer,
    umt5,
)

Host = tuple[Any, dict[str, Any]]
PIPELINES: dict[str, Callable[[], Host]] = {}
FIXED: dict[str, Callable[[], Host]] = {}  # the call takes no num_inference_steps
MODULAR: dict[str, Callable[[], Host]] = {}  # modular pipelines: the call returns a dictionary
WIDTH = 32  # channels of every text embedding


def host(
    name: str, table: dict[str, Callable[[], Host]] = PIPELINES
) -> Callable[[Callable[[], Host]], Callable[[], Host]]:
    """Registers a builder; seeds it, sets the models to evaluation and silences the bar."""

    def register(build: Callable[[], Host]) -> Callable[[], Host]:
        @functools.wraps(build)
        def built() -> Host:
            torch.manual_seed(0)
            pipe, kwargs = build()
            for part in pipe.components.values():
                if isinstance(part, torch.nn.Module):
                    _wake(part.eval())
            pipe.set_progress_bar_config(disable=True)
            return pipe, kwargs

        table[name] = built
        return built

    return register


def _wake(model: torch.nn.Module) -> None:
    """Gives matrices that are initialised to zero small random weights."""
    for weight in model.parameters():
        if weight.ndim > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.1)


def found(module: str, name: str) -> Any:
    """A class that diffusers does not export (or exports only next to an optional package)."""
    return getattr(importlib.import_module(f"diffusers.{module}"), name)


def without_torchvision(name: str) -> Any:
    """An image processor of transformers that works on PIL images."""
    return getattr(hf, f"{name}Pil", None) or getattr(hf, name)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def image(size: int = 32, seed: int = 0) -> Image.Image:
    pixels = torch.rand(size, size, 3, generator=torch.Generator().manual_seed(seed))
    return Image.fromarray((255 * pixels).byte().numpy())


def frames(count: int, size: int = 32) -> list[Image.Image]:
    return [image(size, seed) for seed in range(count)]


def clip(count: int, size: int = 32) -> torch.Tensor:
    """A video as a tensor (1, 3, frames, height, width) in [0, 1]."""
    return torch.rand(1, 3, count, size, size, generator=torch.Generator().manual_seed(0))


def embeds(length: int = 4, width: int = WIDTH, mask: bool = False) -> dict[str, torch.Tensor]:
    """Prompt and negative prompt, already encoded, with attention masks when asked for."""
    given = {
        "prompt_embeds": noise(1, length, width, seed=1),
        "negative_prompt_embeds": noise(1, length, width, seed=2),
    }
    if mask:
        given["prompt_attention_mask"] = torch.ones(1, length, dtype=torch.long)
        given["negative_prompt_attention_mask"] = torch.ones(1, length, dtype=torch.long)
    return given


def size(num_frames: int | None = 5, side: int = 32) -> dict[str, Any]:
    shape: dict[str, Any] = {"height": side, "width": side, "output_type": "latent"}
    return shape if num_frames is None else {**shape, "num_frames": num_frames}


def flow(**config: Any) -> Any:
    return d.FlowMatchEulerDiscreteScheduler(**config)


NO_TEXT = {"text_encoder": None, "tokenizer": None}
NO_TEXT_2 = {**NO_TEXT, "text_encoder_2": None, "tokenizer_2": None}

# Configurations are packed: one argument to a line would add five hundred lines.
# fmt: off

# --- Wan --------------------------------------------------------------------------------------


def unipc() -> Any:
    return d.UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    )


def wan_vae() -> Any:
    return d.AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1)


WAN = {
    "num_attention_heads": 2, "attention_head_dim": 12, "out_channels": 16, "text_dim": WIDTH,
    "freq_dim": 32, "ffn_dim": 32, "num_layers": 2, "rope_max_seq_len": 32,
}


def wan_model(in_channels: int = 16, cls: Any = None, **config: Any) -> Any:
    return (cls or d.WanTransformer3DModel)(**{**WAN, "in_channels": in_channels, **config})


SEES = {"image_dim": WIDTH, "added_kv_proj_dim": 24}


def clip_processor(side: int = 32) -> Any:
    return without_torchvision("CLIPImageProcessor")(crop_size=side, size={"shortest_edge": side})


def eyes() -> dict[str, Any]:
    """An image encoder with its processor."""
    return {"image_encoder": clip_vision(projection=False), "image_processor": clip_processor()}


def wan(cls: Any, model: Any, **parts: Any) -> Any:
    return cls(transformer=model, vae=wan_vae(), scheduler=unipc(), **NO_TEXT, **parts)


@host("WanPipeline")
def _() -> Host:
    return wan(d.WanPipeline, wan_model()), {**embeds(), **size()}


@host("WanPipeline (two experts)")
def _() -> Host:
    pipe = wan(d.WanPipeline, wan_model(), transformer_2=wan_model(), boundary_ratio=0.875)
    return pipe, {**embeds(), **size(), "guidance_scale_2": 3.0}


@host("WanPipeline (a timestep per token)")
def _() -> Host:
    pipe = wan(d.WanPipeline, wan_model(), expand_timesteps=True)
    return pipe, {**embeds(), **size()}


@host("WanImageToVideoPipeline")
def _() -> Host:
    pipe = wan(
        d.WanImageToVideoPipeline, wan_model(36), transformer_2=wan_model(36), boundary_ratio=0.875
    )
    return pipe, {**embeds(), **size(), "image": image()}


@host("WanImageToVideoPipeline (image encoder)")
def _() -> Host:
    pipe = wan(d.WanImageToVideoPipeline, wan_model(36, **SEES), **eyes())
    return pipe, {**embeds(), **size(), "image": image()}


@host("WanImageToVideoPipeline (a timestep per token)")
def _() -> Host:
    pipe = wan(d.WanImageToVideoPipeline, wan_model(), expand_timesteps=True)
    return pipe, {**embeds(), **size(), "image": image()}


@host("WanVideoToVideoPipeline")
def _() -> Host:
    pipe = wan(d.WanVideoToVideoPipeline, wan_model())
    return pipe, {**embeds(), **size(None), "video": frames(5), "strength": 0.9}


@host("WanVACEPipeline")
def _() -> Host:
    model = wan_model(cls=d.WanVACETransformer3DModel, vace_layers=[0], vace_in_channels=96)
    call = {"video": frames(5), "mask": [Image.new("L", (32, 32), 255)] * 5}
    return wan(d.WanVACEPipeline, model), {**embeds(), **size(), **call}


@host("LucyEditPipeline")
def _() -> Host:
    pipe = wan(d.LucyEditPipeline, wan_model(32))
    return pipe, {**embeds(), **size(), "video": frames(5)}


@host("WanAnimatePipeline")
def _() -> Host:
    model = wan_model(
        36, d.WanAnimateTransformer3DModel, image_dim=WIDTH, num_layers=2, motion_encoder_size=16,
        motion_encoder_channel_sizes={"4": 8, "8": 8, "16": 8}, motion_style_dim=8, motion_dim=4,
        motion_encoder_dim=16, face_encoder_hidden_dim=16, face_encoder_num_heads=2,
        inject_face_latents_blocks=2, added_kv_proj_dim=24,
    )
    pipe = wan(d.WanAnimatePipeline, model, **eyes())
    call = {
        "image": image(), "pose_video": frames(5), "face_video": frames(5, 16),
        "segment_frame_length": 5,
    }
    return pipe, {**embeds(), **size(None), **call}


# --- Hunyuan ----------------------------------------------------------------------------------


def hunyuan_vae() -> Any:
    return d.AutoencoderKLHunyuanVideo(
        latent_channels=4, block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4
    )


HUNYUAN = {
    "in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 10,
    "num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1, "text_embed_dim": WIDTH,
    "pooled_projection_dim": 8, "rope_axes_dim": (2, 4, 4),
}


def hunyuan_model(**config: Any) -> Any:
    return d.HunyuanVideoTransformer3DModel(**{**HUNYUAN, **config})


def siglip() -> dict[str, Any]:
    """An image encoder with its processor."""
    config = hf.SiglipVisionConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        image_size=16, patch_size=8,
    )
    resize = without_torchvision("SiglipImageProcessor")(size={"height": 16, "width": 16})
    return {"image_encoder": seeded(hf.SiglipVisionModel, config), "feature_extractor": resize}


@host("HunyuanVideoPipeline")
def _() -> Host:
    pipe = d.HunyuanVideoPipeline(
        transformer=hunyuan_model(), vae=hunyuan_vae(), scheduler=flow(shift=7.0), **NO_TEXT_2
    )
    call = {**embeds(mask=True), "pooled_prompt_embeds": noise(1, 8)}
    return pipe, {**call, **size()}


@host("HunyuanVideoPipeline (two passes)")
def _() -> Host:
    pipe = d.HunyuanVideoPipeline(
        transformer=hunyuan_model(), vae=hunyuan_vae(), scheduler=flow(shift=7.0), **NO_TEXT_2
    )
    pooled = {f"{sign}pooled_prompt_embeds": noise(1, 8) for sign in ("", "negative_")}
    return pipe, {**embeds(mask=True), **pooled, **size(), "true_cfg_scale": 3.0}


@host("HunyuanVideoImageToVideoPipeline")
def _() -> Host:
    pipe = d.HunyuanVideoImageToVideoPipeline(
        transformer=hunyuan_model(image_condition_type="token_replace"), vae=hunyuan_vae(),
        scheduler=flow(shift=7.0), image_processor=None, **NO_TEXT_2,
    )
    call = {**embeds(mask=True), "pooled_prompt_embeds": noise(1, 8), "image": image()}
    return pipe, {**call, **size()}


def hunyuan15(task: str, channels: int = 4) -> tuple[Any, Any]:
    model = d.HunyuanVideo15Transformer3DModel(
        in_channels=2 * channels + 1, out_channels=channels, num_attention_heads=2,
        attention_head_dim=10, num_layers=2, num_refiner_layers=1, text_embed_dim=WIDTH,
        text_embed_2_dim=WIDTH, image_embed_dim=8, rope_axes_dim=(2, 4, 4), target_size=32,
        task_type=task,
    )
    vae = d.AutoencoderKLHunyuanVideo15(
        latent_channels=channels, block_out_channels=(32, 32, 32, 32, 32), layers_per_block=1
    )
    return model, vae


def hunyuan15_call() -> dict[str, Any]:
    call = {**embeds(), **{f"{key}_2": value for key, value in embeds(3).items()}}
    masks = {key.replace("embeds", "embeds_mask"): torch.ones(call[key].shape[:2]) for key in call}
    return {**call, **masks}


@host("HunyuanVideo15Pipeline")
def _() -> Host:
    model, vae = hunyuan15("t2v")
    pipe = d.HunyuanVideo15Pipeline(
        transformer=model, vae=vae, scheduler=flow(), guider=d.ClassifierFreeGuidance(), **NO_TEXT_2
    )
    pipe.vision_num_semantic_tokens = 4
    return pipe, {**hunyuan15_call(), **size()}


@host("HunyuanVideo15ImageToVideoPipeline")
def _() -> Host:
    model, vae = hunyuan15("i2v")
    pipe = d.HunyuanVideo15ImageToVideoPipeline(
        transformer=model, vae=vae, scheduler=flow(), guider=d.ClassifierFreeGuidance(), **siglip(),
        **NO_TEXT_2,
    )
    return pipe, {**hunyuan15_call(), "image": image(), "num_frames": 5, "output_type": "latent"}


@host("HunyuanSkyreelsImageToVideoPipeline")
def _() -> Host:
    pipe = d.HunyuanSkyreelsImageToVideoPipeline(
        transformer=hunyuan_model(in_channels=8), vae=hunyuan_vae(), scheduler=flow(shift=7.0),
        **NO_TEXT_2,
    )
    pooled = {f"{sign}pooled_prompt_embeds": noise(1, 8) for sign in ("", "negative_")}
    return pipe, {**embeds(mask=True), **pooled, **size(), "image": image()}


@host("HunyuanVideoFramepackPipeline")
def _() -> Host:
    model = d.HunyuanVideoFramepackTransformer3DModel(
        **HUNYUAN, has_image_proj=True, image_proj_dim=8, has_clean_x_embedder=True
    )
    pipe = d.HunyuanVideoFramepackPipeline(
        transformer=model, vae=hunyuan_vae(), scheduler=flow(shift=7.0), **siglip(), **NO_TEXT_2
    )
    call = {**embeds(mask=True), "pooled_prompt_embeds": noise(1, 8), "image": image()}
    return pipe, {**call, **size(13), "latent_window_size": 3}


# --- LTX --------------------------------------------------------------------------------------


def ltx_vae() -> Any:
    return d.AutoencoderKLLTXVideo(
        latent_channels=8, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1),
        spatio_temporal_scaling=(True, True, False, False), patch_size=2,
        decoder_spatio_temporal_scaling=(True, True, False, False),
    )


def ltx_model() -> Any:
    return d.LTXVideoTransformer3DModel(
        in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=8, num_layers=2,
        cross_attention_dim=16, caption_channels=WIDTH,
    )


def ltx(cls: Any) -> Any:
    return cls(transformer=ltx_model(), vae=ltx_vae(), scheduler=flow(), **NO_TEXT)


@host("LTXPipeline")
def _() -> Host:
    return ltx(d.LTXPipeline), {**embeds(mask=True), **size(9)}


@host("LTXImageToVideoPipeline")
def _() -> Host:
    return ltx(d.LTXImageToVideoPipeline), {**embeds(mask=True), **size(9), "image": image()}


@host("LTXConditionPipeline")
def _() -> Host:
    return ltx(d.LTXConditionPipeline), {**embeds(mask=True), **size(9), "image": image()}


def ltx2_vae() -> Any:
    return d.AutoencoderKLLTX2Video(
        latent_channels=4, block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
        layers_per_block=(1, 1, 1), decoder_layers_per_block=(1, 1, 1),
        spatio_temporal_scaling=(True, True), decoder_spatio_temporal_scaling=(True, True),
        decoder_inject_noise=(False,) * 3, upsample_residual=(True, True), upsample_factor=(1, 1),
        downsample_type=("spatiotemporal",) * 2, upsample_type=("spatiotemporal",) * 2,
        down_block_types=("LTX2VideoDownBlock3D",) * 2, patch_size=4, spatial_compression_ratio=16,
        temporal_compression_ratio=4,
    )


def ltx2(cls: Any) -> Any:
    model = d.LTX2VideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=2,
        cross_attention_dim=16, audio_in_channels=4, audio_out_channels=4,
        audio_num_attention_heads=2, audio_attention_head_dim=4, audio_cross_attention_dim=8,
        caption_channels=16,
    )
    audio = d.AutoencoderKLLTX2Audio(
        base_channels=4, ch_mult=(1,), num_res_blocks=1, resolution=32, latent_channels=2,
        mel_bins=8,
    )
    connectors = found("pipelines.ltx2.connectors", "LTX2TextConnectors")(
        caption_channels=16, text_proj_in_factor=2, video_connector_num_attention_heads=2,
        video_connector_attention_head_dim=8, video_connector_num_layers=1,
        video_connector_num_learnable_registers=4, audio_connector_num_attention_heads=2,
        audio_connector_attention_head_dim=8, audio_connector_num_layers=1,
        audio_connector_num_learnable_registers=4,
    )
    return cls(
        transformer=model, vae=ltx2_vae(), audio_vae=audio, connectors=connectors, vocoder=None,
        scheduler=flow(), **NO_TEXT,
    )


LTX2_CALL = {
    "guidance_scale": 3.0, "stg_scale": 0.0, "audio_stg_scale": 0.0, "modality_scale": 1.0,
    "audio_modality_scale": 1.0,
}


@host("LTX2Pipeline")
def _() -> Host:
    return ltx2(d.LTX2Pipeline), {**embeds(mask=True), **size(5), **LTX2_CALL}


@host("LTX2Pipeline (all guidance)")
def _() -> Host:
    call = {"spatio_temporal_guidance_blocks": [1], "guidance_rescale": 0.0}
    return ltx2(d.LTX2Pipeline), {**embeds(mask=True), **size(5), **call}


@host("LTX2ImageToVideoPipeline")
def _() -> Host:
    pipe = ltx2(d.LTX2ImageToVideoPipeline)
    return pipe, {**embeds(mask=True), **size(5), **LTX2_CALL, "image": image(), "image_crf": 0}


@host("LTX2ConditionPipeline")
def _() -> Host:
    pipe = ltx2(d.LTX2ConditionPipeline)
    return pipe, {**embeds(mask=True), **size(5), **LTX2_CALL}


@host("LTX2InContextPipeline")
def _() -> Host:
    pipe = ltx2(d.LTX2InContextPipeline)
    return pipe, {**embeds(mask=True), **size(5), **LTX2_CALL}


@host("LTX2HDRPipeline")
def _() -> Host:
    pipe = ltx2(d.LTX2HDRPipeline)
    return pipe, {**embeds(mask=True), **size(5)}


@host("LTXI2VLongMultiPromptPipeline")
def _() -> Host:
    pipe = ltx(d.LTXI2VLongMultiPromptPipeline)
    pipe.register_modules(
        text_encoder=t5(), tokenizer=tokenizer(), scheduler=d.LTXEulerAncestralRFScheduler()
    )
    call = {"temporal_tile_size": 8, "temporal_overlap": 4, "prompt": "a cat | a dog"}
    return pipe, {**size(17), **call}


# --- CogVideoX, Mochi -------------------------------------------------------------------------


def cog_vae() -> Any:
    return d.AutoencoderKLCogVideoX(
        latent_channels=4, block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=2
    )


def cog_scheduler() -> Any:
    return d.CogVideoXDPMScheduler(
        beta_schedule="scaled_linear", prediction_type="v_prediction", rescale_betas_zero_snr=True,
        snr_shift_scale=1.0, timestep_spacing="trailing",
    )


def cog(cls: Any, in_channels: int = 4, **config: Any) -> Any:
    tiny = {
        "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": in_channels,
        "out_channels": 4, "time_embed_dim": 8, "text_embed_dim": WIDTH, "num_layers": 2,
        "sample_width": 4, "sample_height": 4, "sample_frames": 5, "max_text_seq_length": 4,
        "use_rotary_positional_embeddings": True,
    }
    model = d.CogVideoXTransformer3DModel(**{**tiny, **config})
    return cls(transformer=model, vae=cog_vae(), scheduler=cog_scheduler(), **NO_TEXT)


@host("CogVideoXPipeline")
def _() -> Host:
    return cog(d.CogVideoXPipeline), {**embeds(), **size(), "use_dynamic_cfg": True}


@host("CogVideoXImageToVideoPipeline")
def _() -> Host:
    pipe = cog(d.CogVideoXImageToVideoPipeline, 8)
    return pipe, {**embeds(), **size(), "image": image()}


@host("CogVideoXVideoToVideoPipeline")
def _() -> Host:
    pipe = cog(d.CogVideoXVideoToVideoPipeline)
    return pipe, {**embeds(), **size(None), "video": frames(5), "strength": 0.9}


@host("CogVideoXFunControlPipeline")
def _() -> Host:
    pipe = cog(d.CogVideoXFunControlPipeline, 8)
    pipe.register_modules(scheduler=d.CogVideoXDDIMScheduler(prediction_type="v_prediction"))
    return pipe, {**embeds(), **size(None), "control_video": frames(5)}


@host("MochiPipeline")
def _() -> Host:
    model = d.MochiTransformer3DModel(
        num_attention_heads=2, attention_head_dim=8, num_layers=2, pooled_projection_dim=16,
        text_embed_dim=WIDTH, time_embed_dim=4, max_sequence_length=4,
    )
    vae = d.AutoencoderKLMochi(
        latent_channels=12, encoder_block_out_channels=(32, 32, 32, 32),
        decoder_block_out_channels=(32, 32, 32, 32), layers_per_block=(1, 1, 1, 1, 1),
    )
    pipe = d.MochiPipeline(
        transformer=model, vae=vae, scheduler=flow(invert_sigmas=True), **NO_TEXT
    )
    return pipe, {**embeds(mask=True), **size(7)}


# --- Allegro, Latte, EasyAnimate, Sana --------------------------------------------------------


def ddim(**config: Any) -> Any:
    return d.DDIMScheduler(**{"clip_sample": False, "beta_schedule": "scaled_linear", **config})


def kl_vae(cls: Any = None, channels: int = 8, **config: Any) -> Any:
    """The image autoencoder, by a factor of eight."""
    tiny = {"block_out_channels": (channels,) * 4, "down_block_types": ("DownEncoderBlock2D",) * 4}
    if cls is not d.AutoencoderKLTemporalDecoder:
        tiny |= {"up_block_types": ("UpDecoderBlock2D",) * 4, "norm_num_groups": 4}
    return (cls or d.AutoencoderKL)(**{**tiny, **config})


@host("AllegroPipeline")
def _() -> Host:
    model = d.AllegroTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, num_layers=2, cross_attention_dim=24,
        caption_channels=WIDTH, sample_width=4, sample_height=4, sample_frames=2,
    )
    vae = d.AutoencoderKLAllegro(
        block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=2
    )
    scheduler = d.EulerAncestralDiscreteScheduler(beta_schedule="scaled_linear")
    pipe = d.AllegroPipeline(transformer=model, vae=vae, scheduler=scheduler, **NO_TEXT)
    return pipe, {**embeds(mask=True), **size(5), "negative_prompt": None}


@host("LattePipeline")
def _() -> Host:
    model = d.LatteTransformer3DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=1,
        attention_bias=True, sample_size=4, patch_size=2, num_embeds_ada_norm=1000,
        norm_type="ada_norm_single", norm_elementwise_affine=False, caption_channels=WIDTH,
        video_length=2, cross_attention_dim=16,
    )
    pipe = d.LattePipeline(transformer=model, vae=kl_vae(), scheduler=ddim(), **NO_TEXT)
    call = {"video_length": 2, "negative_prompt": None, "mask_feature": False}
    return pipe, {**embeds(), **size(None), **call}


def easy(cls: Any, in_channels: int = 4) -> Any:
    model = d.EasyAnimateTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=in_channels, out_channels=4,
        patch_size=2, num_layers=2, mmdit_layers=1, time_embed_dim=8, text_embed_dim=WIDTH,
    )
    vae = d.AutoencoderKLMagvit(
        latent_channels=4, block_out_channels=[8, 8, 8, 8], layers_per_block=1, norm_num_groups=2
    )
    return cls(transformer=model, vae=vae, scheduler=flow(), **NO_TEXT)


@host("EasyAnimatePipeline")
def _() -> Host:
    return easy(d.EasyAnimatePipeline), {**embeds(mask=True), **size(5)}


@host("EasyAnimateInpaintPipeline")
def _() -> Host:
    pipe = easy(d.EasyAnimateInpaintPipeline, 9)
    pipe.vae.register_to_config(cache_mag_vae=True)  # read by the pipeline, unknown to the model
    call = {"video": clip(5), "mask_video": 255.0 * (clip(5)[:, :1] > 0.5)}
    return pipe, {**embeds(mask=True), **size(5), **call}


def sana(cls: Any) -> Any:
    model = d.SanaVideoTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, num_layers=2, num_cross_attention_heads=2,
        cross_attention_head_dim=12, cross_attention_dim=24, caption_channels=WIDTH, sample_size=4,
        rope_max_seq_len=32,
    )
    scheduler = d.DPMSolverMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    )
    return cls(transformer=model, vae=wan_vae(), scheduler=scheduler, **NO_TEXT)


SANA_CALL = {"frames": 5, "use_resolution_binning": False, "negative_prompt": None}


@host("SanaVideoPipeline")
def _() -> Host:
    return sana(d.SanaVideoPipeline), {**embeds(mask=True), **size(None), **SANA_CALL}


@host("SanaImageToVideoPipeline")
def _() -> Host:
    pipe = sana(d.SanaImageToVideoPipeline)
    pipe.register_modules(scheduler=flow())
    return pipe, {**embeds(mask=True), **size(None), **SANA_CALL, "image": image()}


@host("SanaWMPipeline")
def _() -> Host:
    model = d.SanaWMTransformer3DModel(
        in_channels=4, num_layers=2, hidden_size=32, num_attention_heads=2, linear_head_dim=16,
        softmax_every_n=2, chunk_plucker_channels=24, chunk_plucker_post_attn_blocks=2,
        image_size=32, caption_channels=WIDTH, mlp_ratio=2.0,
    )
    pipe = d.SanaWMPipeline(transformer=model, vae=ltx2_vae(), scheduler=flow(), **NO_TEXT)
    call = {"image": image(), "prompt": None, "action": "w-8", "num_frames": 9}
    call["intrinsics"] = torch.tensor([32.0, 32.0, 16.0, 16.0])
    return pipe, {**embeds(mask=True), **size(9), **call}


# --- SkyReels ---------------------------------------------------------------------------------


def skyreels(cls: Any, in_channels: int = 16, **parts: Any) -> Any:
    model = wan_model(in_channels, d.SkyReelsV2Transformer3DModel, **(SEES if parts else {}))
    return wan(cls, model, **parts)


FORCING = {"base_num_frames": 9, "ar_step": 2, "causal_block_size": 1, "prompt": None}


@host("SkyReelsV2Pipeline")
def _() -> Host:
    return skyreels(d.SkyReelsV2Pipeline), {**embeds(), **size()}


@host("SkyReelsV2ImageToVideoPipeline")
def _() -> Host:
    pipe = skyreels(d.SkyReelsV2ImageToVideoPipeline, 36, **eyes())
    return pipe, {**embeds(), **size(), "image": image()}


@host("SkyReelsV2DiffusionForcingPipeline")
def _() -> Host:
    return skyreels(d.SkyReelsV2DiffusionForcingPipeline), {**embeds(), **size(9), **FORCING}


@host("SkyReelsV2DiffusionForcingImageToVideoPipeline")
def _() -> Host:
    pipe = skyreels(d.SkyReelsV2DiffusionForcingImageToVideoPipeline)
    return pipe, {**embeds(), **size(9), **FORCING, "ar_step": 0, "image": image()}


@host("SkyReelsV2DiffusionForcingVideoToVideoPipeline")
def _() -> Host:
    pipe = skyreels(d.SkyReelsV2DiffusionForcingVideoToVideoPipeline)
    call = {"ar_step": 0, "video": frames(5), "overlap_history": 5}
    return pipe, {**embeds(), **size(9), **FORCING, **call}


# --- Cosmos -----------------------------------------------------------------------------------


class Permissive:
    """Stands in for the safety checker, a separate package with weights of its own."""

    def to(self, device: Any) -> Permissive:
        return self

    def check_text_safety(self, prompt: str) -> bool:
        return True

    def check_video_safety(self, video: Any) -> Any:
        return video


def cosmos(cls: Any, in_channels: int, scheduler: Any, vae: Any) -> Any:
    model = d.CosmosTransformer3DModel(
        in_channels=in_channels, out_channels=16, num_attention_heads=2, attention_head_dim=16,
        num_layers=2, mlp_ratio=2, text_embed_dim=WIDTH, adaln_lora_dim=4, max_size=(4, 32, 32),
        concat_padding_mask=False,
    )
    checker = Permissive()
    return cls(transformer=model, vae=vae, scheduler=scheduler, safety_checker=checker, **NO_TEXT)


def cosmos_vae() -> Any:
    return d.AutoencoderKLCosmos(
        encoder_block_out_channels=(8, 8, 8, 8), decode_block_out_channels=(8, 8, 8, 8),
        attention_resolutions=(8,), resolution=64, num_layers=1,
    )


def edm(**config: Any) -> Any:
    return d.EDMEulerScheduler(
        sigma_min=0.002, sigma_max=80, sigma_data=0.5, sigma_schedule="karras",
        prediction_type="epsilon", rho=7.0, final_sigmas_type="sigma_min", **config,
    )


def karras_flow() -> Any:
    return flow(use_karras_sigmas=True)


@host("CosmosTextToWorldPipeline")
def _() -> Host:
    pipe = cosmos(d.CosmosTextToWorldPipeline, 16, edm(), cosmos_vae())
    return pipe, {**embeds(), **size(9)}


@host("CosmosVideoToWorldPipeline")
def _() -> Host:
    pipe = cosmos(d.CosmosVideoToWorldPipeline, 17, edm(), cosmos_vae())
    return pipe, {**embeds(), **size(9), "image": image()}


@host("Cosmos2VideoToWorldPipeline")
def _() -> Host:
    pipe = cosmos(d.Cosmos2VideoToWorldPipeline, 17, karras_flow(), wan_vae())
    return pipe, {**embeds(), **size(9), "image": image()}


@host("Cosmos2TextToImagePipeline")
def _() -> Host:
    pipe = cosmos(d.Cosmos2TextToImagePipeline, 16, karras_flow(), wan_vae())
    return pipe, {**embeds(), **size(None)}


@host("Cosmos2_5_PredictBasePipeline")
def _() -> Host:
    pipe = cosmos(d.Cosmos2_5_PredictBasePipeline, 17, unipc(), wan_vae())
    return pipe, {**embeds(), **size(5)}


@host("Cosmos3OmniPipeline")
def _() -> Host:
    model = d.Cosmos3OmniTransformer(
        hidden_size=32, intermediate_size=32, head_dim=16, num_attention_heads=2,
        num_key_value_heads=1, num_hidden_layers=2, vocab_size=len(VOCAB), latent_channel=16,
        patch_latent_dim=64, rope_axes_dim=[4, 2, 2],
    )
    pipe = d.Cosmos3OmniPipeline(
        transformer=model, text_tokenizer=tokenizer(), vae=wan_vae(), scheduler=unipc(),
        enable_safety_checker=False,
    )
    return pipe, {**size(5), "prompt": "a cat", "negative_prompt": "a dog"}


# --- Kandinsky, SVD, AnimateDiff, Motif, ChronoEdit, Helios, AnyFlow --------------------------


def kandinsky(cls: Any, **config: Any) -> Any:
    model = d.Kandinsky5Transformer3DModel(
        in_visual_dim=4, in_text_dim=WIDTH, in_text_dim2=8, time_dim=16, model_dim=32, ff_dim=32,
        num_text_blocks=1, num_visual_blocks=2, axes_dims=(4, 6, 6), **config,
    )
    return cls(transformer=model, vae=hunyuan_vae(), scheduler=flow(shift=5.0), **NO_TEXT_2)


def kandinsky_call() -> dict[str, Any]:
    given: dict[str, Any] = size(21)
    for seed, sign in enumerate(("", "negative_")):
        given[f"{sign}prompt_embeds_qwen"] = noise(1, 4, WIDTH, seed=seed)
        given[f"{sign}prompt_embeds_clip"] = noise(1, 8, seed=seed)
        given[f"{sign}prompt_cu_seqlens"] = torch.tensor([0, 4], dtype=torch.int32)
    return given


@host("Kandinsky5T2VPipeline")
def _() -> Host:
    return kandinsky(d.Kandinsky5T2VPipeline), kandinsky_call()


@host("Kandinsky5I2VPipeline")
def _() -> Host:
    pipe = kandinsky(d.Kandinsky5I2VPipeline, visual_cond=True)
    return pipe, {**kandinsky_call(), "image": image()}


@host("StableVideoDiffusionPipeline")
def _() -> Host:
    unet = d.UNetSpatioTemporalConditionModel(
        block_out_channels=(32, 32), num_attention_heads=2, layers_per_block=1, sample_size=4,
        down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
        cross_attention_dim=32, addition_time_embed_dim=8, projection_class_embeddings_input_dim=24,
    )
    pipe = d.StableVideoDiffusionPipeline(
        unet=unet,
        vae=kl_vae(d.AutoencoderKLTemporalDecoder, 32),
        image_encoder=clip_vision(32, 224),
        feature_extractor=clip_processor(),
        scheduler=d.EulerDiscreteScheduler(
            prediction_type="v_prediction", timestep_type="continuous", use_karras_sigmas=True,
            sigma_min=0.002, sigma_max=700.0, timestep_spacing="leading", steps_offset=1,
        ),
    )
    return pipe, {**size(2), "image": image()}


def sd_unet(cls: Any = None, kind: str = "2D", in_channels: int = 4, **config: Any) -> Any:
    tiny = {
        "block_out_channels": (8, 16), "layers_per_block": 1, "sample_size": 4,
        "down_block_types": (f"CrossAttnDownBlock{kind}", f"DownBlock{kind}"),
        "up_block_types": (f"UpBlock{kind}", f"CrossAttnUpBlock{kind}"),
        "cross_attention_dim": WIDTH, "norm_num_groups": 4, "attention_head_dim": 4,
        "in_channels": in_channels,
    }
    return (cls or d.UNet2DConditionModel)(**{**tiny, **config})


def animate(cls: Any, **parts: Any) -> Any:
    adapter = d.MotionAdapter(
        block_out_channels=(8, 16), motion_layers_per_block=1, motion_norm_num_groups=2,
        motion_num_attention_heads=2, conv_in_channels=9 if cls is d.PIAPipeline else None,
    )
    given = {"unet": sd_unet(), "scheduler": ddim(), **NO_TEXT, **parts}
    return cls(motion_adapter=adapter, vae=kl_vae(), **given)


@host("AnimateDiffPipeline")
def _() -> Host:
    return animate(d.AnimateDiffPipeline), {**embeds(), **size(4)}


@host("AnimateDiffPAGPipeline")
def _() -> Host:
    pipe = animate(d.AnimateDiffPAGPipeline, pag_applied_layers=["mid.*attn1"])
    return pipe, {**embeds(), **size(4)}


@host("AnimateDiffVideoToVideoPipeline")
def _() -> Host:
    pipe = animate(d.AnimateDiffVideoToVideoPipeline)
    return pipe, {**embeds(), **size(None), "video": frames(4), "strength": 0.9}


def controlnet() -> Any:
    return d.ControlNetModel(
        block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), cross_attention_dim=WIDTH,
        conditioning_embedding_out_channels=(8, 8, 8, 8),
    )


@host("AnimateDiffControlNetPipeline")
def _() -> Host:
    pipe = animate(d.AnimateDiffControlNetPipeline, controlnet=controlnet())
    return pipe, {**embeds(), **size(4), "conditioning_frames": frames(4)}


@host("AnimateDiffVideoToVideoControlNetPipeline")
def _() -> Host:
    pipe = animate(d.AnimateDiffVideoToVideoControlNetPipeline, controlnet=controlnet())
    call = {"video": frames(4), "conditioning_frames": frames(4), "strength": 0.9}
    return pipe, {**embeds(), **size(None), **call}


@host("AnimateDiffSDXLPipeline")
def _() -> Host:
    unet = sd_unet(
        addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=6 * 8 + 8, use_linear_projection=True,
    )
    pipe = animate(d.AnimateDiffSDXLPipeline, unet=unet, text_encoder_2=None, tokenizer_2=None)
    pooled = {f"{sign}pooled_prompt_embeds": noise(1, 8) for sign in ("", "negative_")}
    return pipe, {**embeds(), **pooled, **size(4)}


@host("AnimateDiffSparseControlNetPipeline")
def _() -> Host:
    control = d.SparseControlNetModel(
        block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
        down_block_types=("CrossAttnDownBlockMotion", "DownBlockMotion"), cross_attention_dim=WIDTH,
        conditioning_channels=3, conditioning_embedding_out_channels=(8, 8, 8, 8),
        motion_num_attention_heads=2, use_simplified_condition_embedding=False,
    )
    pipe = animate(d.AnimateDiffSparseControlNetPipeline, controlnet=control)
    call = {"conditioning_frames": frames(2), "controlnet_frame_indices": [0, 2]}
    return pipe, {**embeds(), **size(4), **call}


@host("PIAPipeline")
def _() -> Host:
    return animate(d.PIAPipeline), {**embeds(), **size(4), "image": image()}


def motif(cls: Any, **parts: Any) -> Any:
    model = d.MotifVideoTransformer3DModel(
        in_channels=33, out_channels=16, num_attention_heads=2, attention_head_dim=10, num_layers=1,
        num_single_layers=1, text_embed_dim=WIDTH, rope_axes_dim=(2, 4, 4),
    )
    guider = d.ClassifierFreeGuidance()
    given = {"scheduler": flow(), "guider": guider, **NO_TEXT, **parts}
    return cls(transformer=model, vae=wan_vae(), **given)


@host("MotifVideoPipeline")
def _() -> Host:
    return motif(d.MotifVideoPipeline), {**embeds(mask=True), **size(5)}


@host("MotifVideoImage2VideoPipeline")
def _() -> Host:
    pipe = motif(d.MotifVideoImage2VideoPipeline, feature_extractor=None)
    return pipe, {**embeds(mask=True), **size(5), "image": image(), "prompt": None}


@host("ChronoEditPipeline")
def _() -> Host:
    model = wan_model(36, d.ChronoEditTransformer3DModel, rope_temporal_skip_len=2, **SEES)
    pipe = wan(d.ChronoEditPipeline, model, **eyes())
    return pipe, {**embeds(), **size(5), "image": image()}


def helios_model() -> Any:
    config = {key: value for key, value in WAN.items() if key != "rope_max_seq_len"}
    return d.HeliosTransformer3DModel(**config, rope_dim=(4, 4, 4))


@host("HeliosPipeline")
def _() -> Host:
    scheduler = d.HeliosScheduler(stages=1, stage_range=[0, 1])
    pipe = d.HeliosPipeline(
        transformer=helios_model(), vae=wan_vae(), scheduler=scheduler, **NO_TEXT
    )
    call = {"history_sizes": [4, 2, 1], "num_latent_frames_per_chunk": 2}
    return pipe, {**embeds(), **size(5), **call}


@host("AnyFlowPipeline")
def _() -> Host:
    model = wan_model(cls=d.AnyFlowTransformer3DModel)
    pipe = d.AnyFlowPipeline(
        transformer=model, vae=wan_vae(), scheduler=d.FlowMapEulerDiscreteScheduler(shift=5.0),
        **NO_TEXT,
    )
    return pipe, {**size(5), "prompt_embeds": noise(1, 4, WIDTH)}


@host("AnyFlowFARPipeline")
def _() -> Host:
    model = wan_model(
        cls=d.AnyFlowFARTransformer3DModel, chunk_partition=(1, 1, 1), full_chunk_limit=2
    )
    pipe = d.AnyFlowFARPipeline(
        transformer=model, vae=wan_vae(), scheduler=d.FlowMapEulerDiscreteScheduler(shift=5.0),
        **NO_TEXT,
    )
    return pipe, {**size(9), "prompt_embeds": noise(1, 4, WIDTH)}


@host("Kandinsky6TI2VAPipeline")
def _() -> Host:
    model = d.Kandinsky6Transformer3DModel(
        in_visual_dim=4, out_visual_dim=4, in_text_dim=WIDTH, in_text_dim2=8, time_dim=16,
        model_dim=32, ff_dim=32, num_text_blocks=1, num_visual_blocks=2, axes_dims=(4, 6, 6),
        in_audio_dim=4, out_audio_dim=4, model_dim_a=32, time_dim_a=16, ff_dim_a=32,
        axes_dims_a=(4, 6, 6),
    )
    audio = d.MMAudioVAE(
        mel_bins=8, latent_channels=4, hidden_channels=8, layers_per_block=1, sample_rate=640,
        n_fft=16, hop_length=8,
    )
    vocoder = d.MMAudioVocoder(
        num_mels=8, upsample_initial_channel=8, upsample_rates=(2, 2), resblock_kernel_sizes=(3,),
        upsample_kernel_sizes=(4, 4), resblock_dilation_sizes=((1,),),
    )
    pipe = d.Kandinsky6TI2VAPipeline(
        transformer=model, vae=hunyuan_vae(), scheduler=flow(shift=5.0), audio_vae=audio,
        vocoder=vocoder, **NO_TEXT_2,
    )
    pooled = {f"{sign}pooled_prompt_embeds": noise(1, 8) for sign in ("", "negative_")}
    return pipe, {**embeds(), **pooled, **size(5)}


@host("Kandinsky6SRPipeline")
def _() -> Host:
    model = d.Kandinsky6SRTransformer3DModel(
        in_visual_dim=4, out_visual_dim=4, time_dim=16, model_dim=32, ff_dim=32,
        num_visual_blocks=2, axes_dims=(4, 6, 6), tile_sizes=((64, 64),), nabla_window=(1, 1, 1),
    )
    pipe = d.Kandinsky6SRPipeline(transformer=model, vae=hunyuan_vae(), scheduler=flow(shift=5.0))
    return pipe, {"video": frames(5), "resolution_scale": 2, "output_type": "pt"}


@host("ConsisIDPipeline")
def _() -> Host:
    model = d.ConsisIDTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=8, out_channels=4,
        time_embed_dim=8, text_embed_dim=WIDTH, num_layers=2, sample_width=4, sample_height=4,
        sample_frames=5, max_text_seq_length=4, use_rotary_positional_embeddings=True,
    )
    pipe = found("pipelines.consisid.pipeline_consisid", "ConsisIDPipeline")(
        transformer=model, vae=cog_vae(), scheduler=cog_scheduler(), **NO_TEXT
    )
    return pipe, {**embeds(), **size(5), "image": image()}


# --- The older UNets --------------------------------------------------------------------------


@host("TextToVideoSDPipeline")
def _() -> Host:
    pipe = d.TextToVideoSDPipeline(
        unet=sd_unet(d.UNet3DConditionModel, "3D"), vae=kl_vae(), scheduler=ddim(), **NO_TEXT
    )
    return pipe, {**embeds(), **size(4)}


@host("VideoToVideoSDPipeline")
def _() -> Host:
    pipe = d.VideoToVideoSDPipeline(
        unet=sd_unet(d.UNet3DConditionModel, "3D"), vae=kl_vae(), scheduler=ddim(), **NO_TEXT
    )
    return pipe, {**embeds(), "video": frames(4), "strength": 0.9, "output_type": "latent"}


class SteadyVAE(d.AutoencoderKL):
    """Encodes to the mean: the pipeline draws from the posterior without its generator."""

    def encode(self, x: torch.Tensor, return_dict: bool = True) -> Any:
        out = super().encode(x)
        out.latent_dist.std = torch.zeros_like(out.latent_dist.std)
        return out


@host("I2VGenXLPipeline")
def _() -> Host:
    pipe = d.I2VGenXLPipeline(
        unet=sd_unet(d.I2VGenXLUNet, "3D"), vae=kl_vae(SteadyVAE), scheduler=ddim(),
        image_encoder=clip_vision(), feature_extractor=clip_processor(), **NO_TEXT,
    )
    return pipe, {**embeds(), **size(4), "image": image()}


@host("TextToVideoZeroPipeline")
def _() -> Host:
    pipe = d.TextToVideoZeroPipeline(
        unet=sd_unet(), vae=kl_vae(), scheduler=ddim(), text_encoder=clip_text(),
        tokenizer=clip_tokenizer(), safety_checker=None, feature_extractor=None,
        requires_safety_checker=False,
    )
    call = {"prompt": "a cat", "video_length": 2, "t0": 5, "t1": 6}
    return pipe, {**size(None), **call}


@host("TextToVideoZeroSDXLPipeline")
def _() -> Host:
    unet = sd_unet(
        addition_embed_type="text_time", addition_time_embed_dim=8, cross_attention_dim=2 * WIDTH,
        projection_class_embeddings_input_dim=6 * 8 + WIDTH, use_linear_projection=True,
    )
    pipe = d.TextToVideoZeroSDXLPipeline(
        unet=unet, vae=kl_vae(), scheduler=ddim(), text_encoder=clip_text(),
        tokenizer=clip_tokenizer(), text_encoder_2=clip_text(projection=True),
        tokenizer_2=clip_tokenizer(), add_watermarker=False,
    )
    call = {"prompt": "a cat", "video_length": 2, "t0": 5, "t1": 6}
    return pipe, {**size(None), **call}


def plain_unet(channels: int = 3, **config: Any) -> Any:
    tiny = {
        "sample_size": 8, "block_out_channels": (8, 16), "layers_per_block": 1,
        "norm_num_groups": 4, "attention_head_dim": 4,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    }
    return d.UNet2DModel(**{**tiny, "in_channels": channels, "out_channels": channels, **config})


@host("DDIMPipeline")
def _() -> Host:
    return d.DDIMPipeline(plain_unet(), d.DDIMScheduler()), {"output_type": "np"}


@host("DDPMPipeline")
def _() -> Host:
    return d.DDPMPipeline(plain_unet(), d.DDPMScheduler()), {"output_type": "np"}


@host("PNDMPipeline")
def _() -> Host:
    return d.PNDMPipeline(plain_unet(), d.PNDMScheduler(prediction_type="v_prediction")), {
        "output_type": "np"
    }


@host("KarrasVePipeline")
def _() -> Host:
    scheduler = found("schedulers.deprecated.scheduling_karras_ve", "KarrasVeScheduler")
    pipe = d.KarrasVePipeline(plain_unet(), scheduler(sigma_max=0.5))
    return pipe, {"output_type": "np"}


@host("ScoreSdeVePipeline")
def _() -> Host:
    scheduler = d.ScoreSdeVeScheduler(sigma_max=0.5, snr=0.02)
    return d.ScoreSdeVePipeline(plain_unet(), scheduler), {"output_type": "np"}


@host("ConsistencyModelPipeline")
def _() -> Host:
    scheduler = d.CMStochasticIterativeScheduler()
    return d.ConsistencyModelPipeline(plain_unet(), scheduler), {"output_type": "np"}


def vq_vae() -> Any:
    return d.VQModel(
        block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=3, norm_num_groups=4,
    )


@host("LDMPipeline")
def _() -> Host:
    pipe = d.LDMPipeline(vqvae=vq_vae(), unet=plain_unet(), scheduler=ddim())
    return pipe, {"output_type": "np"}


@host("LDMSuperResolutionPipeline")
def _() -> Host:
    unet = plain_unet(in_channels=6, out_channels=3)
    pipe = d.LDMSuperResolutionPipeline(vqvae=vq_vae(), unet=unet, scheduler=ddim())
    return pipe, {"image": image(), "output_type": "np"}


@host("RePaintPipeline")
def _() -> Host:
    pipe = d.RePaintPipeline(plain_unet(sample_size=32), d.RePaintScheduler())
    mask = Image.fromarray(255 * (np.arange(1024).reshape(32, 32) % 2).astype("uint8"))
    call = {"image": image(), "mask_image": mask, "jump_length": 2, "jump_n_sample": 2}
    return pipe, {**call, "output_type": "np"}


def marigold(cls: Any, targets: int = 1, **config: Any) -> Any:
    unet = sd_unet(in_channels=4 * (1 + targets), out_channels=4 * targets)
    return cls(
        unet=unet, vae=kl_vae(), scheduler=ddim(prediction_type="v_prediction"),
        text_encoder=clip_text(), tokenizer=clip_tokenizer(), default_processing_resolution=0,
        default_denoising_steps=8, **config,
    )


MARIGOLD_CALL = {"output_latent": True, "processing_resolution": 0, "match_input_resolution": False}


@host("MarigoldDepthPipeline")
def _() -> Host:
    pipe = marigold(d.MarigoldDepthPipeline, prediction_type="depth")
    return pipe, {**MARIGOLD_CALL, "image": image()}


@host("MarigoldNormalsPipeline")
def _() -> Host:
    pipe = marigold(d.MarigoldNormalsPipeline, prediction_type="normals")
    return pipe, {**MARIGOLD_CALL, "image": image()}


@host("MarigoldIntrinsicsPipeline")
def _() -> Host:
    names = ["albedo", "roughness"]
    properties = {
        "target_names": names, "albedo": {"prediction_space": "srgb"},
        "roughness": {"prediction_space": "srgb"},
    }
    pipe = marigold(
        d.MarigoldIntrinsicsPipeline, 2, prediction_type="intrinsics", target_properties=properties
    )
    return pipe, {**MARIGOLD_CALL, "image": image()}


# --- Audio ------------------------------------------------------------------------------------


def oobleck(channels: int) -> Any:
    return d.AutoencoderOobleck(
        encoder_hidden_size=4, downsampling_ratios=[2, 4, 8], channel_multiples=[1, 1, 1],
        decoder_channels=4, decoder_input_channels=channels, sampling_rate=640,
    )


@host("StableAudioPipeline")
def _() -> Host:
    model = d.StableAudioDiTModel(
        sample_size=8, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8,
        num_attention_heads=2, num_key_value_attention_heads=1, cross_attention_dim=16,
        time_proj_dim=8, global_states_input_dim=2 * WIDTH, cross_attention_input_dim=WIDTH,
    )
    projection = d.StableAudioProjectionModel(WIDTH, WIDTH, 0, 8)
    pipe = d.StableAudioPipeline(
        transformer=model, vae=oobleck(4), projection_model=projection,
        scheduler=d.EDMDPMSolverMultistepScheduler(sigma_schedule="exponential"), **NO_TEXT,
    )
    call = {**embeds(), "audio_end_in_s": 0.5, "output_type": "latent"}
    call["attention_mask"] = call["negative_attention_mask"] = torch.ones(1, 4)
    return pipe, call


def stable_audio_3(cls: Any, **config: Any) -> Any:
    model = d.StableAudio3DiTModel(
        io_channels=4, embed_dim=16, depth=2, num_heads=2, cond_token_dim=WIDTH,
        global_cond_dim=WIDTH, local_add_cond_dim=5, timestep_features_dim=16, num_memory_tokens=2,
    )
    vae = d.AutoencoderSAME(
        patch_size=4, encoder_channels=16, encoder_c_mults=(1,), encoder_strides=(2,), latent_dim=4,
        encoder_transformer_depths=(1,), dim_heads=8, sampling_rate=64, ff_mult=1,
    )
    return cls(
        transformer=model, vae=vae, scheduler=flow(), **NO_TEXT,
        duration_embedder=d.StableAudio3DurationEmbedder(WIDTH, fourier_dim=8),
    )


@host("StableAudio3Pipeline")
def _() -> Host:
    call = {"prompt_embeds": noise(1, 4, WIDTH), "encoder_attention_mask": torch.ones(1, 4)}
    pipe = stable_audio_3(d.StableAudio3Pipeline)
    return pipe, {**call, "duration": 0.8, "output_type": "latent"}


@host("StableAudio3AudioToAudioPipeline")
def _() -> Host:
    call = {"prompt_embeds": noise(1, 4, WIDTH), "encoder_attention_mask": torch.ones(1, 4)}
    call["audio"] = noise(1, 2, 56)
    pipe = stable_audio_3(d.StableAudio3AudioToAudioPipeline)
    return pipe, {**call, "duration": 0.8, "output_type": "latent", "init_noise_level": 0.9}


@host("StableAudio3InpaintPipeline")
def _() -> Host:
    call = {"prompt_embeds": noise(1, 4, WIDTH), "encoder_attention_mask": torch.ones(1, 4)}
    call |= {"audio": noise(1, 2, 56), "mask_start_seconds": 0.2, "mask_end_seconds": 0.6}
    pipe = stable_audio_3(d.StableAudio3InpaintPipeline)
    return pipe, {**call, "duration": 0.8, "output_type": "latent"}


@host("AceStepPipeline")
def _() -> Host:
    tiny = {
        "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16,
    }
    model = d.AceStepTransformer1DModel(
        **tiny, num_hidden_layers=2, in_channels=24, audio_acoustic_hidden_dim=8
    )
    condition = d.AceStepConditionEncoder(
        **tiny, text_hidden_dim=WIDTH, timbre_hidden_dim=8, num_lyric_encoder_hidden_layers=1,
        num_timbre_encoder_hidden_layers=1,
    )
    pipe = d.AceStepPipeline(
        transformer=model, condition_encoder=condition, vae=oobleck(8), text_encoder=qwen3(),
        tokenizer=tokenizer(), scheduler=flow(),
    )
    return pipe, {"prompt": "a cat", "audio_duration": 0.8, "output_type": "latent"}


def vocoder() -> Any:
    return seeded(
        hf.SpeechT5HifiGan,
        hf.SpeechT5HifiGanConfig(
            model_in_dim=8, sampling_rate=800, upsample_initial_channel=8, upsample_rates=[2, 2],
            upsample_kernel_sizes=[4, 4], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1]],
            normalize_before=False, initializer_range=0.2,
        ),
    )


def audio_unet() -> Any:
    return sd_unet(
        class_embed_type="simple_projection", class_embeddings_concat=True,
        projection_class_embeddings_input_dim=WIDTH, cross_attention_dim=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )


def pooled() -> dict[str, torch.Tensor]:
    return {key: value[:, 0] for key, value in embeds(1).items()}


def mel_vae() -> Any:
    return kl_vae(in_channels=1, out_channels=1)


def clap(text_only: bool = False) -> Any:
    text = hf.ClapTextConfig(
        vocab_size=len(VOCAB), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, projection_dim=WIDTH,
    )
    if text_only:
        return seeded(hf.ClapTextModelWithProjection, text)
    audio = hf.ClapAudioConfig(
        depths=[1], num_attention_heads=[2], hidden_size=8, patch_embeds_hidden_size=8,
        num_hidden_layers=1, projection_dim=WIDTH,
    )
    config = {"text_config": text.to_dict(), "audio_config": audio.to_dict()}
    return seeded(hf.ClapModel, hf.ClapConfig(**config, projection_dim=WIDTH))


@host("AudioLDMPipeline")
def _() -> Host:
    pipe = d.AudioLDMPipeline(
        unet=audio_unet(), vae=mel_vae(), vocoder=vocoder(), scheduler=ddim(),
        text_encoder=clap(text_only=True), tokenizer=None,
    )
    return pipe, {"audio_length_in_s": 0.32, **pooled()}


@host("MusicLDMPipeline")
def _() -> Host:
    pipe = d.MusicLDMPipeline(
        unet=audio_unet(), vae=mel_vae(), vocoder=vocoder(), scheduler=ddim(),
        feature_extractor=None, text_encoder=clap(), tokenizer=None,
    )
    return pipe, {"audio_length_in_s": 0.32, **pooled(), "output_type": "latent"}


@host("AudioLDM2Pipeline")
def _() -> Host:
    unet = d.AudioLDM2UNet2DConditionModel(
        block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        cross_attention_dim=((None, 8, WIDTH),) * 2,
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    language = hf.GPT2Config(
        n_embd=8, n_head=2, n_layer=1, vocab_size=len(VOCAB), bos_token_id=1, eos_token_id=2
    )
    pipe = d.AudioLDM2Pipeline(
        unet=unet, vae=mel_vae(), vocoder=vocoder(), scheduler=ddim(), feature_extractor=None,
        projection_model=d.AudioLDM2ProjectionModel(WIDTH, WIDTH, 8), text_encoder=clap(),
        tokenizer=None, text_encoder_2=t5(), tokenizer_2=None,
        language_model=seeded(hf.GPT2LMHeadModel, language),
    )
    call = {**embeds(), "audio_length_in_s": 0.32, "output_type": "latent"}
    call["attention_mask"] = call["negative_attention_mask"] = torch.ones(1, 4)
    for seed, sign in enumerate(("", "negative_")):
        call[f"{sign}generated_prompt_embeds"] = noise(1, 4, 8, seed=seed)
    return pipe, call


@host("LongCatAudioDiTPipeline")
def _() -> Host:
    model = d.LongCatAudioDiTTransformer(
        dit_dim=32, dit_depth=2, dit_heads=2, dit_text_dim=WIDTH, latent_dim=4, ff_mult=2.0
    )
    vae = d.LongCatAudioDiTVae(
        channels=4, c_mults=[1, 1], strides=[2, 2], latent_dim=4, encoder_latent_dim=8,
        downsampling_ratio=4, sample_rate=32,
    )
    pipe = d.LongCatAudioDiTPipeline(
        transformer=model, vae=vae, text_encoder=umt5(), tokenizer=tokenizer()
    )
    return pipe, {"prompt": "a cat", "audio_duration_s": 1.0, "output_type": "latent"}


@host("DanceDiffusionPipeline")
def _() -> Host:
    unet = d.UNet1DModel(
        sample_size=64, sample_rate=64, block_out_channels=(32, 32, 32), extra_in_channels=64
    )
    return d.DanceDiffusionPipeline(unet, d.IPNDMScheduler()), {}


# --- 3D ---------------------------------------------------------------------------------------


def shap_e(cls: Any, **parts: Any) -> Any:
    prior = d.PriorTransformer(
        num_attention_heads=2, attention_head_dim=16, num_layers=2, embedding_dim=8,
        num_embeddings=6, additional_embeddings=0, time_embed_act_fn="gelu", norm_in_type="layer",
        encoder_hid_proj_type=None, added_emb_type=None, time_embed_dim=32,
        embedding_proj_dim=WIDTH, clip_embed_dim=16,
    )
    scheduler = d.HeunDiscreteScheduler(
        beta_schedule="exp", prediction_type="sample", use_karras_sigmas=True, clip_sample=True
    )
    return cls(prior=prior, shap_e_renderer=None, scheduler=scheduler, **parts)


@host("ShapEPipeline")
def _() -> Host:
    text = {"text_encoder": clip_text(projection=True), "tokenizer": clip_tokenizer()}
    return shap_e(d.ShapEPipeline, **text), {"prompt": "a cat", "output_type": "latent"}


@host("ShapEImg2ImgPipeline")
def _() -> Host:
    return shap_e(d.ShapEImg2ImgPipeline, **eyes()), {"image": image(), "output_type": "latent"}


# --- Calls of another shape -------------------------------------------------------------------


@host("HeliosPyramidPipeline", FIXED)
def _() -> Host:
    pipe = d.HeliosPyramidPipeline(
        transformer=helios_model(), vae=wan_vae(), scheduler=d.HeliosScheduler(gamma=0.3), **NO_TEXT
    )
    call = {"history_sizes": [4, 2, 1], "num_latent_frames_per_chunk": 2}
    call["steps"] = lambda steps: {"pyramid_num_inference_steps_list": [steps] * 3}
    return pipe, {**embeds(), **size(5, 128), **call}


@host("RFD4ProteinaPipeline", FIXED)
def _() -> Host:
    times = ("time_emb_bb_ca", "time_emb_local_latents")
    model = d.RFD4ProteinaTransformer(
        nlayers=2, token_dim=16, nheads=2, dim_cond=16, pair_repr_dim=8, latent_dim=4, t_emb_dim=16,
        tri_mult_c=8, feats_seq=("xt_bb_ca", "xt_local_latents"), feats_cond_seq=times,
        feats_pair_cond=times, feats_pair_repr=("xt_bb_ca_pair_dists",),
    )
    vae = d.RFD4ProteinaAutoencoder(
        atom37_mask=[[True] * 37] * 147, allowed_residue_types=[[True] * 147] * 7, latent_dim=4,
        nlayers=1, token_dim=16, nheads=2, dim_cond=16, pair_repr_dim=8,
        encoder_feats_seq=("x1_a37coors_nm",), decoder_feats_seq=("ca_coors_nm", "z_latent_seq"),
    )
    schedulers = [
        d.RFD4ProteinaScheduler(
            schedule_mode=mode, noise_mode="tan", tsr_k=1.0, tsr_sigma=1.0, tail_steps=1
        )
        for mode in ("log", "power")
    ]
    pipe = d.RFD4ProteinaPipeline(model, vae, *schedulers, recycle_depths=[0] * 8)
    yes = torch.ones(1, 6, dtype=torch.bool)
    ids = torch.zeros(1, 6, dtype=torch.long)
    features = {"condition_sequence_1_residue": ids, "molecule_iid": ids}
    return pipe, {
        "padding_mask": yes, "is_in_context_conditioning": ~yes, "supports_local_latent": yes,
        "conditioning_features": features, "steps": lambda _: {},
    }


# --- Modular pipelines: the denoising blocks alone ---------------------------------------------


def modular(family: str, step: str, variant: str = "", **parts: Any) -> Any:
    blocks = found(f"modular_pipelines.{family}.modular_blocks_{variant or family}", step)
    pipe = blocks().init_pipeline()
    pipe.update_components(**parts)
    return pipe


def shape(num_frames: int = 5, *more: str, side: int = 32) -> dict[str, Any]:
    return {"height": side, "width": side, "num_frames": num_frames, "output": ["latents", *more]}


@host("WanModularPipeline", MODULAR)
def _() -> Host:
    pipe = modular("wan", "WanCoreDenoiseStep", transformer=wan_model(), scheduler=unipc())
    return pipe, {**embeds(), **shape()}


@host("Wan22ModularPipeline", MODULAR)
def _() -> Host:
    experts = {"transformer": wan_model(), "transformer_2": wan_model()}
    pipe = modular("wan", "Wan22CoreDenoiseStep", "wan22", scheduler=unipc(), **experts)
    return pipe, {**embeds(), **shape()}


@host("LTXModularPipeline", MODULAR)
def _() -> Host:
    pipe = modular("ltx", "LTXCoreDenoiseStep", transformer=ltx_model(), scheduler=flow())
    return pipe, {**embeds(mask=True), **shape(9, side=64)}


@host("HunyuanVideo15ModularPipeline", MODULAR)
def _() -> Host:
    parts = {"transformer": hunyuan15("t2v", 32)[0], "scheduler": flow()}
    pipe = modular("hunyuan_video1_5", "HunyuanVideo15CoreDenoiseStep", **parts)
    return pipe, {**hunyuan15_call(), **shape()}


@host("HeliosModularPipeline", MODULAR)
def _() -> Host:
    scheduler = d.HeliosScheduler(stages=1, stage_range=[0, 1])
    pipe = modular(
        "helios", "HeliosCoreDenoiseStep", transformer=helios_model(), scheduler=scheduler
    )
    call = {"history_sizes": [4, 2, 1], "num_latent_frames_per_chunk": 2}
    return pipe, {**embeds(), **shape(), **call}


@host("MiniMaxH3ModularPipeline", MODULAR)
def _() -> Host:
    model = d.MiniMaxH3Transformer3DModel(
        num_attention_heads=2, attention_head_dim=16, hidden_size=32, num_layers=2,
        num_refiner_layers=1, ffn_dim=32, text_dim=WIDTH, freq_dim=16, time_embed_hidden_dim=32,
        time_embed_dim=16, rope_freq_dim=2,
    )
    pipe = modular(
        "minimax_h3", "MiniMaxH3CoreDenoiseStep", transformer=model,
        scheduler=d.MiniMaxH3Scheduler(), audio_scheduler=d.MiniMaxH3Scheduler(shift=3.0),
    )
    text = {"prompt_embeds": noise(1, 4, WIDTH), "text_token_tags": torch.ones(4).long()}
    return pipe, {**text, **shape(124, "audio_latents")}
