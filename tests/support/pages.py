"""Pages in a browser: chromium of the system, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page  # pyright: ignore[reportMissingImports]

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
needs_browser = [
    pytest.mark.extra,
    pytest.mark.skipif(not find_spec("playwright"), reason="no playwright: pip install playwright"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium"),
]


def in_browser(test: Any) -> Any:
    """One test that needs a browser; for a whole file: pytestmark = needs_browser."""
    for mark in needs_browser:
        test = mark(test)
    return test


@contextmanager
def opened(path: Path, flags: tuple[str, ...] = (), **context: Any) -> Iterator[Page]:
    """The page of a file; at the end nothing may have gone wrong in its scripts."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    context = {"viewport": {"width": 1200, "height": 900}, **context}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
        page = browser.new_context(**context).new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        yield page
        browser.close()
    assert not errors
