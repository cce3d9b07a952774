"""The paper's pipelines of diffusers with random weights and the least sizes that run."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from . import text
from .text import DIM


def diffusers() -> Any:
    return import_module("diffusers")


def vae() -> Any:
    return diffusers().AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=16,
        shift_factor=0.0,
    )


def flow(**more: Any) -> Any:
    return diffusers().FlowMatchEulerDiscreteScheduler(**more)


def sd3() -> Any:
    d = diffusers()
    sizes = dict(sample_size=8, in_channels=4, out_channels=4, num_layers=2, num_attention_heads=2)
    sizes |= dict(attention_head_dim=16, joint_attention_dim=DIM, caption_projection_dim=DIM)
    network = d.SD3Transformer2DModel(**sizes, pooled_projection_dim=DIM)
    return d.StableDiffusion3Pipeline(
        transformer=network,
        scheduler=flow(),
        vae=vae(),
        text_encoder=text.clip(projected=True, dim=DIM // 2),
        tokenizer=text.clip_tokenizer(),
        text_encoder_2=text.clip(projected=True, dim=DIM // 2),
        tokenizer_2=text.clip_tokenizer(),
        text_encoder_3=text.t5(),
        tokenizer_3=text.tokenizer(),
    )


def flux() -> Any:
    d = diffusers()
    sizes = dict(in_channels=16, num_layers=1, num_single_layers=1, joint_attention_dim=DIM)
    sizes |= dict(attention_head_dim=16, num_attention_heads=2, pooled_projection_dim=DIM)
    network = d.FluxTransformer2DModel(**sizes, axes_dims_rope=(4, 4, 8), guidance_embeds=True)
    return d.FluxPipeline(
        transformer=network,
        scheduler=flow(),
        vae=vae(),
        text_encoder=text.clip(),
        tokenizer=text.clip_tokenizer(),
        text_encoder_2=text.t5(),
        tokenizer_2=text.tokenizer(),
    )


def hunyuan_video() -> Any:
    d = diffusers()
    sizes = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=10)
    sizes |= dict(num_layers=1, num_single_layers=1, num_refiner_layers=1, text_embed_dim=DIM)
    network = d.HunyuanVideoTransformer3DModel(
        **sizes, pooled_projection_dim=DIM, rope_axes_dim=(2, 4, 4), guidance_embeds=True
    )
    decoder = dict(latent_channels=4, block_out_channels=(8,) * 4, layers_per_block=1)
    return d.HunyuanVideoPipeline(
        transformer=network,
        scheduler=flow(shift=7.0),
        vae=d.AutoencoderKLHunyuanVideo(**decoder, norm_num_groups=4),
        text_encoder=text.llama(),
        tokenizer=text.tokenizer(512),
        text_encoder_2=text.clip(),
        tokenizer_2=text.clip_tokenizer(),
    )


def ace_step() -> Any:
    d = diffusers()
    layer = dict(hidden_size=32, intermediate_size=32, num_attention_heads=2, head_dim=16)
    layer["num_key_value_heads"] = 1
    decoder = dict(downsampling_ratios=[2, 4, 8], channel_multiples=[1] * 3, decoder_channels=4)
    return d.AceStepPipeline(
        transformer=d.AceStepTransformer1DModel(
            **layer, num_hidden_layers=2, in_channels=24, audio_acoustic_hidden_dim=8
        ),
        condition_encoder=d.AceStepConditionEncoder(
            **layer,
            text_hidden_dim=DIM,
            timbre_hidden_dim=8,
            num_lyric_encoder_hidden_layers=1,
            num_timbre_encoder_hidden_layers=1,
        ),
        vae=d.AutoencoderOobleck(
            **decoder, encoder_hidden_size=4, decoder_input_channels=8, sampling_rate=640
        ),
        text_encoder=text.qwen3(),
        tokenizer=text.tokenizer(),
        scheduler=flow(),
    )


def minimax_h3() -> Any:
    d = diffusers()
    blocks: Any = import_module(
        "diffusers.modular_pipelines.minimax_h3.modular_blocks_minimax_h3"
    ).MiniMaxH3Blocks()
    network = dict(num_attention_heads=2, attention_head_dim=16, hidden_size=32, num_layers=2)
    network |= dict(num_refiner_layers=1, ffn_dim=32, text_dim=32, freq_dim=16, rope_freq_dim=2)
    films = dict(layers_per_block=1, norm_num_groups=4, decoder_num_layers=1)
    films |= dict(decoder_num_attention_heads=2, decoder_attention_head_dim=16)
    sounds = dict(encoder_dim=4, latent_dim=32, decoder_dim=128, num_attention_heads=2)
    pipe = blocks.init_pipeline()
    pipe.update_components(
        transformer=d.MiniMaxH3Transformer3DModel(
            **network, time_embed_hidden_dim=32, time_embed_dim=16
        ),
        vae=d.AutoencoderKLMiniMaxH3(**films, block_out_channels=(8,) * 6),
        audio_vae=d.AutoencoderKLMiniMaxH3Audio(
            **sounds,
            resblock_kernel_sizes=(3,),
            resblock_dilation_sizes=((1,),),
            latents_mean=[0.0] * 32,
            latents_std=[1.0] * 32,
        ),
        text_encoder=text.qwen3_vl(layers=51),
        tokenizer=text.tokenizer(),
        scheduler=d.MiniMaxH3Scheduler(),
        audio_scheduler=d.MiniMaxH3Scheduler(shift=3.0),
    )
    return pipe


class Processor:
    """What MiniMax-H3 wants of its processor for a request of text alone."""

    def create_mm_token_type_ids(self, rows: list[Any]) -> list[list[int]]:
        return [[0] * len(row) for row in rows]


def awake(pipe: Any) -> Any:
    """With small random weights where a network starts with zeros."""
    for part in pipe.components.values():
        for weight in part.parameters() if isinstance(part, torch.nn.Module) else ():
            if weight.dim() > 1 and not weight.any():
                torch.nn.init.normal_(weight, std=0.05)
    return pipe


def save(pipe: Any, folder: Path) -> None:
    """A modular pipeline is told to name the folder as the place of its parts."""
    modular = hasattr(pipe, "blocks")
    awake(pipe).save_pretrained(
        str(folder), **({"overwrite_modular_index": True} if modular else {})
    )
