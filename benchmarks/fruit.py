"""The embedded fruit model: every method against the full run, over guidance, shift and budget.

    python benchmarks/fruit.py --out benchmarks/fruit.md        (minutes on a GPU; --quick on a CPU)

PSNR in dB to the full 50-step run from the same noise, Euler, mean ± sd over seeds of the mean over
samples. Classes are spread over all 258; each (class, noise) pair is used once.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

from geoshrink import sample
from geoshrink.compare.likeness import psnr
from geoshrink_bench import zoo

METHODS: dict[str, dict[str, Any]] = {
    "geoshrink": {},
    "published": dict(anchors="geometric", rule="chordal"),
    "geo, signed": dict(anchors="geometric", rule="signed chordal"),
    "σ, chordal": dict(anchors="sigma", rule="chordal"),
    "auto, signed time": dict(anchors="auto", rule="signed time"),
    "σ, signed chordal": dict(anchors="sigma", rule="signed chordal"),
    "σ, time": dict(anchors="sigma", rule="time"),
    "σ, signed time": dict(anchors="sigma", rule="signed time"),
    "σ, signed chordal, data": dict(anchors="sigma", rule="signed chordal", space="data"),
    "σ, signed time, data": dict(anchors="sigma", rule="signed time", space="data"),
    "σ, hold": dict(anchors="sigma", rule="hold"),
    "Fixed-Linear": dict(anchors="uniform", rule="linear"),
    "Fixed-Linear (ω = 1)": dict(anchors="uniform", rule="fixed(1)"),
    "Geo-Linear": dict(anchors="geometric", rule="linear"),
    "Geo-Linear (ω = 1)": dict(anchors="geometric", rule="fixed(1)"),
    "Fixed-Shrink": dict(anchors="uniform", rule="chordal"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Every method on the fruit model.")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/fruit.md"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="8 samples, one seed")
    args = parser.parse_args()
    samples, seeds = (8, 1) if args.quick else (32, 5)
    steps, began = 50, time.time()
    model = zoo.load("fruit", args.device)
    count = samples * seeds
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    labels = [i * len(model.classes) // count for i in order]
    noise = torch.cat([model.noise(samples, seed=100 + s) for s in range(seeds)])
    lines = []
    for guidance in (1.5, 3.0, 4.5):
        for shift in (1.0, 3.0):
            velocity = model.velocity(labels, guidance)
            sigmas = model.sigmas(steps, shift)
            full = model.values(sample(velocity, noise, sigmas))
            rows = {name: [] for name in ("direct", "direct, AB2", *METHODS)}
            budgets = (7, 10, 15, 20)
            for budget in budgets:
                short = model.sigmas(budget, shift)
                runs = {"direct": sample(velocity, noise, short)}
                runs["direct, AB2"] = sample(velocity, noise, short, solver="ab2")
                for name, options in METHODS.items():
                    runs[name] = sample(velocity, noise, sigmas, budget, **options)
                for name, x in runs.items():
                    by_seed = psnr(model.values(x), full).reshape(seeds, samples).mean(1)
                    rows[name].append(by_seed)
            best = [max(v[i].mean() for v in rows.values()) for i in range(len(budgets))]
            lines += [f"\n## guidance {guidance:g}, shift {shift:g}, T = {steps}\n"]
            lines += ["| method | " + " | ".join(f"B = {b}" for b in budgets) + " |"]
            lines += ["|---|" + "---|" * len(budgets)]
            for name, values in rows.items():
                cells = []
                for value, top in zip(values, best):
                    text = f"{value.mean():.1f}"
                    text = f"**{text}**" if value.mean() == top else text
                    cells.append(text + (f" ± {value.std():.1f}" if seeds > 1 else ""))
                lines.append(f"| {name} | " + " | ".join(cells) + " |")
            print("\n".join(lines[-len(rows) - 3 :]), flush=True)
    head = [
        "# The embedded fruit model, every method",
        "",
        f"Made by `python benchmarks/fruit.py{' --quick' if args.quick else ''}` on "
        f"{torch.cuda.get_device_name() if args.device.startswith('cuda') else 'a CPU'} in "
        f"{time.time() - began:.0f} s (torch {torch.__version__}).",
        "",
        *(line for line in (sys.modules["__main__"].__doc__ or "").splitlines()[4:]),
    ]
    args.out.write_text("\n".join(head + lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
