"""The page itself: sections, style and script in one file that loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from geoshrink.files import write_whole
from geoshrink.page.markup import Markup, Section, element, fill, join, paragraphs

OWN = "geoshrink.page"
STYLES = [
    (OWN, f"{name}.css") for name in ("colours", "style", "comparison", "table", "charts", "stages")
]
SCRIPTS = [(OWN, f"{name}.js") for name in ("start", "comparison", "table")]
#: By its policy the browser itself refuses anything remote; without scripts some parts are hidden.
PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src data: blob: 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style>
<noscript><style>.stage, .reading, .panel > :not(.caption) {{ display: none }}</style></noscript>
</head><body><header><h1>{title}</h1>{lead}</header><main>{sections}</main>{footer}
<script>{script}</script></body></html>
"""


@dataclass(frozen=True)
class Page:
    """A title, a lead (blank lines part its paragraphs), the sections in order, a footer."""

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = ""

    def html(self) -> str:
        return fill(
            PAGE,
            title=self.title,
            style=resources(STYLES),
            lead=paragraphs(self.lead, "lead"),
            sections=join(Markup(part.html()) for part in self.sections),
            footer=element("footer", paragraphs(self.footer)) if self.footer else Markup(),
            script=resources(SCRIPTS),
        )

    def write(self, path: str | Path) -> Path:
        """Write the page whole or not at all: a reader never meets half of it."""
        return write_whole(path, self.html())


def add_files(package: str, *names: str) -> None:
    """Put style sheets (.css) and scripts (.js) of another package on every page from now on."""
    for name in names:
        kept = STYLES if name.endswith(".css") else SCRIPTS
        if (package, name) not in kept:
            kept.append((package, name))


def resources(places: Sequence[tuple[str, str]]) -> Markup:
    """The files (package, name) one after another, written as they stand."""
    return Markup("".join(files(p).joinpath(name).read_text("utf-8") for p, name in places))
