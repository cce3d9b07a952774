"""The pages: links lead somewhere, the README is short, the tree's page is current."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import geoshrink

ROOT = Path(__file__).parents[1]
FOLDERS = ("", "bench/", "docs/**/", "benchmarks/**/", "comfyui/**/", "examples/**/", "zoo/")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(f"{folder}*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchor(heading: str) -> str:
    """A heading as GitHub links to it."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.strip().replace(" ", "-")


def prose(page: Path) -> str:
    """A page without its code."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def places(page: Path) -> set[str]:
    """What can be linked to on a page; a heading that comes again has a number."""
    seen: list[str] = [anchor(heading) for heading in HEADING.findall(prose(page))]
    again = {f"{name}-{seen[:i].count(name)}" for i, name in enumerate(seen) if name in seen[:i]}
    return {*seen, *again}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        if "mailto:" in link or "://" in link:
            continue
        name, _, place = link.partition("#")
        target = page if not name else (page.parent / name).resolve()
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        if place and target.suffix == ".md":
            assert place in places(target), f"{page.name} links to {link}: no such heading"


def test_the_index_of_benchmarks_says_what_every_page_measures():
    folder = ROOT / "benchmarks"
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| [")]
    told = {re.sub(r"\[(.*)\]\(\1\)", r"\1", page): default for page, _, default, _ in rows}
    assert set(told) == {p.relative_to(folder).as_posix() for p in folder.rglob("*.md")} - {
        "README.md"
    }
    assert set(told.values()) == {"today's", "before", "in part", "none"}
    for page, default in told.items():
        head = (folder / page).read_text(encoding="utf-8")[:600]
        says = "Measures the default until" in head or "made by unknown code" in head
        assert (default == "before") == says or default == "in part", page


def test_examples_of_anchors_are_true():
    third = [3 * s / (1 + 2 * s) for s in (1 - i / 25 for i in range(26))]
    names = {"geoshrink": geoshrink, "sigmas": third}
    page = str(ROOT / "docs/anchors.md")
    found = doctest.testfile(page, module_relative=False, globs=names, encoding="utf-8")
    assert found.attempted > 2 and not found.failed


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_page_of_the_tree_is_current():
    command = [sys.executable, str(ROOT / "scripts/architecture.py"), "--check"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout


def test_as_many_pipelines_are_tested_as_the_pages_say():
    pytest.importorskip("diffusers")
    from hosts.check import all_pipelines

    count = len(all_pipelines())
    for page in ("README.md", "docs/pipelines.md"):
        assert f"{count} pipelines" in (ROOT / page).read_text(encoding="utf-8")
