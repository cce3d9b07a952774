"""Weights that did not come with the package: the cache, the URL, and what goes wrong there."""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from geoshrink_bench import zoo
from geoshrink_bench.zoo import fetching, files
from geoshrink_bench.zoo.profiles import shipped
from geoshrink_bench.zoo.recipes import RECIPES

ROOT = Path(__file__).parents[2]
NAME = "fruit-real"  # the least of them: weights and facts


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """As a wheel without the repository: an empty cache, and the URL of a folder."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    monkeypatch.setattr(files, "clone", lambda: iter(()))
    monkeypatch.delenv("GEOSHRINK_ZOO", raising=False)
    monkeypatch.setenv("GEOSHRINK_ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GEOSHRINK_ZOO_URL", mirror.as_uri())
    return mirror


def offer(mirror: Path, name: str) -> list[Path]:
    """The files of a model at the URL, under the names that they have there."""
    made = []
    for file in fetching.files_of(name):
        stored = fetching.stored_name(file, fetching.manifest()[file]["sha256"])
        made.append(Path(shutil.copyfile(ROOT / "zoo" / file, mirror / stored)))
    return made


def test_a_wheel_alone_loads_a_model_and_its_profile(wheel, capsys):
    offer(wheel, "fruit-latent")
    model = zoo.load("fruit-latent")
    assert model.name == "fruit-latent" and "rectified flow" in model.card
    assert shipped("fruit-latent") is not None
    told = capsys.readouterr().err
    assert told.count("bringing fruit-latent.safetensors (8.8 MB)") == 1
    shutil.rmtree(wheel)  # from here on the cache is all there is
    assert zoo.load("fruit-latent").facts == model.facts
    assert not capsys.readouterr().err


def test_the_repository_comes_before_the_cache_and_the_url(wheel, monkeypatch):
    monkeypatch.setattr(files, "clone", lambda: iter([ROOT / "zoo"]))
    assert files.find(NAME, None) == ROOT / "zoo"


def test_a_folder_that_is_named_is_the_only_place(wheel, monkeypatch, tmp_path):
    offer(wheel, NAME)
    monkeypatch.setenv("GEOSHRINK_ZOO", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"{NAME} are not in .* and {tmp_path}: only"):
        files.find(NAME, None)
    with pytest.raises(FileNotFoundError, match=f"{NAME} are not in {wheel}: only"):
        files.find(NAME, wheel)
    assert not (tmp_path / "cache").exists()


def test_offline_the_error_says_what_where_and_what_to_do(wheel):
    with pytest.raises(FileNotFoundError) as told:
        files.find(NAME, None)
    hash_of = fetching.manifest()[f"{NAME}.json"]["sha256"]
    for part in (
        f"{NAME}.json could not be brought from {wheel.as_uri()}/{NAME}.{hash_of[:16]}.json",
        "No such file",
        f"take {NAME}.json, {NAME}.safetensors from zoo/ of the repository",
        "GEOSHRINK_ZOO ",
        "GEOSHRINK_ZOO_URL",
    ):
        assert part in str(told.value)
    assert shipped("fruit-latent") is None  # no profile, no error: the default is there


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b + b"!", lambda b: b"!" + b[1:]])
def test_what_has_another_hash_is_not_kept(wheel, spoil):
    weights = offer(wheel, NAME)[-1]
    weights.write_bytes(spoil(weights.read_bytes()))
    with pytest.raises(FileNotFoundError, match="is not the file that this package knows: 1"):
        files.find(NAME, None)
    assert [path.name for path in fetching.home(NAME).iterdir()] == [f"{NAME}.json"]


def test_a_damaged_file_of_the_cache_is_brought_anew(wheel):
    offer(wheel, NAME)
    kept = fetching.fetch(NAME) / f"{NAME}.safetensors"
    good = kept.read_bytes()
    kept.write_bytes(good[:100])
    assert files.find(NAME, None) == kept.parent and kept.read_bytes() == good


def test_threads_bring_it_once(wheel, capsys):
    offer(wheel, NAME)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(fetching.fetch, [NAME] * 4))) == 1
    assert capsys.readouterr().err.count("bringing") == 2


@pytest.mark.parametrize("url", ["zoo", "/tmp/zoo", "ftp://here/zoo"])
def test_a_url_of_another_kind_is_quoted(wheel, monkeypatch, url):
    monkeypatch.setenv("GEOSHRINK_ZOO_URL", url)
    with pytest.raises(ValueError, match=f"GEOSHRINK_ZOO_URL must start with .*got '{url}'"):
        fetching.fetch(NAME)


@pytest.mark.parametrize("url", ["http://[::1", "http://a b"])
def test_a_url_that_is_none_is_an_error_of_the_same_kind(wheel, monkeypatch, url):
    monkeypatch.setenv("GEOSHRINK_ZOO_URL", url)
    with pytest.raises(fetching.Missing, match=r"could not be brought from .*_ZOO_URL"):
        fetching.fetch(NAME)


def test_a_cache_that_cannot_be_written_is_named(wheel, monkeypatch, tmp_path):
    offer(wheel, NAME)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GEOSHRINK_ZOO_CACHE", str(tmp_path / "file" / "zoo"))
    with pytest.raises(fetching.Missing) as told:
        fetching.fetch(NAME)
    assert f"cannot be kept in {tmp_path / 'file' / 'zoo'}" in str(told.value)
    assert "GEOSHRINK_ZOO_CACHE names another folder" in str(told.value)


class Endless(io.RawIOBase):
    """A server that goes on for ever."""

    taken = 0

    def read1(self, size: int) -> bytes:
        assert size > 0 and self.taken < 10**8, "it would be read for ever"
        self.taken += size
        return bytes(size)


def test_no_more_is_read_than_the_file_has(wheel, monkeypatch):
    server = Endless()
    monkeypatch.setattr(fetching.urllib.request, "urlopen", lambda *_, **__: server)
    with pytest.raises(fetching.Missing, match="is not the file that this package knows"):
        fetching.fetch(NAME)
    assert server.taken == fetching.manifest()[f"{NAME}.json"]["bytes"] + 1


def test_a_server_that_drips_is_given_up(wheel, monkeypatch):
    offer(wheel, NAME)
    monkeypatch.setattr(fetching, "WHOLE", -1)
    with pytest.raises(fetching.Missing, match="it was given up"):
        fetching.fetch(NAME)


def test_a_server_has_so_many_seconds_to_answer(wheel, monkeypatch):
    asked = []

    def silent(url: str, timeout: float | None = None) -> None:
        asked.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(fetching.urllib.request, "urlopen", silent)
    with pytest.raises(fetching.Missing, match=r"could not be brought from .*: timed out"):
        fetching.fetch(NAME)
    assert asked == [30]


def test_a_full_disk_leaves_no_half_of_a_file(wheel, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    offer(wheel, NAME)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(fetching.Missing, match=r"cannot be kept in .*: No space left"):
        fetching.fetch(NAME)
    assert not list(fetching.home(NAME).iterdir())


def test_the_default_url_is_one_constant(monkeypatch):
    monkeypatch.delenv("GEOSHRINK_ZOO_URL", raising=False)
    assert fetching.address(f"{NAME}.json").startswith(f"{fetching.URL}/{NAME}.")
    monkeypatch.setenv("GEOSHRINK_ZOO_URL", "https://here/zoo/")
    assert fetching.address(f"{NAME}.json").startswith(f"https://here/zoo/{NAME}.")


def test_unknown_names_are_quoted():
    with pytest.raises(FileNotFoundError, match="no 'vegetable' in the manifest"):
        fetching.fetch("vegetable")


# The manifest


def test_every_model_but_that_of_the_package_is_in_the_manifest():
    wanted = {"safetensors", "json", "md", "profile.json"}
    for name in set(RECIPES) - {"fruit"}:
        assert {file.partition(".")[2] for file in fetching.files_of(name)} == wanted, name
    assert not fetching.files_of("fruit")


def test_the_manifest_is_current():
    command = [sys.executable, str(ROOT / "scripts/zoo_manifest.py"), "--check"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.fixture
def script(monkeypatch, tmp_path):
    """scripts/zoo_manifest.py on a folder with one model, called with these words."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.delitem(sys.modules, "zoo_manifest", raising=False)
    module = importlib.import_module("zoo_manifest")
    monkeypatch.setattr(module, "ZOO", tmp_path)
    monkeypatch.setattr(module, "MANIFEST", tmp_path / "manifest.json")

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["zoo_manifest.py", *words])
        return module.main()

    return call


def test_a_stale_manifest_is_told_and_left_alone(script, tmp_path):
    with pytest.raises(SystemExit, match=f"there are no weights in {tmp_path}"):
        script()
    for name in ("pear.safetensors", "pear.profile.json", "README.md"):
        (tmp_path / name).write_text(name)
    assert script("--check") == 1 and not (tmp_path / "manifest.json").exists()
    assert script() == 0 == script("--check")
    text = (tmp_path / "manifest.json").read_text()
    assert set(json.loads(text)["files"]) == {"pear.safetensors", "pear.profile.json"}
    (tmp_path / "pear.safetensors").write_text("another pear")
    assert script("--check") == 1 and (tmp_path / "manifest.json").read_text() == text
