"""The kinds of samples that compare can score and show: what a kind must have, and which there are.

Pictures are built in. Others come by the entry point group `geoshrink.kinds`: geoshrink-bench
brings sounds, films, meshes and motions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ..page import Column, Media

GROUP = "geoshrink.kinds"
#: Kinds that geoshrink-bench brings, named so that an error can say what to install.
ELSEWHERE = ("Films", "Meshes", "Motions", "Sounds")
Scores = list[list[float]]  # of each metric, of each sample


class Skipped(Exception):
    """Why a metric has no number for these data: shown as "skipped: reason", never counted."""


@runtime_checkable
class Made(Protocol):
    """Samples of one kind. For `geoshrink batch` a kind has file(i), too: (bytes, suffix).

    noun     what one sample is called
    title    what people do with it on the page
    metrics  the distances to the full run; the first decides who is ahead
    """

    @property
    def noun(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def metrics(self) -> tuple[Column, ...]: ...

    def __len__(self) -> int: ...

    def is_finite(self) -> bool: ...

    def score(self, reference: Any, skipped: set[str]) -> Scores:
        """One number for each metric and sample; `skipped` collects why some are missing."""
        ...

    def medium(self, i: int, alt: str, reference: Any) -> Media: ...


def measured(
    metric: Column, count: int, of: Callable[[], Tensor | Sequence[float]], skipped: set[str]
) -> list[float]:
    """The numbers of a metric, or NaN if it cannot be computed."""
    try:
        return [float(value) for value in of()]
    except (ImportError, Skipped, ValueError) as reason:
        skipped.add(f"{metric.name} skipped: {reason}.")
        return [math.nan] * count


KINDS: dict[str, Callable[..., Made]] = {}


def register_kind(name: str, kind: Callable[..., Made]) -> None:
    """Add a kind of samples: a class whose objects have what Made asks for."""
    KINDS[name] = kind


def all_kinds() -> list[str]:
    """The names of all kinds that are installed, each loaded: some bring styles and scripts."""
    for entry in entry_points(group=GROUP):
        kind_of(entry.name)
    return sorted(KINDS)


def kind_of(name: str) -> Callable[..., Made]:
    """The class of a kind."""
    if name not in KINDS:
        found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
        if not found:
            raise ImportError(f"{name} come with geoshrink-bench: pip install geoshrink-bench")
        register_kind(name, found[0].load())
    return KINDS[name]
