"""Make the pictures of comfyui/example_workflows again: one .jpg beside every .json.

    python scripts/comfyui_pictures.py SERVER PYTHON [NAME …]

SERVER is a folder with ComfyUI's main.py, PYTHON the interpreter that runs it. This script itself
needs playwright, Pillow and a chromium. The workflows of our demo model are run, so that their
pictures show what they give; the others are only loaded, with empty files in place of their models.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from pathlib import Path

from PIL import Image

PACK = Path(__file__).resolve().parents[1] / "comfyui"
sys.path.insert(0, str(PACK / "tests"))

from support.browser import Browser  # noqa: E402
from support.server import Server  # noqa: E402

WIDTH, BYTES = 1200, 150_000
OURS = "GeoShrinkDemoModel"


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    words.add_argument("server", type=Path, help="folder with ComfyUI's main.py")
    words.add_argument("python", type=Path, help="interpreter that runs it")
    words.add_argument("names", nargs="*", help="of the workflows; default: all")
    words.add_argument("--port", type=int, help="default: a free one")
    given = words.parse_intermixed_args()
    paths = sorted((PACK / "example_workflows").glob("*.json"))
    if given.names:
        paths = [path for path in paths if path.stem in given.names]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(given.server, given.python, Path(folder), pack=PACK)
        server.port = given.port or server.port
        for path in paths:
            write_empty_models(path, Path(folder) / "models")
        with server:
            for path in paths:
                with Browser(server.url) as browser:
                    kilobytes = photograph(browser, path)
                print(f"{path.stem}.jpg: {kilobytes} kB")


def write_empty_models(path: Path, models: Path) -> None:
    """The files that a workflow names, so that none of its nodes is marked as incomplete."""
    for node in nodes_of(path):
        for model in node["properties"].get("models", ()):
            file = models / model["directory"] / model["name"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()


def nodes_of(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["nodes"]


def photograph(browser: Browser, path: Path) -> int:
    """Write the picture beside the workflow; how many kilobytes it has."""
    browser.load(path)
    if any(node["type"] == OURS for node in nodes_of(path)):
        browser.run(seconds=900)
        browser.page.wait_for_timeout(1000)
    picture = Image.open(io.BytesIO(browser.photograph())).convert("RGB")
    height = round(picture.height * WIDTH / picture.width)
    picture = picture.resize((WIDTH, height), Image.Resampling.LANCZOS)
    data = next(made for q in range(88, 0, -6) if len(made := jpeg(picture, q)) < BYTES)
    path.with_suffix(".jpg").write_bytes(data)
    return len(data) // 1000


def jpeg(picture: Image.Image, quality: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
