"""benchmarks/cells.tar.xz: what it holds, and how benchmarks/pack_cells.py makes it."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from geoshrink_bench.asked import Asked
from geoshrink_bench.store import Store

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
#: The beginning of an absolute path of some machine.
PATH = re.compile(r'"(?:/[A-Za-z]|[A-Za-z]:\\\\)')


@pytest.fixture(scope="module")
def packer():
    spec = importlib.util.spec_from_file_location("pack_cells", BENCHMARKS / "pack_cells.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unpacked(content: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read().decode() for name, file in files.items() if file}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "few"
    Asked("few", {"name": "few"}).save(folder)
    store = Store(folder)
    store.write({"method": "FORA"}, {"evaluations": 7})
    store.fail({"method": "ToCa"}, f'Traceback:\n  File "{folder}/x.py"\nValueError: no\n')
    (folder / "results.csv").write_text("a")
    return folder


def test_the_archive_names_no_path_of_a_machine():
    found = unpacked((BENCHMARKS / "cells.tar.xz").read_bytes())
    assert len(found) > 5000
    assert [name for name, text in found.items() if PATH.search(text)] == []


def test_cells_are_packed_as_they_are_and_paths_are_left_out(packer, folder):
    assert PATH.search((folder / "asked.json").read_text())
    found = unpacked(packer.packed([folder]))
    assert len(found) == 3 and not any(PATH.search(text) for text in found.values())
    cell = next(folder.glob("*.cell.json"))
    assert found[f"few/{cell.name}"] == cell.read_text()
    error = next(text for name, text in found.items() if name.endswith("error.json"))
    assert json.loads(error) == {"spec": {"method": "ToCa"}, "error": "ValueError: no"}
    assert json.loads(found["few/asked.json"])["source"] == {"name": "few"}


def test_the_same_cells_are_the_same_bytes(packer, folder, tmp_path):
    content = packer.packed([folder])
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(tmp_path / "again", filter="data")
    assert packer.packed([tmp_path / "again" / "few"]) == content


def test_a_folder_without_cells_is_refused(packer, tmp_path, capsys):
    with pytest.raises(SystemExit):
        packer.main([str(tmp_path), "--out", str(tmp_path / "a.tar.xz")])
    assert "it has no asked.json" in capsys.readouterr().err
    assert not (tmp_path / "a.tar.xz").exists()
