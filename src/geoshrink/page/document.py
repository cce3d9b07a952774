"""The page itself: sections, style and script in one file that loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from geoshrink.files import write_whole
from geoshrink.page.markup import Markup, Section, element, join, paragraphs

POLICY = "default-src data: blob: 'unsafe-inline'"  # the browser itself refuses anything remote
OWN = "geoshrink.page"
STYLES = [(OWN, f"{name}.css") for name in ("colours", "style", "comparison", "table", "charts")]
SCRIPTS = [(OWN, "comparison.js"), (OWN, "table.js")]
SCRIPTED = ".stage, .reading, .panel > :not(.caption)"  # of no use where no script runs


@dataclass(frozen=True)
class Page:
    """A title, a lead (blank lines part its paragraphs), the sections in order, a footer."""

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = ""

    def html(self) -> str:
        script = element("script", resources(SCRIPTS))
        body = element("body", self._header(), self._main(), self._footer(), script)
        return "<!doctype html>\n" + element("html", self._head(), body, lang="en") + "\n"

    def write(self, path: str | Path) -> Path:
        """Write the page whole or not at all: a reader never meets half of it."""
        return write_whole(path, self.html())

    def _head(self) -> Markup:
        return element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("link", rel="icon", href="data:,"),
            element("title", self.title),
            element("style", resources(STYLES)),
            element("noscript", element("style", Markup(f"{SCRIPTED} {{ display: none }}"))),
        )

    def _header(self) -> Markup:
        return element("header", element("h1", self.title), paragraphs(self.lead, "lead"))

    def _main(self) -> Markup:
        return element("main", join(Markup(part.html()) for part in self.sections))

    def _footer(self) -> Markup:
        return element("footer", paragraphs(self.footer)) if self.footer else Markup()


def add_files(package: str, *names: str) -> None:
    """Put style sheets (.css) and scripts (.js) of another package on every page from now on."""
    for name in names:
        kept = STYLES if name.endswith(".css") else SCRIPTS
        if (package, name) not in kept:
            kept.append((package, name))


def resources(places: Sequence[tuple[str, str]]) -> Markup:
    """The files (package, name) one after another, written as they stand."""
    return Markup("".join(files(p).joinpath(name).read_text("utf-8") for p, name in places))
