"""The kinds of samples that compare can score and show, by name.

Pictures are built in. Others come by the entry point group `geoshrink.kinds`: geoshrink-bench
brings sounds, films, meshes and motions.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from .made import Made
from .pictures import Pictures

GROUP = "geoshrink.kinds"
#: Kinds that geoshrink-bench brings, named so that an error can say what to install.
ELSEWHERE = ("Films", "Meshes", "Motions", "Sounds")
KINDS: dict[str, Callable[..., Made]] = {"Pictures": Pictures}


def register_kind(name: str, kind: Callable[..., Made]) -> None:
    """Add a kind of samples: a class whose objects have what Made asks for."""
    KINDS[name] = kind


def kind_of(name: str) -> Callable[..., Made]:
    """The class of a kind."""
    if name not in KINDS:
        found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
        if not found:
            raise ImportError(f"{name} come with geoshrink-bench: pip install geoshrink-bench")
        register_kind(name, found[0].load())
    return KINDS[name]
