"""The one atomic write: whole or as before, and nothing beside it."""

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from geoshrink.files import read_in_time, write_whole


@pytest.mark.parametrize("content", ["σ = 0", b"\xff\x00"])
def test_it_writes_text_and_bytes_and_makes_folders(tmp_path: Path, content):
    path = write_whole(tmp_path / "a" / "b" / "c.txt", content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert write_whole(str(path), "new") == path and path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left"), OSError("odd"), KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch, step, error):
    path = write_whole(tmp_path / "a.txt", "old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    said = r"(No space left|odd).*a\.txt" if isinstance(error, OSError) else None
    with pytest.raises((OSError, KeyboardInterrupt), match=said):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_threads_write_one_file_beside_each_other(tmp_path: Path, monkeypatch):
    both, fsync = threading.Barrier(2), os.fsync

    def meet(file: int) -> None:
        both.wait(10)
        fsync(file)

    monkeypatch.setattr(os, "fsync", meet)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: write_whole(tmp_path / "a.txt", text), ["one", "two"]))
    assert (tmp_path / "a.txt").read_text() in ("one", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


class Drip(io.RawIOBase):
    """A byte at a time, without end."""

    taken = 0

    def read1(self, size: int) -> bytes:
        self.taken += 1
        assert self.taken < 10**6, "it would be read for ever"
        return b"x"


def test_what_never_ends_is_given_up():
    assert read_in_time(io.BytesIO(b"abc"), 2, 9.0) == b"ab"
    assert read_in_time(io.BytesIO(b"abc"), 9, 9.0) == b"abc"
    slow = Drip()
    assert read_in_time(slow, 5, 9.0) == b"xxxxx" and slow.taken == 5
    with pytest.raises(TimeoutError, match=r"in 0\.01 seconds: it was given up"):
        read_in_time(slow, 2**40, 0.01)
