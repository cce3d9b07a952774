"""The one way in which geoshrink writes a file that somebody may read again, the one in which it
reads what may never end, and what tells contents apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

BLOCK = 2**16  # bytes that are read at a time


def write_whole(file: str | Path, content: str | bytes) -> Path:
    """Writes a file that is whole or as it was before, also after a crash or on a full disk.

    file      its path; folders on the way are made
    content   all of it; text is written as UTF-8
    """
    place = Path(file)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(part, "wb") as out:
            out.write(content.encode() if isinstance(content, str) else content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, place)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(place)) from error
    finally:
        part.unlink(missing_ok=True)
    return place


def read_in_time(file: Any, most: int, seconds: float) -> bytes:
    """At most so many bytes of an open file; a TimeoutError if they take longer than that, such as
    those of a server that sends one now and then.
    """
    end, found, left = time.monotonic() + seconds, [], most
    take = getattr(file, "read1", file.read)  # does not wait until the block is full
    while left > 0 and (block := take(min(left, BLOCK))):
        found.append(block)
        left -= len(block)
        if time.monotonic() > end:
            raise TimeoutError(f"{most - left} bytes in {seconds:g} seconds: it was given up")
    return b"".join(found)


def version() -> str:
    """Of this geoshrink, for what it writes; looked up, since the package imports this file."""
    return sys.modules[__name__.partition(".")[0]].__version__


def digest(value: Any) -> str:
    """Of plain data: the same for the same content, in whatever order.

    >>> digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_folder(folder: Path) -> str:
    """Of a checkpoint: the contents of its JSON files, the names and sizes of all others."""
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        small = path.suffix == ".json"
        content = path.read_text(encoding="utf-8") if small else str(path.stat().st_size)
        found.append([path.relative_to(folder).as_posix(), content])
    return digest(found)
