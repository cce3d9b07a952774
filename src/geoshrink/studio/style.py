"""The styles and scripts of page/ inside somebody else's page: only within the class geoshrink."""

from __future__ import annotations

import re

from ..compare.kinds import all_kinds
from ..page.document import OWN, SCRIPTS, STYLES, resources
from .panel import SCOPE

HERE = "geoshrink.studio"
LEFT_OUT = ("colours.css", "style.css")  # the colours are set below; the rest is gradio's


def css() -> str:
    """Dark where gradio is, which follows the system unless the address says otherwise."""
    all_kinds()
    light, dark = re.findall(r":root\s*\{([^}]*)\}", resources([(OWN, "colours.css")]))
    own = resources([place for place in STYLES if place[1] not in LEFT_OUT])
    return "\n".join(
        [
            f".{SCOPE} {{{light}}}",
            f".dark .{SCOPE} {{{dark}}}",
            f".{SCOPE} {{{own}}}",
            resources([(HERE, "studio.css")]),
        ]
    )


def head() -> str:
    """Scripts, for the head of the page."""
    all_kinds()
    return f"<script>{resources(SCRIPTS)}{resources([(HERE, 'studio.js')])}</script>"
