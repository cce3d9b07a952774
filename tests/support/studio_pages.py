"""The studio in a browser: a server of its own, and its page as a user drives it."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from pages import CHROMIUM, FLAGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page  # pyright: ignore[reportMissingImports]

MODULE = "geoshrink_studio_models"
SD, RAISES, BROKEN = (f"{MODULE}:{name}" for name in ("sd", "raises", "broken"))
MODELS = """
from hosts import image, text

def sd():
    parts = dict(text_encoder=text.clip_text(), tokenizer=text.clip_tokenizer())
    return image.sd("StableDiffusionPipeline", {}, **parts)[0]

def raises():
    pipe = sd()
    def forward(*args, **kwargs):
        raise RuntimeError("<img src=x onerror=window.hurt=1> out of memory")
    pipe.unet.forward = forward
    return pipe

def broken():
    raise RuntimeError("no <b>weights</b>")
"""
PICTURES = """() => ["left", "right"].map((side) =>
  document.querySelector(`#result .layer.${side} img`)?.src ?? null)"""
KINDS = """() => [...document.querySelectorAll("#strips svg")].map((svg) =>
  [...svg.querySelectorAll("g")].map((g) => g.getAttribute("class")))"""
SAYS = """(words) => document.querySelector("#status")?.innerText.includes(words)"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def served(folder: Path, *words: str) -> Iterator[str]:
    """`geoshrink studio` in a process of its own; the address of its page."""
    (folder / f"{MODULE}.py").write_text(MODELS)
    support = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, [support, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "geoshrink.cli", "studio", *words, "--no-browser"]
    port = free_port()
    command += ["--port", str(port), "--out", str(folder / "out")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.25)
        yield address
    finally:
        process.terminate()
        process.wait(20)
    assert "Traceback" not in (folder / "log").read_text(), (folder / "log").read_text()


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """One tab. `wrong` collects what must not be: errors of scripts, and requests elsewhere."""

    def __init__(self, browser: Browser, address: str, **context: Any):
        context = {"viewport": {"width": 1300, "height": 1000}, **context}
        self.address, self.wrong = address, []
        self.page: Page = browser.new_context(**context).new_page()
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._log)
        self.page.on("request", lambda request: self._ask(request.url))

    def _log(self, message: Any) -> None:
        if message.type == "error":
            self.wrong.append(f"{message.text} {message.location}")

    def _ask(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:")):
            self.wrong.append(f"asked {url}")

    def open(self, **query: Any) -> Tab:
        """The page once its controls stand as the address has them."""
        self.page.goto(f"{self.address}?{urlencode(query)}" if query else self.address)
        self.page.wait_for_selector("#status p")
        self.page.wait_for_function(
            "() => document.querySelector('#class input, #prompt textarea')?.value"
            " || document.querySelector('#status [role=alert]')"
        )
        self.page.wait_for_timeout(300)  # sliders follow one another
        return self

    @property
    def status(self) -> str:
        return self.page.locator("#status").inner_text()

    def wait(self, words: str, seconds: float = 90) -> str:
        self.page.wait_for_function(SAYS, arg=words, timeout=1000 * seconds)
        return self.status

    def run(self, words: str = "Done") -> str:
        self.page.locator("#run").click()
        self.page.wait_for_function(
            "() => !/Press Run|Done|Stopped/.test(document.querySelector('#status').innerText)"
        )
        self.wait(words)
        self.page.wait_for_timeout(400)  # the pictures are decoded before they are shown
        return self.status

    def number(self, control: str) -> str:
        return self.page.locator(f"#{control} input[type=number]").input_value()

    def pictures(self) -> list[str | None]:
        """What the two sides of the slider show."""
        return self.page.evaluate(PICTURES)

    def kinds(self) -> list[list[str]]:
        """The bars of every strip of stages."""
        return self.page.evaluate(KINDS)

    def clip(self) -> str:
        return self.page.locator("#result .layer.right").evaluate(
            "(layer) => getComputedStyle(layer).clipPath"
        )

    def difference(self) -> int:
        """Of 255, between the two sides as they are seen, where it is greatest."""
        from PIL import Image, ImageChops

        sides = [Image.open(io.BytesIO(self.wiped(at))).convert("RGB") for at in (0, 100)]
        ends: Any = ImageChops.difference(*sides).getextrema()
        return max(high for _, high in ends)

    def wiped(self, percent: int) -> bytes:
        """The stage without words, wiped to one side."""
        self.page.locator("#result .wipe").evaluate(
            "(wipe, at) => { wipe.value = at; wipe.dispatchEvent(new Event('input')); }", percent
        )
        self.page.wait_for_timeout(300)
        hidden = "#result :is(.tag, .handle) { visibility: hidden }"
        return self.page.locator("#result .stage").screenshot(style=hidden)
