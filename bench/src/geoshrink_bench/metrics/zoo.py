"""Which metrics a model of the zoo is measured by: its modality's, and those by its classifiers."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import recipes
from ..zoo.recipes import recipe_of
from ..zoo.recognition import recognised
from .measured import Measured
from .measured import Scores as Scores
from .video import PSNR as PSNR
from .video import SSIM as SSIM

#: Metrics that others have added, by the name of the model.
ADDED: dict[str, list[Measured]] = {}


def register_metric(model: str, measured: Measured) -> None:
    """Adds a metric to those of a model of the zoo; suites can name it, and "all" has it."""
    recipe_of(model)
    ADDED.setdefault(model, []).append(measured)


def metrics_of(model: str, chosen: str | Sequence[str] = "plain") -> list[Measured]:
    """ "plain" (the first of each part), "all", or those of these names that the model has."""
    recipe = recipes().get(model) or recipe_of(model)
    every = recipe.modality.metrics()
    for part, name in enumerate(recipe.classifiers):
        every += recognised(name, part)
    every += ADDED.get(model, [])
    if chosen == "all":
        return every
    if chosen == "plain":
        return [next(m for m in every if m.part == part) for part in range(len(recipe.shapes))]
    return [measured for measured in every if measured.name in chosen]


def all_metrics() -> dict[str, Measured]:
    """Of all models, by name."""
    found: dict[str, Measured] = {}
    for model in recipes():
        for measured in metrics_of(model, "all"):
            found.setdefault(measured.name, measured)
    return found


def names() -> list[str]:
    return list(all_metrics())
