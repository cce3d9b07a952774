"""Make the pictures of docs/studio.md again.

    python scripts/studio_pictures.py

Needs gradio, playwright, Pillow and a chromium.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

DOCS = Path(__file__).resolve().parents[1] / "docs" / "studio"
PORT = 7871
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
DONE = "() => document.querySelector('#status').innerText.startsWith('Done')"


@contextmanager
def studio() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as out:
        words = ["studio", "--no-browser", "--port", str(PORT), "--out", out]
        server = subprocess.Popen([sys.executable, "-m", "geoshrink.cli", *words])
        try:
            yield f"http://127.0.0.1:{PORT}"
        finally:
            server.terminate()
            server.wait()


def main() -> None:
    from playwright.sync_api import sync_playwright

    with studio() as address, sync_playwright() as playwright:
        options: dict[str, Any] = {"executable_path": shutil.which("chromium"), "args": ARGUMENTS}
        browser = playwright.chromium.launch(**options)
        page = browser.new_page(viewport={"width": 1280, "height": 1150})
        visit(page, f"{address}/?prompt=Kiwi+1&seed=3&budget=10")
        run(page)
        keep(page, "run")
        page.emulate_media(color_scheme="dark")
        visit(page, f"{address}/?prompt=Kiwi+1&seed=3&budget=10")
        run(page)
        page.click("#find")
        page.wait_for_selector("#use", state="visible", timeout=120_000)
        page.locator("#find").scroll_into_view_if_needed()
        page.evaluate("document.querySelector('#history').scrollIntoView()")
        keep(page, "find")
        page.emulate_media(color_scheme="light")
        visit(page, f"{address}/?model=objects")
        run(page)
        keep(page, "objects")
        browser.close()


def visit(page: Any, address: str) -> None:
    for _ in range(60):
        try:
            page.goto(address)
            break
        except Exception:
            time.sleep(1)
    page.wait_for_selector("#run")
    time.sleep(2)


def run(page: Any) -> None:
    page.click("#run")
    time.sleep(1)
    page.wait_for_function(DONE, timeout=120_000)
    time.sleep(1)


def keep(page: Any, name: str) -> None:
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    DOCS.mkdir(parents=True, exist_ok=True)
    picture.save(DOCS / f"{name}.webp", quality=80)


if __name__ == "__main__":
    main()
