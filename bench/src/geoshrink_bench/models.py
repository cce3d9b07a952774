"""Every model that a suite or a benchmark can name: those of the zoo, and those of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import foreign, zoo
from .zoo.recipes import RECIPES as ZOO


def recipes() -> dict[str, Any]:
    """By name; those of the zoo first."""
    return {**ZOO, **foreign.RECIPES}


def load(name: str, device: Any = "cpu", folder: str | Path | None = None) -> Any:
    """A model by its name; `folder` is that of the zoo's weights."""
    if name in foreign.RECIPES:
        return foreign.load(name, device)
    return zoo.load(name, device, folder)
