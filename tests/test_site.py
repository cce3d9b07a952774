"""The site: where pages lie, and where links lead on it."""

from __future__ import annotations

import os
import re
import runpy
import tomllib
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
SITE = runpy.run_path(str(ROOT / "scripts/site_pages.py"))
SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_once():
    places = sorted(map(SITE["placed"], SITE["pages_of"](ROOT)))
    shown = re.findall(r": (\S+\.md)$", SETTINGS.partition("\nnav:\n")[2], re.MULTILINE)
    assert sorted(shown) == places, "mkdocs.yml has a nav: each page belongs there once"


def test_the_addresses_are_those_of_the_package():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert f"\n      link: {urls['Homepage']}\n" in SETTINGS
    assert f"\nsite_url: {urls['Documentation']}\n" in SETTINGS


@pytest.fixture
def repository(tmp_path) -> Path:
    files = {
        "pyproject.toml": '[project.urls]\nHomepage = "https://host/us/it"',
        "README.md": "[a](docs/a.md#b) ![p](docs/p.webp) [c](src/c.py) [s](src) [w](https://w.org)",
        "docs/a.md": "[i](../README.md) [t](../benchmarks/t.md)\n\n```\n[x](no.md)\n```\n"
        "[z](zoo/README.md)",
        "docs/how/b.md": "[a](../a.md#b) [#](#here) [c](../../src/c.py#L3)",
        "docs/zoo/README.md": "[back](../a.md)",
        "docs/p.webp": "picture",
        "docs/site.css": "",
        "benchmarks/t.md": "[a](../docs/a.md)",
        "src/c.py": "",
    }
    for name, text in {**files, "../outside.md": ""}.items():
        (tmp_path / "it" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "it" / name).write_text(text, encoding="utf-8")
    return tmp_path / "it"


def test_links_lead_there_on_the_site(repository, tmp_path):
    out = tmp_path / "out"
    SITE["stage"](repository, out)
    told = {p.relative_to(out).as_posix(): p.read_text(encoding="utf-8") for p in out.rglob("*.*")}
    blob, tree = "https://host/us/it/blob/main/src/c.py", "https://host/us/it/tree/main/src"
    assert told == {
        "index.md": f"[a](a.md#b) ![p](p.webp) [c]({blob}) [s]({tree}) [w](https://w.org)",
        "a.md": "[i](index.md) [t](benchmarks/t.md)\n\n```\n[x](no.md)\n```\n[z](zoo/sheets.md)",
        "how/b.md": f"[a](../a.md#b) [#](#here) [c]({blob}#L3)",
        "zoo/sheets.md": "[back](../a.md)",
        "p.webp": "picture",
        "site.css": "",
        "benchmarks/t.md": "[a](../a.md)",
    }


def test_only_what_changed_is_written(tmp_path):
    file = SITE["put"](tmp_path / "a" / "b.md", b"old")
    os.utime(file, (0, 0))
    assert SITE["put"](file, b"old") == file and file.stat().st_mtime == 0
    SITE["put"](file, b"new")
    assert file.read_bytes() == b"new" and file.stat().st_mtime > 0


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_what_looks_like_a_link_in_code_is_none(repository, fence):
    text = f"{fence}md\n[x](no.md)\n{fence}\n[c](../src/c.py)"
    page = PurePosixPath("docs/a.md")
    made, _ = SITE["turned"](text, page, repository, [page])
    assert made == text.replace("../src", "https://host/us/it/blob/main/src")


@pytest.mark.parametrize("link", ["nothing.md", "../../outside.md"])
def test_a_link_to_nothing_is_an_error(repository, link):
    (repository / "docs/a.md").write_text(f"[x]({link})", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=re.escape(link)):
        SITE["stage"](repository, repository / "out")


def test_two_pages_at_one_place_are_an_error(repository):
    (repository / "docs/benchmarks").mkdir()
    (repository / "docs/benchmarks/t.md").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match=r"benchmarks/t\.md"):
        SITE["stage"](repository, repository / "out")


def test_what_is_gone_is_gone_on_the_site(monkeypatch):
    old = ROOT / "build" / "test_pages"
    monkeypatch.setitem(SITE["main"].__globals__, "stage", lambda root, out: {out / "a.md"})
    for name in ("a.md", "old.md"):
        SITE["put"](old / name, b"")
    assert SITE["main"](old) == 0 and [p.name for p in old.iterdir()] == ["a.md"]
    (old / "a.md").unlink()
    old.rmdir()


def test_names_are_where_the_errors_say():
    places = {SITE["placed"](page) for page in SITE["pages_of"](ROOT)}
    pointers = pytest.importorskip("geoshrink.pointers")
    for address in pointers.PAGES.values():
        assert f"{PurePosixPath(address.partition('#')[0])}.md" in places
