#!/bin/sh
# Runs tiny Stable Diffusion and FLUX pipelines, plain and accelerated, on old releases of diffusers.
#   [TORCH=2.7.0] scripts/oldest.sh [folder of the scratch environment]
# Needs Python 3.11 and a package index. Prints one line per release and pipeline.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${1:-$(mktemp -d)/venv}
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
$pip "torch==${TORCH:-2.13.0}" "numpy<2" pillow "accelerate==1.2.1" "huggingface_hub<0.26"
program=$(mktemp)
trap 'rm -f "$program"' EXIT
cat > "$program" <<'PYTHON'
import logging, sys, warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import diffusers, torch, transformers
from transformers import CLIPTextConfig, CLIPTextModel

import geoshrink


def embeds(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def vae():
    down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    return diffusers.AutoencoderKL(
        block_out_channels=(8, 8), down_block_types=down, up_block_types=up, latent_channels=4,
        norm_num_groups=4,
    )


def sd():
    net = diffusers.UNet2DConditionModel(
        block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, sample_size=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=32,
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=2,
    )
    text = CLIPTextModel(CLIPTextConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=100,
    ))
    scheduler = diffusers.DDIMScheduler(steps_offset=1, clip_sample=False)
    pipe = diffusers.StableDiffusionPipeline(
        vae=vae(), text_encoder=text, tokenizer=None, unet=net, scheduler=scheduler,
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )
    prompts = dict(prompt_embeds=embeds(1, 8, 32), negative_prompt_embeds=embeds(1, 8, 32, seed=2))
    return pipe, net, prompts


def flux():
    net = diffusers.FluxTransformer2DModel(
        in_channels=16, num_layers=1, num_single_layers=1, joint_attention_dim=32,
        attention_head_dim=16, num_attention_heads=2, axes_dims_rope=(4, 4, 8),
        pooled_projection_dim=32, guidance_embeds=True,
    )
    pipe = diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=vae(), text_encoder=None,
        tokenizer=None, text_encoder_2=None, tokenizer_2=None, transformer=net,
    )
    return pipe, net, dict(prompt_embeds=embeds(1, 8, 32), pooled_prompt_embeds=embeds(1, 32))


def check(build):
    pipe, net, prompts = build()
    pipe.set_progress_bar_config(disable=True)
    calls = []

    def run():
        generator = torch.Generator().manual_seed(0)
        images = pipe(
            **prompts, height=16, width=16, num_inference_steps=8, generator=generator,
            output_type="latent",
        ).images
        return torch.as_tensor(images)  # before 0.13 decoded, as an array

    plain = run()
    net.register_forward_pre_hook(lambda *_: calls.append(1))
    with geoshrink.accelerate(pipe, budget=8):
        assert torch.equal(run(), plain), "budget = steps differs from the plain run"
    calls.clear()
    with geoshrink.accelerate(pipe, budget=5) as handle:
        run()
    assert len(calls) == 5 == handle.report.evaluations, f"{len(calls)} calls"
    assert torch.equal(run(), plain), "remove() left something"


for build in (sd, flux):
    torch.manual_seed(0)
    at = f"diffusers {diffusers.__version__}, transformers {transformers.__version__}"
    at += f", torch {torch.__version__}"
    if build is flux and not hasattr(diffusers, "FluxPipeline"):
        print(f"{at}: no FLUX yet")
        continue
    try:
        check(build)
        print(f"{at}: {build.__name__} ok")
    except Exception as error:
        print(f"{at}: {build.__name__} FAILS: {type(error).__name__}: {error}")
PYTHON
while read -r diffusers transformers; do
    $pip "diffusers==$diffusers" "transformers==$transformers" "huggingface_hub<0.26"
    PYTHONPATH="$root/src" "$venv/bin/python" "$program" 2> "$program.err" ||
        { echo "diffusers $diffusers: $(tail -n 1 "$program.err")"; }
    rm -f "$program.err"
done <<'VERSIONS'
0.32.2 4.44.2
0.30.0 4.44.2
0.22.3 4.40.2
0.17.1 4.40.2
0.12.1 4.40.2
VERSIONS
