"""Shelf: the models that can be chosen, each loaded when it is first asked for.

Those of the command line, the pipelines in its folders, and the demo models of installed packages.
Nothing else can be named, by a control or by a link.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from ..compare.inputs import Settings
from .flows import Flow
from .model import Model
from .pipelines import Pipeline

GROUP, FIRST = "geoshrink.models", "fruit"


class Shelf:
    """
    given     folders that diffusers saved, builders, or names of demo models
    folders   every pipeline that was saved in a folder of these
    settings  device, dtype, size … of the pipelines
    """

    def __init__(self, given: Sequence[str], folders: Sequence[Path], settings: Settings):
        self.settings = settings
        self.locks: dict[str, threading.Lock] = {}
        self.makers: dict[str, Callable[[], Model]] = {}
        self.models: dict[str, Model] = {}
        known = {entry.name: entry for entry in entry_points(group=GROUP)}
        for word in given:
            if word in known and not Path(word).is_dir():
                self.add(word, demo(known[word], settings.device))
            elif Path(word).is_dir() or ":" in word:
                self.add_pipeline(word)
            else:
                names = ", ".join(known) or "none: pip install geoshrink-bench"
                raise ValueError(
                    f"no folder {word!r} here, no builder package.module:function, and no model of "
                    f"that name; the models are {names}"
                )
        for folder in folders:
            if not folder.is_dir():
                raise ValueError(f"--folder {str(folder)!r} is not a folder")
            for file in sorted(folder.glob("*/model_index.json")):
                self.add_pipeline(str(file.parent))
        for name in sorted(known, key=lambda name: (name != FIRST, name)):
            if name not in self.makers:
                self.add(name, demo(known[name], settings.device))
        if not self.makers:
            raise ValueError(
                "there is no model: name a folder that diffusers saved, or pip install "
                "geoshrink-bench for the demo models"
            )

    def add_pipeline(self, source: str) -> None:
        name = Path(source).resolve().name if Path(source).is_dir() else source
        settings = replace(self.settings, model=source)
        self.add(name, lambda: Pipeline(name, settings))

    def add(self, name: str, make: Callable[[], Model]) -> None:
        if name in self.makers:
            raise ValueError(f"two models are called {name!r}: rename a folder")
        self.makers[name], self.locks[name] = make, threading.Lock()

    @property
    def names(self) -> list[str]:
        return list(self.makers)

    def get(self, name: str) -> Model:
        """Loaded, which the first time takes a while."""
        if name not in self.makers:
            raise ValueError(f"no model {name!r} here; there are {', '.join(self.makers)}")
        with self.locks[name]:
            if name not in self.models:
                self.models[name] = self.makers[name]()
            return self.models[name]


def demo(entry: EntryPoint, device: str | None) -> Callable[[], Model]:
    def make() -> Model:
        planned: Any = entry.load()(entry.name, device or "cpu")
        return Flow(entry.name, planned)

    return make
