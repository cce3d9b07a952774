"""Modules that moved: the old names import the new modules, with a warning, for one release."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

HISTORY = ("kernels", "masks", "record", "reserve", "sharding", "slot")
KINDS = ("meshes", "motions", "sounds")
MOVED = {
    "geoshrink.theory": "geoshrink_bench.theory",
    "geoshrink.adapters": "geoshrink.hosts",
    "geoshrink.anchors": "geoshrink.meshes",
    "geoshrink.universal": "geoshrink.meshes.auto",
    "geoshrink.placement": "geoshrink.meshes.placement",
    "geoshrink.retention": "geoshrink.rules.retention",
    "geoshrink.refining": "geoshrink.history.refinement",
    "geoshrink.zoo": "geoshrink_bench.zoo",
    "geoshrink.bench": "geoshrink_bench",
    "geoshrink.demo": "geoshrink_bench.demo",
    "geoshrink.comparing": "geoshrink.compare.outcomes",
    "geoshrink.compare.made": "geoshrink.compare.kinds",
    "geoshrink.compare.finite": "geoshrink.compare.likeness",
    **{f"geoshrink.{name}": f"geoshrink.history.{name}" for name in HISTORY},
    **{f"geoshrink.compare.{name}": f"geoshrink_bench.kinds.{name}" for name in KINDS},
}


def new_name(old: str) -> str | None:
    """Where a module, or the package that holds it, has moved to."""
    parts = old.split(".")
    for count in range(len(parts), 1, -1):
        if place := MOVED.get(".".join(parts[:count])):
            return ".".join([place, *parts[count:]])
    return None


class Finder(MetaPathFinder, Loader):
    """Finds the old names. It goes first: the parts of a moved package must not be loaded twice."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        found = name.startswith("geoshrink.") and new_name(name)
        return ModuleSpec(name, self) if found else None

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, new_name(module.__name__)
        warnings.warn(f"{old} has moved: import {new}", DeprecationWarning, stacklevel=2)
        try:
            sys.modules[old] = import_module(str(new))
        except ModuleNotFoundError as error:
            if error.name != "geoshrink_bench":
                raise
            message = f"{old} has moved to {new}: pip install geoshrink-bench"
            raise ModuleNotFoundError(message, name=error.name) from None


def install() -> None:
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
