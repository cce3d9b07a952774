"""The server: on this machine only unless asked, no telemetry, nothing from elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from gradio.themes import Default

from .app import App
from .style import css, head

FONTS: dict[str, Any] = {
    "font": ["system-ui", "sans-serif"],
    "font_mono": ["ui-monospace", "monospace"],
}
LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(app: App, host: str, port: int | None, share: bool, browser: bool) -> None:
    """Until it is interrupted."""
    blocks = app.blocks()
    blocks.queue(max_size=64)
    try:
        _, local, public = blocks.launch(
            server_name=host,
            server_port=port,
            share=share,
            inbrowser=browser,
            quiet=True,
            prevent_thread_lock=True,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            footer_links=["settings"],
            max_file_size=1,  # byte: nothing is uploaded here
            theme=Default(**FONTS),
            css=css(),
            head=head(),
        )
    except OSError:  # gradio's own words name a variable of its own
        where = "from 7860 to 7959" if port is None else str(port)
        raise OSError(
            f"port {where} of {host} is taken or not allowed: give another --port"
        ) from None
    print(f"geoshrink studio: {public or local}    (Ctrl-C stops it)", flush=True)
    if host not in LOCAL and not public:
        words = f"--host {host}: everybody who can reach this machine can use the model"
        print(f"geoshrink studio: {words}", file=sys.stderr)
    try:
        blocks.block_thread()
    finally:
        app.close()
