"""Tiny checkpoints that ComfyUI's own loaders accept, with seeded weights.

`write` runs this file with the server's Python, because the modules are ComfyUI's own:
`python checkpoints.py SERVER MODELS FAMILY…`. It prints the families that this ComfyUI can build.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

BUILDERS: dict[str, Callable[[dict[str, Any]], torch.nn.Module]] = {}


def write(server: Path, python: Path, models: Path, families: Iterable[str]) -> list[str]:
    """Write `tiny_<family>.safetensors` and a LoRA for each family; return those that exist."""
    command = [str(python), __file__, str(server), str(models), *families]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"no checkpoints:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def builder(build: Callable[[dict[str, Any]], torch.nn.Module]):
    BUILDERS[build.__name__] = build
    return build


def module(path: str) -> Any:
    return importlib.import_module(f"comfy.ldm.{path}")


@builder
def sd3(common: dict[str, Any]) -> torch.nn.Module:
    context = {"target": "torch.nn.Linear", "params": {"in_features": 64, "out_features": 128}}
    return module("modules.diffusionmodules.mmdit").OpenAISignatureMMDITWrapper(
        input_size=None,
        in_channels=16,
        depth=2,
        adm_in_channels=64,
        context_embedder_config=context,
        num_patches=256,
        pos_embed_max_size=16,
        **common,
    )


TRANSFORMER = {
    "in_channels": 16,
    "out_channels": 16,
    "context_in_dim": 64,
    "hidden_size": 128,
    "mlp_ratio": 4.0,
    "num_heads": 1,
    "depth": 1,
    "depth_single_blocks": 1,
    "axes_dim": [16, 56, 56],
    "qkv_bias": True,
    "guidance_embed": True,
}


@builder
def flux(common: dict[str, Any]) -> torch.nn.Module:
    flux = module("flux.model")
    if "txt_ids_dims" not in {item.name for item in dataclasses.fields(flux.FluxParams)}:
        raise TypeError("this ComfyUI always gives Flux 24 heads")
    own = {"vec_in_dim": 64, "theta": 10000, "patch_size": 2, "txt_ids_dims": []}
    return flux.Flux(**TRANSFORMER, **own, **common)


@builder
def hunyuan_video(common: dict[str, Any]) -> torch.nn.Module:
    hunyuan = module("hunyuan_video.model")
    own: dict[str, Any] = {"vec_in_dim": 768, "theta": 256, "patch_size": [1, 2, 2]}
    own |= {"byt5": False, "meanflow": False, "use_cond_type_embedding": False}
    own |= {"vision_in_dim": None, "meanflow_sum": False}
    known = {item.name for item in dataclasses.fields(hunyuan.HunyuanVideoParams)}
    own = {name: value for name, value in own.items() if name in known}
    return hunyuan.HunyuanVideo(**TRANSFORMER, **own, **common)


@builder
def wan(common: dict[str, Any]) -> torch.nn.Module:
    return module("wan.model").WanModel(
        model_type="t2v", dim=128, ffn_dim=256, num_heads=1, num_layers=2, text_dim=4096, **common
    )


@builder
def cogvideox(common: dict[str, Any]) -> torch.nn.Module:
    return module("cogvideo.model").CogVideoXTransformer3DModel(
        num_attention_heads=1,
        attention_head_dim=64,
        num_layers=2,
        time_embed_dim=64,
        text_embed_dim=64,
        use_rotary_positional_embeddings=True,
        **common,
    )


@builder
def sd15(common: dict[str, Any]) -> torch.nn.Module:
    return module("modules.diffusionmodules.openaimodel").UNetModel(
        image_size=32,
        in_channels=4,
        out_channels=4,
        model_channels=320,
        num_res_blocks=1,
        channel_mult=[1],
        num_heads=8,
        use_spatial_transformer=True,
        transformer_depth=[1],
        transformer_depth_output=[1, 1],
        transformer_depth_middle=1,
        context_dim=768,
        **common,
    )


def fill(model: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """The state of a module with every tensor drawn anew: its memory is uninitialised."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, tensor in model.state_dict().items():
        drawn = torch.randn(tensor.shape, generator=generator)
        if tensor.dim() < 2:
            gain = 1.0 if name.endswith(("weight", "scale")) else 0.0  # of a norm
            state[name] = gain + 0.1 * drawn
        else:
            state[name] = drawn / tensor[0].numel() ** 0.5
    return state


def lora(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """A LoRA of rank 2 on the four largest matrices."""
    generator = torch.Generator().manual_seed(seed)
    matrices = [name for name in state if name.endswith(".weight") and state[name].dim() == 2]
    out = {}
    for name in sorted(matrices, key=lambda name: -state[name].numel())[:4]:
        rows, columns = state[name].shape
        key = f"diffusion_model.{name.removesuffix('.weight')}"
        up, down = (torch.randn(shape, generator=generator) for shape in ((rows, 2), (2, columns)))
        out[f"{key}.lora_up.weight"], out[f"{key}.lora_down.weight"] = up / 8, down / columns**0.5
    return out


def main(server: str, models: str, *families: str) -> None:
    sys.path.insert(0, server)
    cli = importlib.import_module("comfy.cli_args")
    cli.args.cpu = True
    operations = importlib.import_module("comfy.ops").disable_weight_init
    common = {"dtype": torch.float32, "device": "cpu", "operations": operations}
    written = []
    for name in families:
        try:
            state = fill(BUILDERS[name](common), 1 + list(BUILDERS).index(name))
        except (ImportError, TypeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        save_file(state, str(Path(models) / "diffusion_models" / f"tiny_{name}.safetensors"))
        save_file(lora(state, 101), str(Path(models) / "loras" / f"tiny_{name}.safetensors"))
        written.append(name)
    print(json.dumps(written))


if __name__ == "__main__":
    main(*sys.argv[1:])
