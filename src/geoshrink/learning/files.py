"""What was learned as a file: JSON, with its matrices packed as in a profile, and a sha256.

A folder of them is shared by several processes: a file is whole or not there, what is added to one
is added under a lock, and the oldest go when the folder is full.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ..files import write_whole
from ..grid import read_grid
from ..planning.files import digest, pack, symmetric, unpack, upper
from .setting import EXACT, Setting

KIND, VERSION, DIGEST = "geoshrink learned", 1, "sha256"
FOLDER_BYTES = 64 * 2**20
ENDING = ".learned.json"
NAMED = re.compile(r"([0-9a-f]{8})[0-9a-f]{8}" + re.escape(ENDING))
Kind = TypeVar("Kind")
logger = logging.getLogger("geoshrink")


def write(learned: Any, file: str | Path) -> Path:
    setting = learned.setting
    body = {
        KIND: VERSION,
        "setting": asdict(setting),
        "grams": [pack(upper(gram[None]), "<f8") for gram in learned.grams],
        **{name: getattr(learned, name) for name in ("spread", "first", "pictures", "runs")},
    }
    return write_whole(file, json.dumps(body | {DIGEST: digest(body)}))


def read(kind: Callable[..., Kind], file: str | Path) -> Kind:
    """A ValueError if it is no such file, or damaged."""
    try:
        body = json.loads(Path(file).read_text(encoding="utf-8"))
        version = body[KIND]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{file} holds nothing that was learned, or is damaged") from None
    if version != VERSION:
        raise ValueError(
            f"{file} has version {version!r}, this geoshrink reads {VERSION}: update geoshrink, or "
            "forget it and learn again"
        )
    if body.pop(DIGEST, None) != digest(body):
        raise ValueError(f"{file} is damaged (its {DIGEST} is another one): learn again")
    try:
        given = dict(body["setting"])
        grid = read_grid(given.pop("grid"))
        sizes = tuple(given.pop("sizes"))
        setting = Setting(grid, sizes, **given)
        grams = tuple(symmetric(unpack(g), grid.steps + 1)[0] for g in body["grams"])
        more = {name: body[name] for name in ("spread", "pictures", "runs")}
        return kind(setting=setting, grams=grams, first=tuple(body["first"]), **more)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{file} is damaged ({error!r}): learn again") from None


def cache_folder() -> Path:
    """learned/ in the user's cache directory, or where GEOSHRINK_LEARNED says."""
    own = os.environ.get("GEOSHRINK_LEARNED")
    if own:
        return Path(own)
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(home) if home else Path.home() / ".cache") / "geoshrink" / "learned"


def file_of(folder: Path, setting: Setting) -> Path:
    """Where a new setting goes."""
    return folder / f"{kin_of(setting)}{hashed(asdict(setting))}{ENDING}"


def kin_of(setting: Setting) -> str:
    """How the names begin of files that can be of settings like this one."""
    exact = [getattr(setting, name) for name in EXACT]
    return hashed([*exact, setting.grid.steps])


def hashed(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def entries(folder: Path, kin: str = "") -> list[Path]:
    """The latest used first; with a kin, those whose names say nothing, or this."""
    found = []
    for file in folder.glob(f"*{ENDING}") if folder.is_dir() else ():
        named = NAMED.fullmatch(file.name)
        if kin and named and named[1] != kin:
            continue
        try:
            found.append((file.stat().st_mtime, file))
        except OSError:  # another process has forgotten it
            continue
    return [file for _, file in sorted(found, reverse=True)]


def found_in(folder: Path, setting: Setting, kind: Callable[..., Kind]) -> tuple[Path, Kind] | None:
    """The file of a setting like this one; damaged ones are passed over, with a warning."""
    for file in entries(folder, kin_of(setting)):
        try:
            learned: Any = read(kind, file)
        except ValueError as error:
            logger.warning("geoshrink: %s", error)
            continue
        except OSError:
            continue
        if learned.setting.difference(setting) is None:
            return file, learned
    return None


def add_to(folder: Path, learned: Any) -> Any:
    """Adds a run to what the folder has of its setting; what it has then."""
    with locked(folder):
        known = found_in(folder, learned.setting, type(learned))
        if known is not None:
            learned = known[1].and_then(learned)
        write(learned, known[0] if known else file_of(folder, learned.setting))
        bound(folder)
    return learned


def used(file: Path) -> None:
    """The latest used are kept longest."""
    try:
        os.utime(file)
    except OSError:
        return


def bound(folder: Path, most: int = FOLDER_BYTES) -> None:
    """Forgets the oldest files beyond so many bytes, never the latest."""
    total = 0
    for i, file in enumerate(entries(folder)):
        try:
            total += file.stat().st_size
            if i and total > most:
                file.unlink()
        except FileNotFoundError:  # somebody else has forgotten it
            continue


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time, where the system has such locks."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows: the latest writer wins, and files stay whole
        yield
        return
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
