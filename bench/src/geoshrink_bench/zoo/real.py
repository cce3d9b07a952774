"""What real data look like to the zoo's classifiers: mean and covariance of their features.

    python -m geoshrink_bench.zoo.real fruit --data fruits64.npz --out zoo

With these a set of samples is held against real data where the data themselves are not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .classifier import TASKS, Classifier, Task, load_classifier, values_of
from .modalities import Data
from .model import find


@dataclass(frozen=True)
class Moments:
    """Of features (count, d) of real examples: mean (d), and factor A with AᵀA the covariance."""

    mean: Tensor
    factor: Tensor
    count: int


@torch.no_grad()
def moments(features: Tensor) -> Moments:
    """In float64; the covariance divides by n − 1."""
    if features.ndim != 2 or len(features) < 2 or not features.isfinite().all():
        raise ValueError(f"moments need two finite features (n, d), got {tuple(features.shape)}")
    x = features.double()
    spread = (x - x.mean(0)) / (len(x) - 1) ** 0.5
    rows = torch.linalg.qr(spread, mode="r").R if len(spread) > spread.shape[1] else spread
    return Moments(x.mean(0), rows, len(x))


@torch.no_grad()
def moments_of(judge: Classifier, task: Task, data: Data) -> Moments:
    """Of all the data, through what a model's samples go through."""
    every = torch.arange(len(data.labels), device=data.labels.device)
    return moments(torch.cat([judge.features(values_of(task, data, p)) for p in every.split(64)]))


def save_moments(found: Moments, name: str, judge: Classifier, folder: Path) -> None:
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    parts = {"mean": found.mean, "factor": found.factor}
    blob = save({k: v.float().contiguous().cpu() for k, v in parts.items()})
    facts = dict(
        name=f"{name}-real",
        count=found.count,
        classifier=judge.facts["sha256"],
        sha256=hashlib.sha256(blob).hexdigest(),
    )
    (folder / f"{name}-real.safetensors").write_bytes(blob)
    (folder / f"{name}-real.json").write_text(json.dumps(facts, indent=1) + "\n")


def load_moments(name: str, judge: Classifier, folder: str | Path | None = None) -> Moments:
    """Those of the data that the classifier judges, made with these weights of it."""
    from safetensors.torch import load

    file = f"{name}-real"
    place = find(file, folder)
    facts = json.loads((place / f"{file}.json").read_text(encoding="utf-8"))
    blob = (place / f"{file}.safetensors").read_bytes()
    if hashlib.sha256(blob).hexdigest() != facts["sha256"]:
        raise ValueError(f"{file} in {place} is damaged (sha256 differs); get it anew")
    if facts["classifier"] != judge.facts["sha256"]:
        raise ValueError(
            f"{file} in {place} was made with other weights of the {name} classifier: make it anew "
            f"with python -m geoshrink_bench.zoo.real {name} --data …"
        )
    parts = load(blob)
    return Moments(parts["mean"].double(), parts["factor"].double(), facts["count"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Features of real data, for Fréchet distances.")
    parser.add_argument("name", choices=sorted(TASKS))
    parser.add_argument("--data", type=Path, required=True, help="the .npz its models learn from")
    parser.add_argument("--folder", type=Path, help="of the classifier; the zoo unless given")
    parser.add_argument("--out", type=Path, default=Path("zoo-out"))
    args = parser.parse_args()
    task, judge = TASKS[args.name], load_classifier(args.name, args.folder)
    found = moments_of(judge, task, task.modality.read(args.data))
    save_moments(found, args.name, judge, args.out)
    print(f"{found.count} examples: {args.out / args.name}-real.safetensors")


if __name__ == "__main__":
    main()
