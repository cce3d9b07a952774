"""What real data look like to the zoo's classifiers: mean and covariance of their features.

    python -m geoshrink_bench.zoo.real fruit --data fruits64.npz --out zoo

With these a set of samples is held against real data where the data themselves are not.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ..metrics.frechet import Moments, moments
from .classifier import TASKS, Classifier, Task, load_classifier, values_of
from .files import maker, read, save
from .modalities import Data


@torch.no_grad()
def moments_of(judge: Classifier, task: Task, data: Data) -> Moments:
    """Of all the data, through what a model's samples go through."""
    every = torch.arange(len(data.labels), device=data.labels.device)
    return moments(torch.cat([judge.features(values_of(task, data, p)) for p in every.split(64)]))


def save_moments(found: Moments, name: str, judge: Classifier, folder: Path) -> None:
    parts = {"mean": found.mean, "factor": found.factor}
    facts = dict(name=f"{name}-real", count=found.count, classifier=judge.facts["sha256"])
    save(parts, facts, folder, torch.float32)


def load_moments(name: str, judge: Classifier, folder: str | Path | None = None) -> Moments:
    """Those of the data that the classifier judges, made with these weights of it."""
    parts, facts, place = read(f"{name}-real", folder)
    if facts["classifier"] != judge.facts["sha256"]:
        raise ValueError(
            f"{name}-real in {place} was made with other weights of the {name} classifier: make it "
            f"anew with python -m geoshrink_bench.zoo.real {name} --data …"
        )
    return Moments(parts["mean"].double(), parts["factor"].double(), facts["count"])


def main() -> None:
    parser = maker("Features of real data, for Fréchet distances.", TASKS)
    parser.add_argument("--folder", type=Path, help="of the classifier; default: the zoo")
    args = parser.parse_args()
    task, judge = TASKS[args.name], load_classifier(args.name, args.folder, args.device)
    found = moments_of(judge, task, task.modality.read(args.data).to(args.device))
    save_moments(found, args.name, judge, args.out)
    print(f"{found.count} examples: {args.out / args.name}-real.safetensors")


if __name__ == "__main__":
    main()
