"""What a metric is: a name, a unit, a direction, a version, the weights it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from geoshrink.compare.kinds import Skipped as Skipped


@dataclass(frozen=True)
class Metric:
    """of(values, reference, lengths): how near values are to a reference, one number per sample.

    version     changes when the definition does, so that numbers of two definitions never mix
    needs       the weights it needs, by name (metrics/weights.py), or nothing
    """

    name: str
    unit: str
    higher: bool  # is better
    of: Callable[[Any, Any, Sequence[int] | None], Tensor]
    version: str = "1"
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class SetMetric:
    """of(values, reference): how far a set of samples is from a set of references, one number."""

    name: str
    unit: str
    higher: bool
    of: Callable[[Any, Any], float]
    version: str = "1"
    needs: tuple[str, ...] = ()


def library(name: str, extra: str = "metrics") -> Any:
    """A module of a library that only an extra of geoshrink-bench installs."""
    try:
        return import_module(name)
    except ImportError as error:
        missing = f"{error.name or name} is missing: pip install 'geoshrink-bench[{extra}]'"
        raise ImportError(missing) from None


@lru_cache(maxsize=2)
def pretrained(folder: str, device: torch.device, model: str, *others: str) -> tuple[Any, ...]:
    """(model, others …), classes of transformers by name, out of a local folder."""
    transformers = library("transformers")
    loaded: Any
    loaded, *rest = (
        getattr(transformers, kind).from_pretrained(folder, local_files_only=True)
        for kind in (model, *others)
    )
    return loaded.float().to(device).eval(), *rest


def is_current(result: dict[str, Any], metric: str, version: str) -> bool:
    """Whether a cell's scores by a metric are by its definition of now.

    The first cells do not name the version: every metric was at its first.

    >>> is_current({}, "IoU", "1: exact"), is_current({}, "IoU", "2: exact")
    (True, False)
    """
    made = result.get("versions", {}).get(metric)
    return version.partition(":")[0] == "1" if made is None else made == version
