"""What the zoo's classifiers say of samples, as metrics: how often they recognise the class asked
for, and how far the features of the set are off, from the reference and from real data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..metrics.base import Metric, SetMetric, Skipped
from ..metrics.frechet import Moments, distance, frechet_distance, moments
from ..metrics.measured import Measured
from .classifier import TASKS, Classifier, load_classifier
from .modalities import judging
from .real import load_moments


def recognised(name: str, part: int = 0) -> list[Measured]:
    """The three metrics by a classifier, of one part of the samples."""
    sets = [Measured(metric(name), part) for metric in (frechet, frechet_to_real)]
    return [Measured(accuracy(name), part, of_classes=True), *sets]


def classifier(name: str, values: Tensor, folder: str | Path | None = None) -> Classifier:
    """The zoo's classifier of that name (zoo/classifier.py), if it knows values like these."""
    if name not in TASKS:
        raise ValueError(f"the zoo has the classifiers {', '.join(TASKS)}; got {name!r}")
    try:
        found = load_classifier(name, folder, values.device)
    except FileNotFoundError as error:
        raise Skipped(f"needs the zoo's {name} classifier: {error}") from error
    channels, axes = found.facts["channels"], TASKS[name].modality.axes
    if values.ndim != axes or (values.ndim > 2 and values.shape[1] != channels):
        raise ValueError(
            f"the {name} classifier looks at values of {axes} axes and {channels} channels, "
            f"got {tuple(values.shape)}"
        )
    return found


@torch.no_grad()
def classifier_features(name: str, values: Tensor, folder: str | Path | None = None) -> Tensor:
    """The features (n, d) the zoo's classifier decides by, of values as model.values(x) gives."""
    judge = classifier(name, values, folder)
    return torch.cat([judge.features(part) for part in values.split(64)])


def accuracy(name: str) -> Metric:
    """1 where the zoo's classifier names the class that was asked for, else 0; one per sample.

    of(values, classes, None): names of the model's classes, as "Apple 10" or "7 jackson"
    """

    def of(values: Tensor, classes: Sequence[str], lengths: object) -> Tensor:
        if len(classes) != len(values):
            raise ValueError(f"got {len(values)} samples and the classes of {len(classes)}")
        right = judging.recognised(classifier(name, values), values, classes)
        return torch.tensor(right, dtype=torch.float64)

    return Metric(f"accuracy, {name}", "", True, of)


def frechet(name: str) -> SetMetric:
    """The Fréchet distance in the features of the zoo's classifier."""

    def of(values: Tensor, reference: Tensor) -> float:
        return frechet_distance(*(classifier_features(name, v) for v in (values, reference)))

    return SetMetric(f"Fréchet, {name}", "", False, of)


def frechet_to_real(name: str) -> SetMetric:
    """The same distance to all the real data that the zoo's classifier was made from.

    What it is compared with otherwise (the full run, say) plays no part.
    """

    def of(values: Tensor, reference: object) -> float:
        judge = classifier(name, values)
        try:
            real = load_moments(name, judge)
        except FileNotFoundError as error:
            raise Skipped(f"needs the moments of real data of {name}: {error}") from error
        found = moments(classifier_features(name, values))
        return distance(Moments(found.mean.cpu(), found.factor.cpu(), found.count), real)

    return SetMetric(f"Fréchet to real, {name}", "", False, of)
