"""The lines of docs/results.md for the exact flow, as they stand there, on models of the zoo.

    python benchmarks/flow_lines.py --out benchmarks/flow_lines.md     # minutes on a CPU

Two ways to a plan: a plain profile, whose plans were tried against the full run, and one made with
target="flow", whose plans were tried against the flow. Other noise than the profile's, and other
labels where there are twice as many classes as samples. dB is 10·log₁₀ of the flow's energy over
the error's in what the solver sees, the mean over samples; the flow is AB2 with eight times the
steps.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import geoshrink
from geoshrink.outputs import flatten
from geoshrink.planning.tournament import converged
from geoshrink_bench import zoo

BUDGET, FINE = 20, 8
#: Moderate guidance, and the shift that each is judged at.
MODELS = (("fruit-latent", 2.0, 3.0), ("motion", 2.0, 1.0), ("objects", 3.0, 3.0))
HEAD = "model | guidance | full run | calls | plain profile | profile for the flow | AB2, 20"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The README's lines for the exact flow.")
    parser.add_argument(
        "--samples", type=int, default=8, help="to profile on, and as many held out"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", choices=[name for name, *_ in MODELS])
    parser.add_argument("--out", type=Path, help="write the page here, too")
    args = parser.parse_args(argv)
    rows = [
        measured(*each, args.samples, args.device)
        for each in MODELS
        if each[0] in (args.models or each[:1])
    ]
    chosen = ["--models", *args.models] if args.models else []
    asked = " ".join(["--samples", str(args.samples), *chosen])
    where = torch.cuda.get_device_name() if args.device.startswith("cuda") else "a CPU"
    lines = ["# The exact flow, by the lines of docs/results.md", ""]
    lines += [f"Made by `python benchmarks/flow_lines.py {asked}` on {where}.", ""]
    lines += ["\n".join((__doc__ or "").splitlines()[4:]).strip(), ""]
    lines += [f"| {HEAD} |", "|---|" + "--:|" * HEAD.count("|")]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    text = "\n".join(lines) + "\n"
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    print(text, end="")


@torch.no_grad()
def measured(name: str, guidance: float, shift: float, samples: int, device: str) -> list[str]:
    model = zoo.load(name, device)
    count, sigmas = len(model.classes), model.sigmas(shift=shift)
    labels = [i * count // samples for i in range(samples)]
    held = [(label + 1) % count for label in labels]
    velocity = model.velocity(labels, guidance)
    other = model.velocity(held, guidance)
    noise, other_noise = model.noise(samples, seed=0), model.noise(samples, seed=1)

    # the README's lines
    profile = geoshrink.profile(velocity, noise, sigmas, quiet=True)
    plain = profile.plan(budget=BUDGET, target="flow")
    profile = geoshrink.profile(velocity, noise, sigmas, target="flow", quiet=True)
    tried = profile.plan(budget=BUDGET, target="flow")

    goal = converged(other, other_noise, model.grid(shift=shift), FINE)
    full = decibels(geoshrink.sample(other, other_noise, sigmas), goal)
    ours = [decibels(geoshrink.sample(other, other_noise, plan=p), goal) for p in (plain, tried)]
    short = model.sigmas(BUDGET, shift)
    rival = decibels(geoshrink.sample(other, other_noise, short, solver="ab2"), goal)
    gains = [f"{db:.1f} ({db - full:+.1f})" for db in (*ours, rival)]
    return [name, f"{guidance:g}", f"{full:.1f}", f"{BUDGET} of {len(sigmas) - 1}", *gains]


def decibels(x: Any, goal: Any) -> float:
    pairs = list(zip(flatten(x)[0], flatten(goal)[0]))
    error = sum((a - b).flatten(1).square().sum(1) for a, b in pairs)
    energy = sum(b.flatten(1).square().sum(1) for _, b in pairs)
    return float(10 / math.log(10) * torch.as_tensor(energy / error).log().mean())


if __name__ == "__main__":
    main()
