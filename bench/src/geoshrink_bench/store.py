"""Cells and tensors on disk: named by what they are, whole or not there at all.

A cell is a JSON file, named by the hash of its specification. It is written to a file beside it
that takes its place in one step: a run that is killed leaves whole cells only. Each file holds a
checksum of itself, so that a damaged one is noticed and made anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from geoshrink.files import digest as digest
from geoshrink.files import write_whole as put


def name_of(spec: Any) -> str:
    """The hash of a specification: the same for the same content, in whatever order.

    >>> name_of({"a": 1, "b": [2]}) == name_of({"b": [2], "a": 1}), len(name_of({}))
    (True, 20)
    """
    return digest(spec)[:20]


class Store:
    """A folder of cells."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def path(self, spec: Any, kind: str = "cell") -> Path:
        return self.folder / f"{name_of(spec)}.{kind}.json"

    def samples(self, spec: Any) -> Path:
        """Where samples of a cell, or of the reference with this name, are kept together."""
        name = spec if isinstance(spec, str) else name_of(spec)
        return self.folder / f"{name}.samples.safetensors"

    def read(self, spec: Any) -> dict[str, Any] | None:
        """The result of a cell, or None where it is missing or damaged."""
        return (self.load(self.path(spec)) or (spec, None))[1]

    def load(self, path: Path, what: str = "result") -> tuple[Any, Any] | None:
        """(specification, result) of a file, or its error; None where it is missing or damaged."""
        try:
            cell = json.loads(path.read_text(encoding="utf-8"))
            found = cell["spec"], cell[what]
            good = what == "error" or cell["digest"] == digest(found)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if good else None

    def is_damaged(self, spec: Any) -> bool:
        """Whether a cell is there and cannot be read."""
        return self.path(spec).is_file() and self.read(spec) is None

    def damaged(self) -> list[Path]:
        """Cells that are there and cannot be read."""
        return [path for path in self.files() if self.load(path) is None]

    def files(self, kind: str = "cell") -> list[Path]:
        return sorted(self.folder.glob(f"*.{kind}.json"))

    def write(self, spec: Any, result: dict[str, Any]) -> None:
        cell = {"spec": spec, "result": result, "digest": digest([spec, result])}
        put(self.path(spec), json.dumps(cell, ensure_ascii=False).encode())
        self.path(spec, "error").unlink(missing_ok=True)

    def fail(self, spec: Any, error: str) -> None:
        """Says beside the missing cell why it is missing, unless the disk has no room for it."""
        text = json.dumps({"spec": spec, "error": error}, ensure_ascii=False)
        with suppress(OSError):
            put(self.path(spec, "error"), text.encode())

    def error(self, spec: Any) -> str | None:
        return (self.load(self.path(spec, "error"), "error") or (spec, None))[1]

    def cells(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """(specification, result) of every whole cell."""
        yield from filter(None, map(self.load, self.files()))


def put_tensors(path: Path, tensors: Mapping[str, Tensor], about: str = "") -> None:
    """Writes tensors and a text to a file, with a checksum of both."""
    from safetensors.torch import save

    kept = {name: tensor.contiguous() for name, tensor in tensors.items()}
    facts = {"sha256": checksum(kept, about)}
    put(path, save(kept, facts | {"about": about} if about else facts))


def tensors_in(path: Path) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """The tensors and texts of a file; None where it is missing or damaged.

    A file from before there were checksums is taken as it is.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
            facts = file.metadata() or {}
    except (OSError, SafetensorError, ValueError):
        return None
    if "sha256" in facts and facts["sha256"] != checksum(tensors, facts.get("about", "")):
        return None
    return tensors, facts


def checksum(tensors: dict[str, Tensor], about: str) -> str:
    from safetensors.torch import save

    return hashlib.sha256(save(tensors) + about.encode()).hexdigest()
