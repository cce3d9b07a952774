"""Are a model's samples what was asked for? Measured with the plain solver, every step of it.

    python -m geoshrink_bench.zoo.judge fruit motion --samples 128 --data FOLDER --out judged.md

What is measured is the modality's to say. Most ask a classifier of the same data how often it
recognises the class asked for, next to how often it recognises real examples that it has not
learnt from.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from geoshrink.compare.outcomes import progress_bar

from .classifier import load_classifier
from .modalities import Data
from .modalities.judging import Finding, Samples, spread
from .model import Model, joined, load
from .recipes import RECIPES


def judge(
    model: Model,
    count: int = 128,
    *,
    guidance: float = 3.0,
    steps: int | None = None,
    batch: int = 16,
    data: Data | None = None,
    classifiers: str | Path | None = None,
) -> list[Finding]:
    """What there is to say about `count` samples; `data` are real ones to compare with."""
    known = {
        name: load_classifier(name, classifiers, model.device) for name in model.recipe.classifiers
    }
    labels = labels_of(count, len(model.classes), data)
    x = draw(model, labels, guidance, steps, batch)
    return model.recipe.modality.judge(Samples(model, labels, x, data, known))


def labels_of(count: int, classes: int, data: Data | None) -> list[int]:
    """Labels of real examples, if there are data; otherwise each class equally often."""
    if data is None:
        return spread(count, classes)
    return data.labels[spread(count, len(data.labels))].tolist()


def draw(model: Model, labels: list[int], guidance: float, steps: int | None, batch: int) -> Any:
    """Samples of the plain solver on the model's own grid, sample i from noise of seed i."""
    parts: list[Any] = []
    total = model.grid(steps).given * -(-len(labels) // batch)
    with progress_bar("judge")(total=total, unit="call", desc=model.name) as bar:
        for start in range(0, len(labels), batch):
            some = labels[start : start + batch]
            noise = joined([model.noise(1, seed=start + i) for i in range(len(some))])
            parts.append(
                model.sample(some, noise, guidance, steps, callback=lambda *_: bar.update())
            )
    return joined(parts)


def table(findings: dict[str, list[Finding]]) -> str:
    """A row per finding."""
    lines = [
        "| model | measured | samples | real | required | passes |",
        "|---|---|--:|--:|---|---|",
    ]
    for name, rows in findings.items():
        for row in rows:
            real = "" if row.real is None else f"{row.real:.3f}"
            passes = {None: "", True: "yes", False: "no"}[row.passes]
            cells = (name, row.measured, f"{row.samples:.3f}", real, row.required, passes)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measures whether samples are what was asked for.")
    parser.add_argument("names", nargs="+", choices=sorted(RECIPES), metavar="NAME")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--steps", type=int, help="default: the model's own")
    parser.add_argument("--data", type=Path, help="folder of the real data, to compare with")
    parser.add_argument("--folder", type=Path, help="of the models' weights")
    parser.add_argument("--classifiers", type=Path, help="folder of the classifiers' weights")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="a Markdown file")
    args = parser.parse_args(arguments)
    findings = {}
    for name in args.names:
        recipe = RECIPES[name]
        wanted = args.data and not recipe.classifiers  # they know their own held-out rate
        data = recipe.modality.read(args.data / recipe.data) if wanted else None
        findings[name] = judge(
            load(name, args.device, args.folder),
            args.samples,
            guidance=args.guidance,
            steps=args.steps,
            batch=args.batch,
            data=data,
            classifiers=args.classifiers,
        )
    text = table(findings)
    print(text, end="")
    if args.out is not None:
        given = shlex.join(sys.argv[1:] if arguments is None else arguments)
        args.out.write_text(
            f"`python -m geoshrink_bench.zoo.judge {given}`\n\n{text}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
