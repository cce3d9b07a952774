"""Place: a folder, or an address, whose files are read up to a limit and written whole."""

from __future__ import annotations

import reprlib
import urllib.error
import urllib.request
from contextlib import AbstractContextManager, nullcontext
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from ..batch.prompts import fsspec
from ..files import read_in_time, write_whole
from ..learning.files import locked

TIMEOUT = 30.0  # seconds for an answer, and for each of its parts
WHOLE = 600.0  # seconds for all of a file
WEB = ("http", "https")


class Place:
    """
    address   a folder; http:// or https://, to read only; or any other that fsspec knows, such as
              s3://bucket/plans
    """

    def __init__(self, address: str):
        scheme, mark, rest = str(address).partition("://")
        scheme, rest = (scheme.lower(), rest) if mark else ("", scheme)
        if not rest and not mark:
            raise ValueError("a place is a folder or an address, got ''")
        self.web = scheme in WEB
        if self.web and not rest.strip("/"):
            raise ValueError(f"{str(address)!r} names no server: give {scheme}://SERVER/FOLDER")
        self.address = scheme + mark + (rest.rstrip("/") or rest[:1])
        self.fs: Any = None
        self.root = self.address
        if "://" in self.address and not self.web:
            self.fs, self.root = fsspec().core.url_to_fs(self.address)
        if not self.web and self.fs is None and Path(self.address).is_file():
            raise ValueError(f"{self.address} is a file: name the folder that it is in")

    def read(self, name: str, most: int) -> bytes:
        """A file of at most so many bytes; FileNotFoundError, or a ValueError if it is larger."""
        where = f"{self.address}/{name}"
        try:
            with self.opened(name) as file:
                content = read_in_time(file, most + 1, WHOLE)
        except (HTTPException, TimeoutError) as error:
            raise OSError(told(where, error)) from None
        if len(content) > most:
            raise ValueError(f"{where} has more than {most} bytes: it is not read")
        return content

    def opened(self, name: str) -> AbstractContextManager[IO[bytes]]:
        if self.web:
            return answer(f"{self.root}/{name}")
        if self.fs is None:
            return open(Path(self.root) / name, "rb")
        return self.fs.open(f"{self.root}/{name}", "rb")

    def check_writable(self) -> None:
        if self.web:
            raise ValueError(
                f"{self.address} can only be read: push to a folder, or to an address that can be "
                "written, such as s3://bucket/plans"
            )

    def write(self, name: str, content: bytes) -> None:
        self.check_writable()
        if self.fs is None:
            write_whole(Path(self.root) / name, content)
        else:
            self.fs.makedirs(self.root, exist_ok=True)
            self.fs.pipe_file(f"{self.root}/{name}", content)

    def alone(self) -> AbstractContextManager[Any]:
        """Nobody else writes meanwhile: in folders, where the system has locks."""
        return locked(Path(self.root)) if self.fs is None and not self.web else nullcontext()


def answer(url: str) -> Any:
    """What a web server says; its 404 is a FileNotFoundError, as elsewhere."""
    try:
        return urllib.request.urlopen(url, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code in (403, 404, 410):
            raise FileNotFoundError(f"{url}: HTTP status {error.code}") from None
        raise OSError(f"{url}: HTTP status {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(f"{url} does not answer: {error.reason}") from None
    except ValueError as error:
        raise ValueError(f"{url} is no address: {error}") from None


def told(where: str, error: Exception) -> str:
    """What went wrong in the words of a stranger, which are quoted and cut."""
    return f"{where}: {type(error).__name__}: {reprlib.repr(str(error))}"
