"""diffusers' FLUX, SD3 and HunyuanVideo transformers, tiny, as cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from geoshrink import sample
from geoshrink.grid import Grid

d: Any = pytest.importorskip("diffusers")
STEPS = 6


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def flux():
    net = d.FluxTransformer2DModel(
        in_channels=4, num_layers=2, num_single_layers=2, joint_attention_dim=8,
        attention_head_dim=16, num_attention_heads=2, axes_dims_rope=(4, 4, 8),
        pooled_projection_dim=8, guidance_embeds=False,
    )  # fmt: skip
    text = dict(
        encoder_hidden_states=noise(2, 5, 8, seed=1), pooled_projections=noise(2, 8, seed=2),
        txt_ids=torch.zeros(5, 3), img_ids=torch.zeros(6, 3),
    )  # fmt: skip
    return net, noise(2, 6, 4), text


def sd3():
    net = d.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=3,
        attention_head_dim=8, num_attention_heads=2, joint_attention_dim=8,
        caption_projection_dim=16, pooled_projection_dim=8, pos_embed_max_size=8,
        dual_attention_layers=(0,),
    )  # fmt: skip
    text = dict(
        encoder_hidden_states=noise(2, 5, 8, seed=1), pooled_projections=noise(2, 8, seed=2)
    )
    return net, noise(2, 4, 8, 8), text


def hunyuan():
    net = d.HunyuanVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=10, num_layers=2,
        num_single_layers=2, num_refiner_layers=1, patch_size=1, patch_size_t=1,
        guidance_embeds=False, text_embed_dim=8, pooled_projection_dim=8, rope_axes_dim=(2, 4, 4),
    )  # fmt: skip
    text = dict(
        encoder_hidden_states=noise(2, 5, 8, seed=1), pooled_projections=noise(2, 8, seed=2),
        encoder_attention_mask=torch.ones(2, 5),
    )  # fmt: skip
    return net, noise(2, 4, 1, 4, 4), text


def case_of(make: Any, steps: int = STEPS, **more: Any) -> Any:
    """One sample with guidance, two rows in a batch, on a tiny transformer of diffusers."""
    torch.manual_seed(0)
    net, x, text = make()
    net.eval().requires_grad_(False)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)

    def velocity(x, sigma):
        return net(hidden_states=x, timestep=torch.full((2,), 1000 * sigma), **text)[0]

    grid = Grid.of([1 - i / steps for i in range(steps + 1)])
    return SimpleNamespace(
        network=net,
        noise=x,
        velocity=lambda: velocity,
        stepping=lambda: velocity,
        grid=lambda steps=None: grid,
        solve=lambda velocity: sample(velocity, x, grid),
        **more,
    )
