"""Releasing: one version, one floor, and a check that stops where it should."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import yaml

import geoshrink

ROOT = Path(__file__).parents[1]
PROJECTS = ("pyproject.toml", "bench/pyproject.toml")


@pytest.fixture
def script(monkeypatch):
    """script(name) imports scripts/NAME.py anew."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    ours = ("version", "zoo_manifest", "release_pythons", "release_check", "release_smoke")

    def load(name: str):
        for each in ours:
            monkeypatch.delitem(sys.modules, each, raising=False)
        return importlib.import_module(name)

    return load


def text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


# The version


def test_every_place_says_the_same_version(script):
    version = script("version")
    assert version.differences() == [] and version.version() == geoshrink.__version__


@pytest.fixture
def copied(script, tmp_path, monkeypatch):
    """version.py on copies of the files it knows."""
    version = script("version")
    for file in (*version.PLACES, "CHANGELOG.md"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text(file), encoding="utf-8")
    monkeypatch.setattr(version, "ROOT", tmp_path)
    return version


def test_one_command_writes_every_place(copied, tmp_path, capsys):
    assert copied.main(["9.8.7"]) == 0 and capsys.readouterr().out == "9.8.7\n"
    for file, line in copied.PLACES.items():
        changed = (tmp_path / file).read_text(encoding="utf-8")
        assert line.format("9.8.7") in changed.splitlines(), file
        assert changed.replace("9.8.7", geoshrink.__version__, 1) == text(file)


def test_a_place_that_differs_is_named(copied, tmp_path, capsys):
    file = tmp_path / "CITATION.cff"
    file.write_text(file.read_text().replace(f"version: {geoshrink.__version__}", "version: 0.0.9"))
    assert copied.main(["--check"]) == 1
    assert "CITATION.cff says 0.0.9, src/geoshrink/__init__.py says" in capsys.readouterr().out


def test_a_tag_must_be_the_version_with_a_date(copied, tmp_path, capsys):
    copied.main(["9.8.7"])
    log = tmp_path / "CHANGELOG.md"
    log.write_text("# Changelog\n\n## 9.8.7 (unreleased)\n")
    capsys.readouterr()
    assert copied.main(["--tag", "v9.8.6"]) == 1
    told = capsys.readouterr().out
    assert "the tag is 'v9.8.6', not 'v9.8.7'" in told and "'## 9.8.7 (YYYY-MM-DD)'" in told
    log.write_text("# Changelog\n\n## 9.8.7 (2027-01-31)\n")
    assert copied.main(["--tag", "v9.8.7"]) == 0


def test_the_version_of_the_citation_is_not_that_of_its_format(copied, tmp_path):
    for new in ("1.2.0", "1.3.0"):
        assert copied.main([new]) == 0
    lines = (tmp_path / "CITATION.cff").read_text("utf-8").splitlines()
    assert "cff-version: 1.2.0" in lines and "version: 1.3.0" in lines


def test_a_version_of_something_else_stays_as_it_is(copied, tmp_path):
    file = tmp_path / "comfyui/pyproject.toml"
    more = f'{file.read_text("utf-8")}least_version = "{geoshrink.__version__}"\n'
    file.write_text(more, encoding="utf-8")
    assert copied.main(["9.8.7"]) == 0
    assert file.read_text("utf-8") == more.replace(geoshrink.__version__, "9.8.7", 1)
    file.write_text(more + 'version = "9.8.7"\n', encoding="utf-8")
    with pytest.raises(SystemExit, match=r"must have one line 'version = .*, it has 2"):
        copied.main(["--check"])


@pytest.mark.parametrize("new", ["1", "1.2", "v1.2.3", "1.2.3.4", "1.2.3-beta", "1.2.3\n"])
def test_what_is_no_version_is_quoted(copied, new):
    with pytest.raises(SystemExit, match=re.escape(f"got {new!r}")):
        copied.main([new])


# Metadata


