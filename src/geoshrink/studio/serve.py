"""The server: on this machine only unless asked, no telemetry, nothing from elsewhere."""

from __future__ import annotations

from typing import Any

from gradio.themes import Default

from .app import App
from .style import css, head


def serve(app: App, host: str, port: int | None, share: bool, browser: bool, **more: Any) -> Any:
    """Until it is interrupted; with prevent_thread_lock=True it returns at once."""
    blocks = app.blocks()
    blocks.queue(max_size=64)
    return blocks.launch(
        server_name=host,
        server_port=port,
        share=share,
        inbrowser=browser,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        footer_links=["settings"],
        theme=Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
        css=css(),
        head=head(),
        **more,
    )
