"""Cells on disk: one JSON file each, named by what it is, whole or not there at all.

A cell is named by the hash of its specification, and written to a file beside it that takes its
place in one step: a run that is killed leaves whole cells only. Each holds a checksum of itself, so
that a damaged one is noticed and made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


def name_of(spec: Any) -> str:
    """The hash of a specification: the same for the same content, in whatever order.

    >>> name_of({"a": 1, "b": [2]}) == name_of({"b": [2], "a": 1}), len(name_of({}))
    (True, 20)
    """
    return digest(spec)[:20]


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """A folder of cells."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, spec: Any, kind: str = "cell") -> Path:
        return self.folder / f"{name_of(spec)}.{kind}.json"

    def read(self, spec: Any) -> dict[str, Any] | None:
        """The result of a cell, or None where it is missing or damaged."""
        return self.whole(self.path(spec))

    def whole(self, path: Path) -> dict[str, Any] | None:
        try:
            cell = json.loads(path.read_text(encoding="utf-8"))
            good = cell["digest"] == digest([cell["spec"], cell["result"]])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return cell["result"] if good else None

    def damaged(self) -> list[Path]:
        """Cells that are there and cannot be read."""
        return [path for path in self.files() if self.whole(path) is None]

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.cell.json"))

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
        try:
            return json.loads(self.path(spec, "error").read_text(encoding="utf-8"))["error"]
        except (OSError, ValueError, KeyError):
            return None

    def cells(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """(specification, result) of every whole cell."""
        for path in self.files():
            result = self.whole(path)
            if result is not None:
                yield json.loads(path.read_text(encoding="utf-8"))["spec"], result


def put(path: Path, content: bytes) -> None:
    """The file with this content, whole or as it was before, also after a crash or a full disk."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        beside.unlink(missing_ok=True)
