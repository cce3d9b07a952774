"""The example workflows as a user has them: opened in a browser, run, read."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import Browser, chromium

if TYPE_CHECKING:
    from support.runner import Runner

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("playwright"), reason="no playwright: pip install playwright"),
    pytest.mark.skipif(not chromium(), reason="no chromium: install it, or set GEOSHRINK_CHROMIUM"),
]
PACK = Path(__file__).resolve().parents[1]
WORKFLOWS = {path.stem: path for path in sorted(PACK.glob("example_workflows/*.json"))}
OTHERS = [name for name, path in WORKFLOWS.items() if '"models"' in path.read_text("utf-8")]


@pytest.fixture(scope="module")
def browser(comfy: Runner):
    with Browser(comfy.server.url) as browser:
        yield browser


def test_the_demo_runs_and_reports(browser: Browser) -> None:
    """The report stands on both nodes, and the page logs no error of ours."""
    browser.load(WORKFLOWS["geoshrink-demo"])
    browser.run(seconds=120)
    for kind in ("GeoShrink", "GeoShrinkReport"):
        (text,) = browser.texts(kind)
        assert "10 of 30 stages exact, 20 predicted" in text
        assert "dB to the full run" in text
    assert browser.our_errors == []


@pytest.mark.parametrize("name", OTHERS)
def test_a_workflow_lacks_only_its_models(browser: Browser, name: str) -> None:
    """The server knows every node and every value, except the files of the models."""
    browser.load(WORKFLOWS[name])
    refusals = browser.refusals()
    assert refusals
    for kind, details in refusals:
        assert kind == "value_not_in_list" and ".safetensors' not in " in details, details
    assert browser.our_errors == []


def test_every_workflow_has_a_picture() -> None:
    for path in WORKFLOWS.values():
        assert path.with_suffix(".jpg").stat().st_size < 150_000


def test_every_node_has_a_help_page(comfy: Runner, browser: Browser) -> None:
    nodes = {name for name in comfy.info if name.startswith("GeoShrink")}
    assert {path.stem for path in PACK.glob("web/docs/*.md")} == nodes
    for name in nodes:
        reply = browser.page.request.get(f"{browser.url}/extensions/geoshrink/docs/{name}.md")
        assert reply.text().startswith("# GeoShrink")
