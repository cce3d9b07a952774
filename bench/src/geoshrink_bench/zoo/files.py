"""Weights and what is known of them: NAME.safetensors beside NAME.json, which holds its hash."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from geoshrink.files import write_whole

from .fetching import fetch, files_of

if TYPE_CHECKING:
    from importlib.abc import Traversable


def maker(description: str, names: Iterable[str]) -> argparse.ArgumentParser:
    """The arguments of a command that makes such files from data: NAME, --data, --out, --device."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("name", choices=sorted(names))
    parser.add_argument("--data", type=Path, required=True, help="the .npz that is learnt from")
    parser.add_argument("--out", type=Path, default=Path("zoo-out"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def find(name: str, folder: str | Path | None) -> Traversable:
    """Where a model's weights lie: in the folder given, else in the package, then in the folder of
    GEOSHRINK_ZOO, else in the clone's zoo, the cache, or at the zoo's URL, from where they come
    into the cache.
    """
    named = os.environ.get("GEOSHRINK_ZOO") if folder is None else Path(folder)
    places: list[Traversable] = [Path(named)] if named else list(clone())
    if folder is None:
        places.insert(0, files("geoshrink_bench.zoo") / "weights")
    for place in places:
        if (place / f"{name}.safetensors").is_file():
            return place
    if not named and files_of(name):
        return fetch(name)
    looked = " and ".join(str(place) for place in places)
    raise FileNotFoundError(
        f"the weights of {name} are not in {looked}: only fruit comes with the package, the others "
        "are in the zoo/ folder of its repository; clone it, and give zoo.load(name, folder=…)"
    )


def clone() -> Iterator[Path]:
    """The repository's zoo folder, where this package runs from a clone."""
    root = Path(__file__).parents[4]
    if (root / "bench" / "pyproject.toml").is_file():
        yield root / "zoo"


def read(
    name: str, folder: str | Path | None = None
) -> tuple[dict[str, Tensor], dict[str, Any], Traversable]:
    """(tensors, facts, the folder they were in), once the tensors have the hash of the facts."""
    place = find(name, folder)
    facts = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
    blob = (place / f"{name}.safetensors").read_bytes()
    if hashlib.sha256(blob).hexdigest() != facts["sha256"]:
        raise ValueError(
            f"the weights of {name} in {place} are damaged (sha256 differs); get them anew"
        )
    return load_tensors(blob), facts, place


def save(
    tensors: dict[str, Tensor],
    facts: dict[str, Any],
    folder: Path,
    dtype: torch.dtype = torch.float16,
) -> None:
    """Writes both files of facts["name"]."""
    blob = save_tensors({k: v.to(dtype).contiguous().cpu() for k, v in tensors.items()})
    facts = dict(facts, sha256=hashlib.sha256(blob).hexdigest())
    write_whole(folder / f"{facts['name']}.safetensors", blob)
    write_whole(folder / f"{facts['name']}.json", json.dumps(facts, indent=1) + "\n")
