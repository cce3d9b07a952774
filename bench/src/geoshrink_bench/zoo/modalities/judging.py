"""What is found out about samples, and the usual way to: by classifiers of the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from ..classifier import Classifier
    from ..model import Model
    from .base import Data

RECOGNISED = 0.85  # of the rate on real data, which a model must reach


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
    """x for these labels; real data, where given; the classifier of each part, by its name."""

    model: Model
    labels: list[int]
    x: Any
    data: Data | None = None
    classifiers: Mapping[str, Classifier] = field(default_factory=dict)


def spread(count: int, among: int) -> list[int]:
    """Numbers below `among`, evenly apart.

    >>> spread(4, 8)
    [0, 2, 4, 6]
    """
    return [i * among // count for i in range(count)]


def recognition(samples: Samples) -> list[Finding]:
    """The rate at which the classifier of each part names the class that was asked for."""
    model, findings = samples.model, []
    asked = [model.classes[i] for i in samples.labels]
    for (name, classifier), values in zip(samples.classifiers.items(), model.parts(samples.x)):
        right = recognised(classifier, values, asked)
        rate, real = sum(right) / len(right), classifier.held_out_accuracy
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


def recognised(classifier: Classifier, values: Tensor, asked: Sequence[str]) -> list[bool]:
    """Which of the values the classifier takes for the class asked for."""
    said = [c for part in values.split(64) for c in classifier.predict(part)]
    return [a == meant(b, classifier.classes) for a, b in zip(said, asked)]


def meant(asked: str, classes: list[str]) -> str:
    """The classifier's name for a model's class: of "7 jackson" it knows the digit only."""
    name = asked if asked in classes else asked.split()[0]
    if name not in classes:
        raise ValueError(f"the classifier knows no class {asked!r}; it was trained on other data")
    return name