def test_the_floor_is_the_same_everywhere(script):
    oldest = script("release_pythons").supported()[0]
    for file in (*PROJECTS, "comfyui/pyproject.toml"):
        assert tomllib.loads(text(file))["project"]["requires-python"] == f">={oldest}", file
    tools = tomllib.loads(text("pyproject.toml"))["tool"]
    assert tools["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert tools["basedpyright"]["pythonVersion"] == oldest
    assert f"Python ≥ {oldest}" in text("README.md") and f"{oldest} or newer" in text("Makefile")
    assert f"(3, {oldest[2:]})" in text("Makefile")


def test_both_packages_say_the_same_of_themselves():
    first, second = (tomllib.loads(text(file))["project"] for file in PROJECTS)
    assert first["urls"] == second["urls"]
    assert {"Homepage", "Documentation", "Issues", "Changelog", "Citation"} == set(first["urls"])
    pythons = [{c for c in p["classifiers"] if "Python" in c} for p in (first, second)]
    assert pythons[0] == pythons[1]
    floors = [{d for d in p["dependencies"] if d.startswith("torch>")} for p in (first, second)]
    assert floors[0] == floors[1] and len(floors[0]) == 1


def test_the_pinned_triton_is_that_of_the_pinned_torch():
    """torch's wheels for Linux ask for one version of it: with another, nothing installs."""
    pins = dict(line.split("==") for line in text("constraints.txt").splitlines() if "==" in line)
    assert (pins["torch"], pins["triton"]) == ("2.13.0", "3.7.1"), "look up torch's requirement"


def test_the_citation_can_be_read():
    cited = yaml.safe_load(text("CITATION.cff"))
    assert cited["cff-version"] == "1.2.0" and cited["authors"] and cited["title"] == "geoshrink"
    paper = cited["preferred-citation"]
    assert paper["type"] == "article" and paper["year"] == 2026 and len(paper["authors"]) == 6


# The check


def test_it_stops_with_a_sentence(script, monkeypatch, capsys):
    check = script("release_check")
    monkeypatch.setattr(check.version, "differences", lambda: ["CITATION.cff says 0.0.9"])
    assert check.main([]) == 1
    assert "release-check stopped: CITATION.cff says 0.0.9" in capsys.readouterr().err


def test_a_tag_that_is_not_the_version_stops_it(script, monkeypatch, capsys):
    check = script("release_check")
    monkeypatch.setattr(check, "made_tools", lambda: pytest.fail("it went on"))
    assert check.main(["--tag", "v0.0.9"]) == 1
    assert "release-check stopped: the tag is 'v0.0.9', not 'v" in capsys.readouterr().err


@pytest.fixture
def tried(script, tmp_path, monkeypatch):
    """tried(Pythons, words) are the Pythons on which the wheels are tried."""
    check, seen = script("release_check"), []
    monkeypatch.setattr(check, "HOME", tmp_path)
    for name in ("call", "made_tools", "build", "inspect", "audit"):
        monkeypatch.setattr(check, name, lambda *_: tmp_path)
    monkeypatch.setattr(check.zoo_manifest, "mirror", lambda folder: 0)
    monkeypatch.setattr(check.pythons, "base", lambda *_: tmp_path)
    monkeypatch.setattr(check, "alone", lambda name, python: seen.append(name))
    monkeypatch.setattr(check, "with_bench", lambda *_: tmp_path)

    def run(names: list[str], *words: str) -> list[str]:
        monkeypatch.setattr(check.pythons, "here", lambda: dict.fromkeys(names, tmp_path))
        assert check.main([*words]) == (0 if names else 1)
        return seen

    return run


@pytest.mark.parametrize(
    ("here", "words", "wanted"),
    [
        (["3.11", "3.12", "3.13"], [], ["3.11", "3.13"]),
        (["3.11", "3.12", "3.13"], ["--every"], ["3.11", "3.12", "3.13"]),
        (["3.12"], [], ["3.12"]),
        ([], [], []),
    ],
)
def test_the_oldest_and_the_newest_python_are_tried(tried, capsys, here, words, wanted):
    assert tried(here, *words) == wanted
    said = capsys.readouterr()
    assert ("none of the supported Pythons is here" in said.err) == (not here)
    assert ("nothing stands against a release" in said.out) == bool(here)


def test_distributions_of_before_are_not_taken_for_new_ones(script, tmp_path, monkeypatch):
    check = script("release_check")
    monkeypatch.setattr(check, "DIST", tmp_path)
    monkeypatch.setattr(check, "call", lambda *_: "")
    (tmp_path / "geoshrink-0.0.1.tar.gz").write_bytes(b"0")
    check.build(tmp_path)
    assert not list(tmp_path.iterdir())


def test_tools_are_installed_again_where_others_are_wanted(script, tmp_path, monkeypatch):
    check, calls = script("release_check"), []
    monkeypatch.setattr(check, "HOME", tmp_path)
    monkeypatch.setattr(check, "call", lambda *given: calls.append(given))
    monkeypatch.setattr(check.pythons, "fresh", lambda folder, python: folder.mkdir(exist_ok=True))
    for tools, count in ((("a==1",), 1), (("a==1",), 1), (("a==2",), 2)):
        monkeypatch.setattr(check, "TOOLS", tools)
        check.made_tools()
        assert len(calls) == count


def test_a_command_that_fails_is_quoted_with_its_last_lines(script, tmp_path, monkeypatch):
    pythons = script("release_pythons")
    monkeypatch.setattr(pythons, "HOME", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    line = "import os, sys; print(os.getcwd(), os.environ.get('PYTHONPATH')); sys.exit(3)"
    with pytest.raises(pythons.Stop) as told:
        pythons.call([sys.executable, "-c", line], "it is broken")
    assert str(told.value).startswith("it is broken\n")
    assert str(told.value).endswith(f"{tmp_path} None")


def test_the_running_python_is_found_and_shims_are_not(script, tmp_path, monkeypatch):
    pythons = script("release_pythons")
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert pythons.here() == {mine: Path(sys.executable)}


@pytest.mark.parametrize("fault", ["large", "large sdist", "missing", "strange", "links"])
def test_odd_distributions_stop_it(script, tmp_path, monkeypatch, fault):
    check = script("release_check")
    monkeypatch.setattr(check, "DIST", tmp_path)
    called: list[list[object]] = []
    monkeypatch.setattr(check, "call", lambda words, why: called.append(words))
    names = ["geoshrink/a.py"] + ["tests/test_a.py"] * (fault == "strange")
    monkeypatch.setattr(check, "names_in", lambda path: names)
    monkeypatch.setattr(check, "metadata", lambda path: "[a](https://b.c) [the method](docs/m.md)")
    for name in check.PROJECTS:
        check.wheel(name).write_bytes(b"0" * (1_100_000 if fault == "large" else 10))
        if fault != "missing":
            much = 2_100_000 if fault == "large sdist" else 1
            (tmp_path / f"{name}-{geoshrink.__version__}.tar.gz").write_bytes(b"0" * much)
    said = {
        "large": "has 1.10 MB, more than 1: what came in",
        "large sdist": "tar.gz has 2.10 MB, more than 2: what came in",
        "missing": "tar.gz is not among",
        "links": r"lead nowhere on an index: \['docs/m.md'\]",
        "strange": r"holds what is not of geoshrink: \['tests/test_a.py'\]",
    }
    with pytest.raises(check.Stop, match=said[fault]):
        check.inspect(tmp_path)
    assert called[0][:3] == [tmp_path / "twine", "check", "--strict"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "skipped"),
        ([{"name": "torch", "skip_reason": "not found"}], "skipped"),
        ([{"name": "pip", "version": "1", "vulns": [{"id": "X"}]}], "skipped"),
        ([{"name": "torch", "version": "2", "vulns": []}], "1 of 1 packages looked up"),
        ([{"name": "torch", "version": "2", "vulns": [{"id": "X"}]}], None),
    ],
)
def test_an_audit_that_looked_up_nothing_is_no_clean_bill(
    script, tmp_path, monkeypatch, capsys, found, said
):
    check = script("release_check")

    def call(words, why):
        out = Path(words[words.index("--output") + 1])
        out.write_text(json.dumps({"dependencies": found}))
        if any(each.get("vulns") for each in found):
            raise check.Stop(why)

    monkeypatch.setattr(check, "HOME", tmp_path)
    monkeypatch.setattr(check, "call", call)
    monkeypatch.setattr(check.pythons, "packages", lambda python: python)
    if said is None:
        with pytest.raises(check.Stop, match="known vulnerabilities in torch 2"):
            check.audit(tmp_path, tmp_path, tmp_path)
    else:
        check.audit(tmp_path, tmp_path, tmp_path)
        assert said in capsys.readouterr().out


