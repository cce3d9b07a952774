"""What declaring regimes costs: python benchmarks/regimes.py writes benchmarks/regimes.md.

Each setting is run twice at equal calls: with its switches declared as regimes, and on the same
grid without them. "interval": guidance acts between two σ only. "hard": two experts, without
guidance and with guidance 6, or two classes. "none": regimes are declared, and nothing changes.
Foreign models that are not here are skipped by name (docs/foreign.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from geoshrink import Grid, Plan, sample
from geoshrink.planning.tournament import decibels
from geoshrink_bench import foreign, zoo

BUDGETS = (7, 10, 15, 20)
SEEDS = (100, 101)
SWITCH = 0.6  # σ at which the experts change
EVERYWHERE = (0.0, 1.0)
CHOSEN = (
    "Half of the line before a switch (history/cell.py) was chosen on models of this table: it "
    "does not judge that."
)


@dataclass(frozen=True)
class Setting:
    """One model: guidance and its interval, its grid, and how many samples from each seed."""

    model: str
    guidance: tuple[float, ...]
    interval: tuple[float, float]
    kinds: tuple[str, ...] = ("interval", "hard", "none")
    steps: int = 50
    shift: float | None = None
    samples: int = 8
    budgets: tuple[int, ...] = BUDGETS


SETTINGS = (
    Setting("digits-vit", (2.0, 4.0), (0.3, 0.7), samples=16),
    Setting("digits-latent", (3.0, 6.0), (0.3, 0.7), samples=16),
    Setting("letters-latent", (4.0, 8.0), (0.3, 0.7), samples=16),
    Setting("fruit-latent", (4.5,), (0.3, 0.8)),
    Setting("motion", (5.0,), (0.3, 0.8)),
    Setting("objects", (7.5,), (0.5, 0.95), ("interval",), 25, 3.0, 2, (7, 10, 15)),
)


@dataclass(frozen=True)
class Case:
    setting: Setting
    kind: str
    title: str
    velocity: Callable[[Any, Any], Any]
    regimes: tuple[int, ...]


def cases(setting: Setting, model: Any) -> Iterator[Case]:
    count = len(model.classes)
    labels = [i % count for i in range(setting.samples)]
    grid = model.grid(setting.steps, setting.shift, setting.interval)
    low, high = setting.interval
    if "interval" in setting.kinds:
        for g in setting.guidance:
            velocity = model.velocity(labels, g, interval=setting.interval)
            title = f"guidance {g:g} for {low:g} ≤ σ ≤ {high:g}"
            yield Case(setting, "interval", title, velocity, grid.regimes)
    if "hard" in setting.kinds:
        others = [(label + 3) % count for label in labels]
        first = setting.guidance[0]
        start = next(n for n, s in enumerate(grid.tracks[0].sigmas) if s < SWITCH)
        for title, *given in (
            ("guidance 1, then 6", (labels, 1.0), (labels, 6.0)),
            ("one class, then another", (labels, first), (others, first)),
        ):
            experts = [model.velocity(*each, interval=EVERYWHERE) for each in given]
            yield Case(setting, "hard", title, switched(*experts), (start,))
    if "none" in setting.kinds:
        velocity = model.velocity(labels, setting.guidance[0], interval=EVERYWHERE)
        title = f"guidance {setting.guidance[0]:g} throughout"
        yield Case(setting, "none", title, velocity, grid.regimes)


def switched(early: Callable[..., Any], late: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, sigma: (late if float(sigma) < SWITCH else early)(x, sigma)


def measured(case: Case, model: Any) -> list[tuple[float, float]]:
    """(undeclared, declared) in dB to the full run, the mean over the seeds, for every budget."""
    setting = case.setting
    plain: Grid = model.grid(setting.steps, setting.shift)
    declared = replace(plain, regimes=case.regimes)
    noises = [model.noise(setting.samples, seed=seed) for seed in SEEDS]
    full = [model.values(sample(case.velocity, x, plain)) for x in noises]

    def quality(grid: Grid, budget: int) -> float:
        plan = Plan.of(grid, budget)
        made = [model.values(sample(case.velocity, x, plan=plan)) for x in noises]
        return mean(float(decibels(x, whole).mean()) for x, whole in zip(made, full))

    return [(quality(plain, b), quality(declared, b)) for b in setting.budgets]


Row = tuple[Case, list[tuple[float, float]]]


def page(rows: Sequence[Row], missing: Sequence[str], command: str) -> list[str]:
    """The table, the settings that lose most first."""
    lines = [
        "# What declaring regimes costs",
        "",
        f"Made by `{command}`: dB to the full run with the switches declared as regimes, and in "
        "brackets the difference to the same calls without declaring them; "
        f"{len(SEEDS)} seeds, the default. In the order of the mean difference, losses first.",
        "",
        "| model | what changes | kind | samples | "
        + " | ".join(f"B = {b}" for b in BUDGETS)
        + " |",
        "|---|---|---|--:|" + "--:|" * len(BUDGETS),
    ]
    for case, found in sorted(rows, key=lambda row: mean(d - u for u, d in row[1])):
        cells = [f"{d:.1f} ({d - u:+.1f})" for u, d in found]
        cells += ["–"] * (len(BUDGETS) - len(cells))
        count = case.setting.samples * len(SEEDS)
        told = f"{case.setting.model} | {case.title} | {case.kind} | {count}"
        lines.append(f"| {told} | {' | '.join(cells)} |")
    lines += ["", "| kind | contests | mean | least | behind by more than 0.3 dB |"]
    lines.append("|---|--:|--:|--:|--:|")
    for kind in dict.fromkeys(case.kind for case, _ in rows):
        gains = [d - u for case, found in rows if case.kind == kind for u, d in found]
        behind = sum(gain < -0.3 for gain in gains)
        told = f"{kind} | {len(gains)} | {mean(gains):+.1f} | {min(gains):+.1f} | {behind}"
        lines.append(f"| {told} |")
    lines += ["", CHOSEN]
    return [*lines, *(f"\nNot here: {name}." for name in missing)]


def mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def load(name: str) -> Any:
    return foreign.load(name) if name in foreign.RECIPES else zoo.load(name)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What declaring regimes costs.")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--models", nargs="*", help="default: all")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    command = "python benchmarks/regimes.py"
    command += f" --models {' '.join(args.models)}" if args.models else ""
    rows: list[Row] = []
    missing: list[str] = []
    for setting in SETTINGS:
        if args.models and setting.model not in args.models:
            continue
        try:
            model = load(setting.model)
        except foreign.Missing:
            missing.append(setting.model)
            continue
        for case in cases(setting, model):
            rows.append((case, measured(case, model)))
            print(setting.model, case.title, [f"{d:.1f} ({d - u:+.1f})" for u, d in rows[-1][1]])
            text = "\n".join(page(rows, missing, command))
            args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
