"""Are a model's samples what was asked for? Measured with the plain solver, every step of it.

    python -m geoshrink_bench.zoo.judge fruit motion --samples 128 --data FOLDER --out judged.md

Pictures, clips and sound: how often a classifier of the same data recognises the class asked for,
next to how often it recognises real examples that it has not learnt from. Motion: whether bones
keep their length, how low the lowest joint is, how fast joints move. Objects: whether a mesh is
watertight and one piece.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoshrink.comparing import progress_bar
from geoshrink.sampling import sample

from .classifier import TASKS, Classifier, load_classifier
from .modalities import Data, Modality
from .modalities.base import column
from .modalities.objects import surface_of
from .model import Model, joined, load
from .recipes import RECIPES

RECOGNISED, STRETCH, WHOLE = 0.85, 0.03, 0.90  # what a model must reach
MARGIN = 0.05  # metres below and above the data's range of heights


@dataclass(frozen=True)
class Finding:
    """One number of the samples, the same number of real data, and what is required of it."""

    measured: str
    samples: float
    real: float | None = None
    required: str = ""
    passes: bool | None = None


@dataclass(frozen=True)
class Samples:
    model: Model
    labels: list[int]
    x: Any
    data: Data | None  # real data, where given


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
    judges = classifiers_of(model, classifiers)
    labels = labels_of(count, len(model.classes), data)
    samples = Samples(model, labels, draw(model, labels, guidance, steps, batch), data)
    if model.name == "motion":
        return judge_motion(samples)
    if model.name == "objects":
        return judge_objects(samples)
    return judge_recognition(samples, judges)


def labels_of(count: int, classes: int, data: Data | None) -> list[int]:
    """Those of real examples, where there are data: as common as there. Else all equally often."""
    if data is None:
        return spread(count, classes)
    return data.labels[spread(count, len(data.labels))].tolist()


def spread(count: int, among: int) -> list[int]:
    """Numbers below `among`, evenly apart.

    >>> spread(4, 8)
    [0, 2, 4, 6]
    """
    return [i * among // count for i in range(count)]


def draw(model: Model, labels: list[int], guidance: float, steps: int | None, batch: int) -> Any:
    """Samples of the plain solver on the model's own grid, sample i from noise of seed i."""
    interval = model.judged_at.get("interval")
    grid = model.grid(steps, interval=interval)
    parts: list[Any] = []
    total = grid.given * -(-len(labels) // batch)
    with progress_bar("judge")(total=total, unit="call", desc=model.name) as bar:
        for start in range(0, len(labels), batch):
            some = labels[start : start + batch]
            noise = joined([model.noise(1, seed=start + i) for i in range(len(some))])
            velocity = model.velocity(some, guidance, interval=interval)
            parts.append(sample(velocity, noise, grid, callback=lambda *_: bar.update()))
    return joined(parts)


def classifiers_of(model: Model, folder: str | Path | None) -> dict[str, Classifier]:
    """Those that know this model's data; none for motion and objects."""
    names = [name for name, task in TASKS.items() if model.name in task.judges]
    return {name: load_classifier(name, folder, model.device) for name in names}


def judge_recognition(samples: Samples, judges: dict[str, Classifier]) -> list[Finding]:
    """The rate at which each classifier names the class that was asked for."""
    model = samples.model
    findings = []
    for name, classifier in judges.items():
        right = 0
        for start in range(0, len(samples.labels), 32):
            part = slice(start, start + 32)
            wanted = [meant(model.classes[i], classifier.classes) for i in samples.labels[part]]
            said = classifier.predict(heard_or_seen(model, samples.x, part, name))
            right += sum(a == b for a, b in zip(said, wanted))
        rate, real = right / len(samples.labels), classifier.held_out_accuracy
        findings.append(
            Finding(
                f"recognised as the class asked for, by the {name} classifier",
                rate,
                real,
                f"≥ {RECOGNISED} of real (is {rate / real:.3f})" if real else "",
                rate >= RECOGNISED * real,
            )
        )
    return findings


def heard_or_seen(model: Model, x: Any, part: slice, classifier: str) -> Tensor:
    """The values a classifier acts on: of digits-av either the pictures or the sound."""
    if not isinstance(x, tuple):
        return model.values(x[part])
    pictures, waves = model.values(tuple(tensor[part] for tensor in x))
    return waves if classifier == "digits-audio" else pictures


def meant(asked: str, classes: list[str]) -> str:
    """The classifier's name for a model's class: of "7 jackson" it knows the digit only."""
    name = asked if asked in classes else asked.split()[0]
    if name not in classes:
        raise ValueError(f"the classifier knows no class {asked!r}; it was trained on other data")
    return name


def judge_motion(samples: Samples) -> list[Finding]:
    modality, data = samples.model.recipe.modality, samples.data
    made = measure_motion(samples.x, modality, samples.model.facts["data"])
    real = None if data is None else measure_motion(data.parts[0], modality, data.facts)

    def both(number: Callable[[MotionMeasures], Tensor]) -> tuple[float, float | None]:
        return float(number(made)), None if real is None else float(number(real))

    stretch = both(lambda m: m.stretch.mean())
    findings = [
        Finding(
            "stretch of a bone, mean of |length − its mean in the clip| / that mean",
            *stretch,
            f"≤ {STRETCH}",
            stretch[0] <= STRETCH,
        ),
        Finding("the same of the bone that stretches most", *both(lambda m: m.stretch.max())),
        Finding("height of a clip's lowest joint, mean, m", *both(lambda m: m.lowest.mean())),
    ]
    speed = both(lambda m: m.speed.mean())
    if real is None:
        return [*findings, Finding("speed of a joint, mean, m/s", *speed)]
    low, high = real.lowest.quantile(torch.tensor([0.05, 0.95]).to(real.lowest)).tolist()
    low, high = low - MARGIN, high + MARGIN
    inside = both(lambda m: ((low <= m.lowest) & (m.lowest <= high)).float().mean())
    usual = real.lengths.mean(0)
    return [
        *findings,
        Finding(
            f"clips whose lowest joint is from {low:.2f} to {high:.2f} m high",
            *inside,
            f"≥ {RECOGNISED} of real",
            inside[0] >= RECOGNISED * (inside[1] or 0),
        ),
        Finding(
            "a bone's length off its mean in the data, mean, relative",
            *both(lambda m: ((m.lengths - usual).abs() / usual).mean()),
        ),
        Finding(
            "speed of a joint, mean, m/s",
            *speed,
            "half to twice real",
            0.5 <= speed[0] / (speed[1] or 1) <= 2,
        ),
    ]


@dataclass(frozen=True)
class MotionMeasures:
    stretch: Tensor  # (bones,) mean over clips and frames of |length − clip mean| / clip mean
    lengths: Tensor  # (clips, bones) mean over frames, metres
    lowest: Tensor  # (clips,) height of the lowest joint in any frame, metres
    speed: Tensor  # (clips,) mean over joints and frames, metres a second


def measure_motion(x: Tensor, modality: Modality, facts: dict[str, Any]) -> MotionMeasures:
    """Bones are measured as the network said them: modality.values() makes them rigid."""
    features = x.float() * column(facts["std"], x) + column(facts["mean"], x)
    bones = features[:, 3:].unflatten(1, (-1, 3)).norm(dim=2)  # (clips, bones, frames)
    mean = bones.mean(2, keepdim=True)
    joints = modality.values(x, facts)
    return MotionMeasures(
        stretch=((bones - mean).abs() / mean).mean((0, 2)),
        lengths=mean[..., 0],
        lowest=joints[..., 1].amin((1, 2)),
        speed=joints.diff(dim=1).norm(dim=-1).mean((1, 2)) * facts["fps"],
    )


def judge_objects(samples: Samples) -> list[Finding]:
    model, data = samples.model, samples.data
    made = measure_meshes(model.decode(samples.x), areas(model.values(samples.x)))
    real: tuple[Any, ...] = (None, None, None)
    if data is not None:
        pick = torch.tensor(spread(len(samples.labels), len(data.labels)))
        (x,), _ = model.recipe.modality.batch(data, pick)
        modality = model.recipe.modality
        real = measure_meshes(
            modality.decode(x, data.facts, None), areas(modality.values(x, data.facts))
        )
    whole = "meshes that are watertight and one component"
    return [
        Finding(whole, made[0], real[0], f"≥ {WHOLE}", made[0] >= WHOLE),
        Finding("meshes that are watertight", made[1], real[1]),
        Finding("area that decode() keeps, the largest piece's, mean share", made[2], real[2]),
    ]


def areas(fields: Tensor) -> list[float]:
    """Of the whole surfaces, all their pieces together."""
    return [surface_of(field).area for field in fields.cpu().numpy()]


def measure_meshes(meshes: Sequence[Any], surfaces: Sequence[float]) -> tuple[float, float, float]:
    """(share that is watertight and one component, that is watertight, mean share of the whole
    surface that the mesh is); an empty mesh is none of it.
    """
    whole = watertight = kept = 0.0
    for mesh, surface in zip(meshes, surfaces):
        watertight += mesh.is_watertight
        whole += mesh.is_watertight and mesh.body_count == 1
        kept += mesh.area / surface if mesh.area else 0.0
    return whole / len(meshes), watertight / len(meshes), kept / len(meshes)


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
    parser.add_argument("--steps", type=int, help="the model's own unless given")
    parser.add_argument("--data", type=Path, help="folder of the real data, to compare with")
    parser.add_argument("--folder", type=Path, help="of the models' weights")
    parser.add_argument("--classifiers", type=Path, help="folder of the classifiers' weights")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="a Markdown file")
    args = parser.parse_args(arguments)
    findings = {}
    for name in args.names:
        recipe = RECIPES[name]
        known = name in ("motion", "objects")  # the classifiers know their own held-out rate
        data = recipe.modality.read(args.data / recipe.data) if args.data and known else None
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
