"""What a cell keeps to be looked at: samples, and the error along the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoshrink.outputs import flatten
from geoshrink.sampling import sample

from .methods.base import Case, Method, Outcome
from .store import put

TRACED = 16  # samples over which a trace is the mean
DRAWN_WITH = ("rate", "fps", "parents", "joint_names")  # facts of the data that drawing needs


@dataclass(frozen=True)
class Watched(Case):
    """A case that shows every (x, σ) at which the model is asked."""

    watch: Callable[[Any, Any], None] = field(default=lambda x, sigma: None, repr=False)

    def velocity(self) -> Callable[[Any, Any], Any]:
        inner = super().velocity()

        def velocity(x: Any, sigma: Any) -> Any:
            self.watch(x, sigma)
            return inner(x, sigma)

        return velocity


def watched(case: Case, watch: Callable[[Any, Any], None]) -> Watched:
    return Watched(**{f.name: getattr(case, f.name) for f in fields(case)}, watch=watch)


class Trace:
    """The states x_n of the full run, to which those of the methods are compared."""

    def __init__(self, case: Case):
        self.case = case
        self.states: dict[tuple[float, ...], Tensor] = {}

        def watch(x: Any, sigma: Any) -> None:
            self.states[level(sigma)] = rows(x)

        self.end = rows(sample(watched(case, watch).velocity(), case.noise, case.grid()))

    def run(self, method: Method, budget: int) -> tuple[Outcome, list[float | None]]:
        """The outcome, and for every stage and the end the mean of ‖x_n − x_n^full‖ / ‖x_n^full‖.

        None at stages where the model was not asked. A method on another grid has an error where
        its σ is one of the full grid's; where it asks twice at one σ, the later state counts.
        """
        errors: dict[tuple[float, ...], float] = {}

        def watch(x: Any, sigma: Any) -> None:
            full = self.states.get(level(sigma))
            if full is not None:
                errors[level(sigma)] = relative(rows(x), full)

        outcome = method.run(watched(self.case, watch), budget)
        end = relative(rows(outcome.x), self.end)
        return outcome, [*map(errors.get, self.states), end]


def level(sigma: Any) -> tuple[float, ...]:
    """σ, or one for each part, up to rounding."""
    parts = sigma if isinstance(sigma, (tuple, list)) else [sigma]
    return tuple(round(float(part), 9) for part in parts)


def rows(x: Any) -> Tensor:
    """The first samples of x, a row each."""
    return torch.cat([part[:TRACED].float().flatten(1) for part in flatten(x)[0]], 1).clone()


def relative(x: Tensor, full: Tensor) -> float:
    return round(float(((x - full).norm(dim=1) / full.norm(dim=1)).mean()), 7)


def put_tensors(path: Path, tensors: Mapping[str, Tensor], about: str = "") -> None:
    """Tensors and a text in a file, with a checksum of both."""
    from safetensors.torch import save

    kept = dict(tensors)
    facts = {"sha256": checksum(kept, about)}
    put(path, save(kept, facts | {"about": about} if about else facts))


def tensors_in(path: Path) -> tuple[dict[str, Tensor], str] | None:
    """What put_tensors wrote; None where it is missing or damaged.

    Files from before there was a checksum are taken as they are.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
            facts = file.metadata() or {}
    except (OSError, SafetensorError, ValueError):
        return None
    about = facts.get("about", "")
    if "sha256" in facts and facts["sha256"] != checksum(tensors, about):
        return None
    return tensors, about


def checksum(tensors: dict[str, Tensor], about: str) -> str:
    from safetensors.torch import save

    return hashlib.sha256(save(tensors) + about.encode()).hexdigest()


def write_samples(path: Path, case: Case, values: Sequence[Tensor], count: int) -> None:
    """The first samples in half precision, with what is needed to draw them without the model."""
    known = case.model.facts.get("data", {})
    about = dict(
        labels=[case.model.classes[int(i)] for i in case.model.labels(case.labels[:count])],
        lengths=case.lengths and list(case.lengths[:count]),
        facts={key: known[key] for key in DRAWN_WITH if key in known},
    )
    tensors = {str(i): part[:count].half().cpu().contiguous() for i, part in enumerate(values)}
    put_tensors(path, tensors, json.dumps(about, ensure_ascii=False))


@dataclass(frozen=True)
class Samples:
    """One tensor for each part of a sample; labels, lengths, and facts of the data."""

    values: list[Tensor]
    labels: list[str]
    lengths: list[int] | None
    facts: dict[str, Any]


def read_samples(path: Path) -> Samples | None:
    """None where they were not kept, or the file is damaged."""
    found = tensors_in(path)
    if found is None:
        return None
    tensors, text = found
    try:
        about = json.loads(text)
        values = [tensors[str(i)].float() for i in range(len(tensors))]
        return Samples(values, about["labels"], about["lengths"], about["facts"])
    except (KeyError, TypeError, ValueError):
        return None
