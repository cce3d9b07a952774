"""A film by a diffusers pipeline, at the quality that you ask for.

    python examples/diffusers_video.py                           # Wan 2.1, 1.3 B, from the hub
    python examples/diffusers_video.py ~/models/Wan2.2 --target-db 25 --frames 81

Needs geoshrink[diffusers]. The film is an animated WebP: nothing else has to be installed for it.
"""

import argparse

import torch
from diffusers import DiffusionPipeline

import geoshrink

parser = argparse.ArgumentParser()
parser.add_argument("model", nargs="?", default="Wan-AI/Wan2.1-T2V-1.3B-Diffusers")
parser.add_argument("--prompt", default="a wave breaks on a dark beach")
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--target-db", type=float, default=25.0, help="closeness to the full run")
parser.add_argument("--most", type=int, default=30, help="model calls, whatever the quality")
parser.add_argument("--size", type=int, nargs=2, default=(832, 480), help="width and height")
parser.add_argument("--frames", type=int, default=33)
parser.add_argument("--out", default="film.webp")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32
# torch_dtype= in old releases
pipe = DiffusionPipeline.from_pretrained(args.model, dtype=dtype).to(device)

with geoshrink.accelerate(pipe, target_db=args.target_db, most=args.most) as handle:
    made = pipe(
        args.prompt,
        num_inference_steps=args.steps,
        width=args.size[0],
        height=args.size[1],
        num_frames=args.frames,
        generator=torch.Generator().manual_seed(0),
        output_type="pil",
    )
    reports = handle.reports  # one for each model that the pipeline runs
first, *others = made.frames[0]
first.save(args.out, save_all=True, append_images=others, duration=1000 // 16, loop=0)
for report in reports:
    print(report.summary(), "–", report.estimate)
print(f"{args.out}: {len(others) + 1} frames")
