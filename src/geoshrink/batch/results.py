"""Results: what was made, in a folder or at an fsspec address, named by the hash of what was asked.

First the sample's file, then its row, a Parquet file with one row: where the row is, all is there.
A file appears whole or not at all.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files import write_whole
from .jobs import Fatal
from .prompts import fsspec

ROW, ERROR, TABLE = ".row.parquet", ".error.parquet", "results.parquet"
READERS = 16  # threads that read rows
ATTEMPTS = 4  # to write a file, in 14 seconds
HOPELESS = {errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EDQUOT}
PART = re.compile(r"\.([0-9a-f]{24}\.[a-z.]+|results\.parquet)\.\d+")  # see write_whole
STALE = 600.0  # seconds that no write takes
#: The columns of a row, and how each is kept.
COLUMNS = {
    "key": "string",
    "prompt": "string",
    "seed": "int64",
    "call": "string",
    "file": "string",
    "calls": "int64",
    "seconds": "float64",
    "estimated_db": "float64",
    "report": "string",
    "error": "string",
    "made": "string",
}


class Results:
    """
    place   a folder, or an address such as s3://bucket/run
    """

    def __init__(self, place: str):
        self.place = str(place).rstrip("/")
        self.remote = "://" in self.place
        self.fs: Any = None
        self.root = self.place
        if self.remote:
            self.fs, self.root = fsspec().core.url_to_fs(self.place)
            self.remote = not {"file", "local"} & {*protocols(self.fs)}
        if self.remote:
            self.fs.makedirs(self.root, exist_ok=True)
        elif Path(self.place).is_file():
            raise ValueError(f"{self.place} is a file: name a folder")

    # -- what is there

    def names(self) -> set[str]:
        """All files, by one listing."""
        if not self.remote:
            folder = Path(self.root)
            return {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set()
        self.fs.invalidate_cache()
        if not self.fs.exists(self.root):
            return set()
        return {str(name).rpartition("/")[2] for name in self.fs.ls(self.root, detail=False)}

    def done(self, names: Iterable[str] | None = None, kind: str = ROW) -> set[str]:
        """The keys that have a row; with kind=ERROR those that failed."""
        found = self.names() if names is None else names
        return {name.removesuffix(kind) for name in found if name.endswith(kind)}

    def row(self, key: str, kind: str = ROW) -> dict[str, Any]:
        from pyarrow import parquet

        return parquet.read_table(io.BytesIO(self.read(f"{key}{kind}"))).to_pylist()[0]

    def read(self, name: str) -> bytes:
        if not self.remote:
            return (Path(self.root) / name).read_bytes()
        return self.fs.cat_file(f"{self.root}/{name}")

    # -- what is put there

    def keep(self, row: Mapping[str, Any], content: bytes, suffix: str, again: bool = True) -> None:
        """The file of a sample, then its row; if it failed before (`again`), no longer."""
        name = f"{row['key']}{suffix}"
        self.write(name, content)
        self.write(f"{row['key']}{ROW}", table_bytes([{**row, "file": name}]))
        if again:
            self.remove(f"{row['key']}{ERROR}")

    def fail(self, row: Mapping[str, Any]) -> None:
        """A row with its error; the next start tries it again."""
        self.write(f"{row['key']}{ERROR}", table_bytes([row]))

    def remove(self, name: str) -> None:
        try:
            if self.remote:
                self.fs.rm_file(f"{self.root}/{name}")
            else:
                (Path(self.root) / name).unlink()
        except FileNotFoundError:
            pass

    def write(self, name: str, content: bytes) -> None:
        """Whole, or not at all; what cannot be written ends the batch."""
        for attempt in itertools.count(1):
            try:
                if self.remote:
                    self.fs.pipe_file(f"{self.root}/{name}", content)
                else:
                    write_whole(Path(self.root) / name, content)
                return
            except OSError as error:
                if attempt == ATTEMPTS or error.errno in HOPELESS:
                    words = f"{self.place}/{name} cannot be written: {error}"
                    raise Fatal(words) from None
                time.sleep(attempt**2)

    def gather(self, keys: Iterable[str]) -> list[dict[str, Any]]:
        """The rows of these keys, failed ones too, as one table, results.parquet; also returned."""
        names, wanted = self.names(), list(keys)
        kinds = {
            **dict.fromkeys(self.done(names, ERROR), ERROR),
            **dict.fromkeys(self.done(names), ROW),
        }
        kinds = [(key, kinds[key]) for key in wanted if key in kinds]
        with ThreadPoolExecutor(READERS) as pool:
            rows = list(pool.map(lambda each: self.row(*each), kinds))
        self.write(TABLE, table_bytes(rows))
        self.sweep(names)
        return rows

    def sweep(self, names: Iterable[str]) -> None:
        """Removes what killed writers left, but nothing that another may be writing now."""
        for name in [] if self.remote else filter(PART.fullmatch, names):
            part = Path(self.root) / name
            with suppress(FileNotFoundError):
                if time.time() - part.stat().st_mtime > STALE:
                    part.unlink()


def protocols(fs: Any) -> tuple[str, ...]:
    found = fs.protocol
    return (found,) if isinstance(found, str) else tuple(found)


def table_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    kinds = {"string": pyarrow.string(), "int64": pyarrow.int64(), "float64": pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    kept = [{name: row.get(name) for name in COLUMNS} for row in rows]
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(kept, schema), buffer)
    return buffer.getvalue()
