"""One model at one guidance, shift and length: what every method gets, and the two references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoshrink.outputs import flatten
from geoshrink.sampling import sample

from .keeping import Trace, put_tensors, tensors_in, write_samples
from .methods.base import Case
from .metrics import values_of
from .metrics.zoo import Scores, metrics_of
from .store import name_of
from .suite import Suite
from .zoo.model import Model, joined

REFERENCES = ("full", "converged")
FIRST_SEED, TRAINING_SEED, TRAINING_SAMPLES = 100, 9000, 16


class Setting:
    """One model at one guidance, shift and length: its case, and the references."""

    def __init__(
        self,
        spec: dict[str, Any],
        model: Model,
        folder: Path,
        suite: Suite,
        names: Sequence[str] = REFERENCES,
        damaged: Callable[[Path], Any] = lambda path: None,
    ):
        self.spec, self.model, self.folder, self.names = spec, model, folder, names
        self.damaged = damaged  # is told of a reference that is there and cannot be used
        self.converged, self.keep = suite.converged, suite.keep
        self.metrics = metrics_of(model.name, suite.metrics)

    @cached_property
    def case(self) -> Case:
        """All samples of all seeds in one batch; classes are spread over all there are."""
        samples, seeds = self.spec["samples"], self.spec["seeds"]
        count = samples * seeds
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
        labels = [i * len(self.model.classes) // count for i in order]
        noise = [self.model.noise(samples, seed=FIRST_SEED + s) for s in range(seeds)]
        return self.case_of(labels, joined(noise))

    @cached_property
    def training(self) -> list[Case]:
        """Other noise, and other classes where there are enough: to calibrate and tune on."""
        used = set(self.case.labels)
        spare = [i for i in range(len(self.model.classes)) if i not in used] or sorted(used)
        count = TRAINING_SAMPLES
        labels = [spare[i * len(spare) // count] for i in range(count)]
        return [self.case_of(labels, self.model.noise(count, seed=TRAINING_SEED))]

    def case_of(self, labels: list[Any], noise: Any) -> Case:
        spec = self.spec
        lengths = spec["lengths"] and [spec["lengths"][i % len(spec["lengths"])] for i in labels]
        interval = tuple(spec["interval"]) if spec["interval"] else None
        return Case(
            self.model,
            labels,
            noise,
            spec["guidance"],
            spec["steps"],
            spec["shift"],
            interval,
            lengths,
        )

    @cached_property
    def references(self) -> dict[str, list[Tensor]]:
        """The values of "full" and "converged", computed once and kept in a file each."""
        return {name: self.reference(name) for name in self.names}

    def reference(self, name: str) -> list[Tensor]:
        steps = None if name == "full" else self.converged
        key = name_of(reference_key(self.spec, self.model.facts["sha256"], steps))
        path = self.folder / f"{key}.reference.safetensors"
        found = tensors_in(path)
        if found is None:
            if path.is_file():
                self.damaged(path)
            x = sample(self.case.velocity(), self.case.noise, self.case.grid(steps))
            kept = {str(i): part.contiguous().cpu() for i, part in enumerate(flatten(x)[0])}
            put_tensors(path, kept)
        else:
            kept = found[0]
        parts = [kept[str(i)].to(self.model.device) for i in range(len(kept))]
        x = tuple(parts) if self.model.recipe.joint else parts[0]
        values = values_of(self.model, x, self.case.lengths)
        if self.keep:
            write_samples(self.folder / f"{key}.samples.safetensors", self.case, values, self.keep)
        return values

    @cached_property
    def trace(self) -> Trace:
        return Trace(self.case)

    def score(self, values: Sequence[Tensor]) -> dict[str, dict[str, Scores]]:
        """metric → reference → one number per sample."""
        classes = [self.model.classes[int(label)] for label in self.case.labels]
        more = self.case.lengths, classes
        return {
            metric.name: {
                name: metric.of(values, parts, *more) for name, parts in self.references.items()
            }
            for metric in self.metrics
        }


def reference_key(setting: dict[str, Any], weights: str, steps: int | None) -> dict[str, Any]:
    """What a reference is: the full run (no steps of its own) or the converged flow."""
    return dict(setting, weights=weights, reference=steps)
