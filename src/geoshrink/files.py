"""The one way in which geoshrink writes a file that somebody may read again."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(file: str | Path, content: str | bytes) -> Path:
    """Writes a file that is whole or as it was before, also after a crash or on a full disk.

    file      its path; folders on the way are made
    content   all of it; text is written as UTF-8
    """
    place = Path(file)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{os.getpid()}")
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
