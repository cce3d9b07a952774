"""The site as zensical builds it: nothing to complain about, every link leads somewhere."""

from __future__ import annotations

import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.extra]
ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
LOADED = {"img", "link", "script", "source"}  # what a browser fetches by itself


class Page(HTMLParser):
    """The places on a page, and where it leads."""

    def __init__(self, file: Path):
        super().__init__()
        self.places: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif name in ("href", "src") and value and dict(attrs).get("rel") != "canonical":
                self.links.append((tag, unquote(value)))


@pytest.fixture(scope="module")
def pages() -> dict[Path, Page]:
    pytest.importorskip("zensical")
    runpy.run_path(str(ROOT / "scripts/site_pages.py"))["main"]()
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    told = built.stdout + built.stderr
    assert built.returncode == 0 and "No issues found" in told, told
    files = [file for file in SITE.rglob("*.html") if file.name == "index.html"]
    return {file: Page(file) for file in files}


def test_every_link_leads_somewhere(pages):
    assert len(pages) > 80
    for file, page in pages.items():
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert tag not in LOADED, f"{file} loads {link} from another host"
                continue
            there = (file.parent / parts.path).resolve() if parts.path else file
            there = there / "index.html" if there.is_dir() else there
            assert there.is_file(), f"{file} leads to {link}"
            if there in pages and parts.fragment and not parts.fragment.startswith("__"):
                assert parts.fragment in pages[there].places, f"{file} leads to {link}"


def test_every_name_of_the_reference_is_shown(pages):
    named = [page.places for file, page in pages.items() if "reference" in file.parts]
    shown = {place for places in named for place in places if place.startswith("geoshrink.")}
    assert {"geoshrink.accelerate", "geoshrink.METHODS", "geoshrink.Plan.of"} <= shown
    text = (SITE / "reference/method/index.html").read_text(encoding="utf-8")
    assert "Named methods: keyword arguments for" in text  # a docstring that only griffe sees
