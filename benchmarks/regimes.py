"""Anchors where guidance switches: python benchmarks/regimes.py writes benchmarks/regimes.md.

The zoo's objects at TRELLIS's setting, guidance 7.5 for σ in [0.5, 0.95], 25 steps, shift 3; six
samples. "By length": the budget shared in proportion to a regime's length, each meshed up to its
own last stage, with the rule of our default. "Ours" is our default of this version: what it is
decides what the page says.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from geoshrink import METHODS, Plan, sample
from geoshrink_bench import zoo

INTERVAL = (0.5, 0.95)
BY_LENGTH = {
    10: (0, 3, 4, 5, 6, 8, 12, 18, 19, 24),
    12: (0, 3, 4, 5, 6, 7, 10, 13, 18, 19, 21, 24),
    15: (0, 3, 4, 5, 6, 7, 9, 11, 13, 15, 18, 19, 20, 21, 24),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Anchors where guidance switches.")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args(argv)
    default = METHODS["default"]
    model = zoo.load("objects", args.device)
    velocity = model.velocity([0, 2, 4, 6, 8, 10], 7.5, interval=INTERVAL)
    grid, noise = model.grid(25, 3.0, INTERVAL), model.noise(6, seed=100)
    full = model.values(sample(velocity, noise, grid))
    lines = [
        "# Anchors where guidance switches",
        "",
        "Made by `python benchmarks/regimes.py`: mean error of the signed distance to the full run "
        "in ‰, `objects`, guidance 7.5 for σ in [0.5, 0.95], 25 steps, shift 3, six samples. Ours: "
        f"{', '.join(f'{name}={value!r}' for name, value in default.items())}.",
        "",
        "| B | by length | error | ours | error | direct |",
        "|--:|---|--:|---|--:|--:|",
    ]
    for budget, old in BY_LENGTH.items():
        plan = Plan.of(grid, budget, **default)
        made = [sample(velocity, noise, grid, **{**default, "anchors": old})]
        made.append(sample(velocity, noise, plan=plan))
        made.append(sample(velocity, noise, model.grid(budget, 3.0, INTERVAL)))
        a, b, c = (f"{1000 * (model.values(x) - full).abs().mean():.2f}" for x in made)
        lines.append(f"| {budget} | {old} | {a} | {plan.anchors} | {b} | {c} |")
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
