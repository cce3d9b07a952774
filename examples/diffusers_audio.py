"""Sound by a diffusers pipeline, with 12 model calls in place of 50.

    python examples/diffusers_audio.py                # LongCat-AudioDiT, 1 B, from the hub
    python examples/diffusers_audio.py FOLDER --prompt "rain on a tin roof" --seconds 10

Needs geoshrink[diffusers]. Other pipelines of sound name the length otherwise: audio_end_in_s
(Stable Audio), audio_duration (ACE-Step), audio_length_in_s (AudioLDM 2).
"""

import argparse
import wave

import numpy as np
import torch
from diffusers import DiffusionPipeline

import geoshrink

parser = argparse.ArgumentParser()
parser.add_argument("model", nargs="?", default="ruixiangma/LongCat-AudioDiT-1B-Diffusers")
parser.add_argument("--prompt", default="calm ocean waves, soft wind in the background")
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--budget", type=int, default=12, help="model calls")
parser.add_argument("--seconds", type=float, default=5.0)
parser.add_argument("--out", default="sound.wav")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
pipe = DiffusionPipeline.from_pretrained(args.model).to(device)

with geoshrink.accelerate(pipe, budget=args.budget) as handle:
    made = pipe(
        args.prompt,
        num_inference_steps=args.steps,
        audio_duration_s=args.seconds,
        generator=torch.Generator().manual_seed(0),
    )
    report = handle.report
samples = np.asarray(made.audios[0, 0], dtype=np.float32).clip(-1, 1)
with wave.open(args.out, "wb") as file:
    file.setnchannels(1)
    file.setsampwidth(2)
    file.setframerate(pipe.sample_rate)
    file.writeframes((samples * 32767).astype("<i2").tobytes())
print(report)
print(f"{args.out}: {len(samples) / pipe.sample_rate:.1f} s")
