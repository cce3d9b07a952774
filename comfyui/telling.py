"""A text on a node, with no JavaScript: ComfyUI's progress text."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def tell(node_id: Any) -> Callable[[str], None]:
    """A function that shows a text on the node; where no server runs, it does nothing."""

    def show(text: str) -> None:
        here = import_module("server")  # ComfyUI's; not there when it is used as a library
        server = getattr(here.PromptServer, "instance", None)
        if server is not None and hasattr(server, "send_progress_text"):
            server.send_progress_text(text, str(node_id))

    def quietly(text: str) -> None:
        try:
            show(text)
        except Exception:  # a text is not worth a picture
            return

    return quietly
