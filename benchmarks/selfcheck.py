"""Does the self-check at the anchors say when a run cannot be trusted? On the fruit model, one GPU.

    python benchmarks/selfcheck.py --out benchmarks/selfcheck.md

For guidance 1.5 to 7, shift 1, 3 and 7, 28 and 50 steps and 5 to 14 calls: the report's self-check
(mean relative error of the predictions at the anchors, no model call of its own) against the PSNR
to the full run, for σ-geometric anchors with signed chordal and for the paper's method; 48 samples
each.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import torch

from geoshrink import sample
from geoshrink.compare.likeness import psnr
from geoshrink_bench import zoo

METHODS: dict[str, dict[str, Any]] = {
    "σ-geometric": dict(anchors="sigma", rule="signed chordal"),
    "paper": dict(anchors="geometric", rule="chordal"),
}
BINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 9.9)


def main() -> None:
    parser = argparse.ArgumentParser(description="Self-check against measured quality.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    model, n = zoo.load("fruit", args.device), 48
    labels = [i * len(model.classes) // n for i in range(n)]
    noise = model.noise(n, seed=7)
    rows = []
    for steps, shift, guidance in itertools.product((28, 50), (1, 3, 7), (1.5, 3, 4.5, 7)):
        velocity = model.velocity(labels, guidance)
        full = model.values(sample(velocity, noise, model.sigmas(steps, shift)))
        for budget in (5, 7, 10, 14):
            direct = sample(velocity, noise, model.sigmas(budget, shift))
            base = float(psnr(model.values(direct), full).mean())
            for name, method in METHODS.items():
                grid = model.sigmas(steps, shift)
                x, report = sample(velocity, noise, grid, budget, with_report=True, **method)
                score = float(psnr(model.values(x), full).mean())
                setting = (steps, shift, guidance, budget, name)
                rows.append((*setting, report.self_check or 0.0, score, base))
    lines = [f"# {(__doc__ or '').splitlines()[0]}", ""]
    where = torch.cuda.get_device_name() if args.device.startswith("cuda") else "a CPU"
    lines += [f"Made by `python benchmarks/selfcheck.py` on {where}."]
    lines += [*(__doc__ or "").splitlines()[3:], "", "## By self-check", ""]
    lines += [
        "| method | self-check | settings | PSNR, lowest – median – highest | behind direct |"
    ]
    lines += ["|---|---|---|---|---|"]
    for name, (low, high) in itertools.product(METHODS, itertools.pairwise(BINS)):
        here = [r for r in rows if r[4] == name and low <= r[5] < high]
        if here:
            scores = sorted(r[6] for r in here)
            spread = f"{scores[0]:.1f} – {scores[len(scores) // 2]:.1f} – {scores[-1]:.1f}"
            behind = sum(r[6] < r[7] for r in here)
            lines.append(f"| {name} | {low:g} – {high:g} | {len(here)} | {spread} | {behind} |")
    lines += ["", "## Every setting", ""]
    lines += ["| steps | shift | guidance | calls | direct | σ-geometric | self-check |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for steps, shift, guidance, budget, name, check, score, base in rows:
        if name == "σ-geometric":
            cells = f"{base:.1f} | {score:.1f} | {check:.2f}"
            lines.append(f"| {steps} | {shift} | {guidance:g} | {budget} | {cells} |")
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[:30]))


if __name__ == "__main__":
    main()
