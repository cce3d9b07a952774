"""What a foreign model is: where it comes from, its licence, its noise levels, how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .modality import Numbers
from .schedules import Linear, Schedule

PREDICTIONS = ("flow", "epsilon", "sample", "v")
LICENCES = ("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "CC0-1.0", "CC-BY-4.0")


@dataclass(frozen=True)
class Package:
    """A release on the Python package index: pip brings it into a folder of its own.

    needs   what its code imports besides torch
    """

    requirement: str  # name==version
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"pip: {self.requirement}"


@dataclass(frozen=True)
class Repository:
    """A commit of a public repository: its files are placed by hand."""

    name: str  # owner/name on GitHub
    commit: str

    def __str__(self) -> str:
        return f"GitHub: {self.name} at {self.commit[:7]}"


class Network(nn.Module):
    """What a recipe builds: forward(x, σ, label) is the model's own prediction.

    label has one number for each sample; the number of classes stands for no class at all.

    stack   its blocks, where it is a list of such that each take one tensor to another of its shape
    """

    stack: Sequence[nn.Module] = ()

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        raise NotImplementedError

    def entry(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        """What its first layer that knows the time makes of x: what TeaCache looks at."""
        raise ValueError(f"a {type(self).__name__} does not say what its first layer sees")

    def decode(self, x: Tensor) -> Tensor:
        """Samples in natural units: pixels in [0, 1], log power, …"""
        return x


@dataclass(frozen=True)
class Recipe:
    """One trained model of somebody else.

    files       its files below the folder of the model, each with its sha256
    build       makes the network from the folder in which the files lie
    schedule    σ of a share u of the run, 1 (noise) to 0 (data), and the model's time of σ
    prediction  what the network says: "flow", "epsilon", "sample" or "v"
    alphas      α of x = α·x₀ + σ·ε: "vp" or "flow"
    guided      whether it knows a class that stands for none
    within      the σ between which guidance acts, for models that are sampled so
    judged_at   steps, guidance and shift of its benchmark
    looks       (least, most) of statistics of decoded samples that tell them from noise
                (model.statistics)
    """

    name: str
    about: str
    source: Package | Repository
    licence: str
    files: Mapping[str, str]
    build: Callable[[Path], Network]
    shape: tuple[int, ...]
    prediction: str
    alphas: str
    looks: Mapping[str, tuple[float, float]]
    schedule: Schedule = field(default_factory=Linear)
    classes: tuple[str, ...] = ("any",)
    guided: bool = False
    within: tuple[float, float] | None = None
    judged_at: Mapping[str, Any] = field(
        default_factory=lambda: dict(steps=50, guidance=1.0, shift=1.0)
    )

    @property
    def modality(self) -> Numbers:
        return Numbers()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """As a recipe of the zoo says it, whose samples can have parts."""
        return [self.shape]

    @property
    def joint(self) -> bool:
        return False

    @property
    def classifiers(self) -> tuple[str, ...]:
        return ()

    def __post_init__(self) -> None:
        if self.prediction not in PREDICTIONS:
            raise ValueError(f"{self.name}: no prediction {self.prediction!r} in {PREDICTIONS}")
        if self.alphas not in ("vp", "flow"):
            raise ValueError(f"{self.name}: alphas must be 'vp' or 'flow', got {self.alphas!r}")
        if self.licence not in LICENCES:
            known = ", ".join(LICENCES)
            raise ValueError(f"{self.name}: {self.licence!r} is none of the licences {known}")
        if not self.files or not all(len(digest) == 64 for digest in self.files.values()):
            raise ValueError(f"{self.name}: every file needs its sha256, got {dict(self.files)!r}")
        if not self.guided and self.judged_at["guidance"] != 1:
            raise ValueError(f"{self.name} knows no guidance, yet is judged at another than 1")


#: Every foreign model, by its name.
RECIPES: dict[str, Recipe] = {}


def register(recipe: Recipe) -> Recipe:
    """Adds a model, which benchmarks and load() then know by its name."""
    RECIPES[recipe.name] = recipe
    return recipe


def recipe_of(name: str) -> Recipe:
    if name not in RECIPES:
        raise ValueError(f"no foreign model {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
