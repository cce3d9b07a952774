"""The one atomic write: whole or as before, and nothing beside it."""

import os
from pathlib import Path

import pytest

from geoshrink.files import write_whole


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