def test_pip_audit_failing_otherwise_stops_it(script, tmp_path, monkeypatch, capsys):
    check = script("release_check")
    monkeypatch.setattr(check, "HOME", tmp_path)
    monkeypatch.setattr(check.pythons, "packages", lambda python: python)
    for words, stops in (("Max retries exceeded", False), ("Traceback: KeyError", True)):

        def call(*_, words=words):
            raise check.Stop(words)

        monkeypatch.setattr(check, "call", call)
        if stops:
            with pytest.raises(check.Stop, match="KeyError"):
                check.audit(tmp_path, tmp_path, tmp_path)
        else:
            stale = {"name": "torch", "version": "2", "vulns": []}
            (tmp_path / "audit.json").write_text(json.dumps({"dependencies": [stale]}))
            check.audit(tmp_path, tmp_path, tmp_path)
            assert "skipped" in capsys.readouterr().out


# What is tried on a wheel


def test_the_smoke_test_passes_and_refuses_the_source_tree(script):
    smoke = script("release_smoke")
    noise = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    smoke.samples(geoshrink, noise)
    smoke.accelerates(geoshrink, noise)
    with pytest.raises(AssertionError, match="is not of this environment"):
        smoke.installed(geoshrink, geoshrink.__version__)


def test_the_mirror_has_the_names_that_a_package_looks_for(script, tmp_path):
    fetching = pytest.importorskip("geoshrink_bench.zoo.fetching")
    manifest = script("zoo_manifest")
    assert manifest.mirror(tmp_path) == len(fetching.manifest())
    for file, known in fetching.manifest().items():
        copy = tmp_path / fetching.stored_name(file, known["sha256"])
        assert copy.stat().st_size == known["bytes"]
