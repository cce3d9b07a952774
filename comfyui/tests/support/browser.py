"""A browser on a running ComfyUI: load a workflow file, queue it, read and photograph the nodes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page

READY = "() => window.app?.vueAppReady && window.LiteGraph?.registered_node_types.GeoShrink"
SETTINGS = {
    "Comfy.TutorialCompleted": True,
    "Comfy.Workflow.Persist": False,
    "Comfy.Minimap.Visible": False,
    "Comfy.Graph.CanvasInfo": False,
}
OURS = "geoshrink"
WATCH = """() => {
  window.ended = null;
  for (const kind of ["execution_success", "execution_error", "execution_interrupted"])
    app.api.addEventListener(kind, event => { window.ended = {kind, ...event.detail}; });
}"""
LOAD = "graph => app.loadGraphData(graph, true, false, null, {silentAssetErrors: true})"
QUEUE = "async () => { window.ended = null; return await app.queuePrompt(0, 1); }"
TEXTS = """kind => app.graph.nodes.filter(node => node.type === kind).map(node =>
  String((node.widgets ?? []).find(w => w.name === "$$node-text-preview")?.value ?? ""))"""
MISSING = """() => app.graph.nodes.filter(node => !LiteGraph.registered_node_types[node.type])
  .map(node => node.type)"""
BOUNDS = """() => {
  const boxes = app.graph.nodes.map(({pos, size}) =>
    [pos[0], pos[1] - LiteGraph.NODE_TITLE_HEIGHT, pos[0] + size[0], pos[1] + size[1]]);
  return [0, 1, 2, 3].map(i => Math[i < 2 ? "min" : "max"](...boxes.map(box => box[i])));
}"""
PLACE = """([x, y]) => {
  const {left, top} = app.canvas.canvas.getBoundingClientRect();
  app.canvas.ds.scale = 1;
  app.canvas.ds.offset[0] = x - left;
  app.canvas.ds.offset[1] = y - top;
  app.canvas.setDirty(true, true);
}"""
LEFT, TOP, MARGIN = 140, 180, 24  # pixels that the page's menus take; around a photograph
HIDDEN = ".p-toast { display: none !important }"


def chromium() -> str | None:
    """The browser: $GEOSHRINK_CHROMIUM, or what the system has."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = (os.environ.get("GEOSHRINK_CHROMIUM"), *map(shutil.which, names))
    return next((path for path in found if path), None)


class Browser:
    """ComfyUI's page: `with Browser(url) as browser: browser.load(path)`.

    errors   what the page logged as errors, and exceptions that nobody caught
    """

    def __init__(self, url: str):
        self.url = url
        self.errors: list[str] = []

    def __enter__(self) -> Browser:
        from playwright.sync_api import sync_playwright

        self.playwright = sync_playwright().start()
        try:
            self.browser = self.playwright.chromium.launch(
                executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
            )
            context = self.browser.new_context(viewport={"width": 1600, "height": 1000})
            context.request.post(f"{self.url}/settings", data=SETTINGS)
            self.page: Page = context.new_page()
            self.page.on("console", self._log)
            self.page.on("pageerror", lambda error: self.errors.append(str(error)))
            self.page.goto(self.url)
            self.page.wait_for_function(READY, timeout=60_000)
            self.page.evaluate(WATCH)
        except BaseException:
            self.playwright.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.browser.close()
        self.playwright.stop()

    def _log(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    @property
    def our_errors(self) -> list[str]:
        """Those of `errors` that name our nodes or files; other hosts cannot be reached here."""
        return [it for it in self.errors if OURS in it.lower() and "https://" not in it]

    def load(self, path: Path) -> None:
        """Open a workflow file as the user does; every node type must be known."""
        self.page.evaluate(LOAD, json.loads(path.read_text(encoding="utf-8")))
        if missing := self.page.evaluate(MISSING):
            raise RuntimeError(f"{path.name}: node types that the server lacks: {missing}")

    def prompt(self) -> dict[str, Any]:
        """The graph as the page sends it to the server."""
        return self.page.evaluate("async () => (await app.graphToPrompt()).output")

    def run(self, seconds: float = 300) -> None:
        """Queue the graph and wait for its end."""
        self.page.evaluate(QUEUE)
        self.page.wait_for_function("() => window.ended", timeout=1000 * seconds)
        ended = self.page.evaluate("() => window.ended")
        if ended["kind"] != "execution_success":
            raise RuntimeError(f"{ended['kind']}: {ended.get('exception_message', '')}")

    def texts(self, kind: str) -> list[str]:
        """What is written below the inputs of the nodes of a kind; it comes soon after a run."""
        found = self.page.evaluate(TEXTS, kind)
        for _ in range(20):
            if all(found):
                break
            self.page.wait_for_timeout(250)
            found = self.page.evaluate(TEXTS, kind)
        return found

    def refusals(self) -> list[tuple[str, str]]:
        """Why the server does not take the graph: kinds of errors, and details."""
        reply = self.page.request.post(f"{self.url}/prompt", data={"prompt": self.prompt()})
        nodes = reply.json().get("node_errors", {}).values()
        return [(error["type"], error["details"]) for node in nodes for error in node["errors"]]

    def photograph(self) -> bytes:
        """The graph alone, one pixel of the picture for one of the graph; as PNG."""
        left, top, right, bottom = self.page.evaluate(BOUNDS)
        width, height = int(right - left) + 2 * MARGIN, int(bottom - top) + 2 * MARGIN
        self.page.set_viewport_size({"width": width + 2 * LEFT, "height": height + 2 * TOP})
        self.page.wait_for_timeout(500)
        self.page.evaluate(PLACE, [LEFT + MARGIN - left, TOP + MARGIN - top])
        self.page.wait_for_timeout(1500)  # texts and pictures follow the canvas
        clip = {"x": LEFT, "y": TOP, "width": width, "height": height}
        return self.page.screenshot(clip=clip, style=HIDDEN)  # type: ignore[arg-type]
