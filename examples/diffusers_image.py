"""A picture by any diffusers pipeline, with 10 model calls in place of 50.

    python examples/diffusers_image.py                          # Lumina-Image 2.0, from the hub
    python examples/diffusers_image.py ~/models/FLUX.1-dev --prompt "two foxes" --budget 12

Needs geoshrink[diffusers]. MODEL is a name on the hub, or a folder that diffusers saved.
"""

import argparse

import torch
from diffusers import DiffusionPipeline

import geoshrink

parser = argparse.ArgumentParser()
parser.add_argument("model", nargs="?", default="Alpha-VLLM/Lumina-Image-2.0")
parser.add_argument("--prompt", default="a lighthouse at dawn")
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--budget", type=int, default=10, help="model calls")
parser.add_argument("--size", type=int, default=1024, help="pixels of a side")
parser.add_argument("--out", default="image.png")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32
# torch_dtype= in old releases
pipe = DiffusionPipeline.from_pretrained(args.model, dtype=dtype).to(device)

with geoshrink.accelerate(pipe, budget=args.budget) as handle:  # or speedup=5, or target_db=30
    made = pipe(
        args.prompt,
        num_inference_steps=args.steps,  # the scheduler keeps all of them
        height=args.size,
        width=args.size,
        generator=torch.Generator().manual_seed(0),
    )
    report = handle.report
made.images[0].save(args.out)
print(report)  # what was called, what was predicted, about how far it is from the full run
print(f"{args.out}: {report.evaluations} model calls of {report.steps}")
