"""torchdiffeq's odeint with a budget: the flow of a mixture of eight Gaussians, in closed form.

    python examples/odeint.py --steps 100 --budget 12

Needs torchdiffeq. Time runs from 0, noise, to 1, data, as in torchcfm and F5-TTS.
"""

import argparse
import math

import torch

import geoshrink

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--budget", type=int, default=10, help="calls of the velocity")
parser.add_argument("--samples", type=int, default=2000)
args = parser.parse_args()

angles = 2 * math.pi * torch.arange(8) / 8
centres = 4 * torch.stack([angles.cos(), angles.sin()], 1)  # of the data
spread = 0.3  # their standard deviation


def velocity(t, x):
    """E[data − noise | x] where x = t·data + (1 − t)·noise."""
    variance = (t * spread) ** 2 + (1 - t) ** 2
    off = x[:, None] - t * centres  # (samples, 8, 2)
    weight = torch.softmax(-off.square().sum(-1) / (2 * variance), 1)
    data = centres + t * spread**2 / variance * off
    noise = (1 - t) / variance * off
    return (weight[..., None] * (data - noise)).sum(1)


times = torch.linspace(0, 1, args.steps + 1)
start = torch.randn(args.samples, 2, generator=torch.Generator().manual_seed(0))

full = geoshrink.odeint(velocity, start, times)[-1]  # every step: torchdiffeq's own Euler
made, report = geoshrink.odeint(
    velocity, start, times, budget=args.budget, data=1.0, with_report=True
)
short = torch.linspace(0, 1, args.budget + 1)
direct = geoshrink.odeint(velocity, start, short)[-1]  # as many calls, longer steps


def db(x):
    return 10 * (full.square().sum() / (x - full).square().sum()).log10().item()


print(report)
print(f"to the {args.steps}-step run: geoshrink {db(made[-1]):.1f} dB, direct {db(direct):.1f} dB")
