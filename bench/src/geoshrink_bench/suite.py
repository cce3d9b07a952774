"""A suite: which cases, methods and budgets are run. A YAML file, a dictionary, or a name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from .cases.checkpoint_suite import CheckpointSuite
from .cases.zoo_suite import ZooSuite
from .schema import read_yaml

Suite = ZooSuite | CheckpointSuite


def suites(kind: str = "") -> dict[str, Path]:
    """The files of the suites that come with the package, by name.

    kind    "zoo" or "paper": only those
    """
    places = {"zoo": "suites", "paper": "paper/suites"}
    folders = [
        Path(str(files("geoshrink_bench") / p)) for k, p in places.items() if kind in (k, "")
    ]
    return {f.stem: f for folder in folders for f in sorted(folder.glob("*.yaml"))}


def source_of(source: Any) -> dict[str, Any]:
    """A suite as it is written."""
    if isinstance(source, Mapping):
        return dict(source)
    known = suites()
    path = known.get(str(source), Path(source))
    if not path.is_file():
        names = ", ".join(known)
        raise FileNotFoundError(f"no suite {str(source)!r}: give a YAML file, or one of {names}")
    found = read_yaml(path)
    return {"name": path.stem, **found} if "models" in found else found


def read(source: Any, change: Mapping[str, Any] | None = None, name: str = "") -> Any:
    """A ZooSuite or a CheckpointSuite, with some keys changed; mistakes are quoted.

    change    new values, such as {"seeds": 1, "prompts": {"count": 8}}
    name      what errors call a dictionary
    """
    given = source_of(source)
    where = (name or "the suite") if isinstance(source, Mapping) else str(source)
    for key, value in (change or {}).items():
        inner = isinstance(value, Mapping) and isinstance(given.get(key), Mapping)
        given[key] = {**given[key], **value} if inner else value
    kind = CheckpointSuite if {"host", "rows", "title"} & set(given) else ZooSuite
    return kind.read(where, given)
