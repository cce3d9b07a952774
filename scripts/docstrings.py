"""Our docstrings as Markdown, for the reference pages (mkdocs.yml names this file).

A line "name   what it is", with two spaces or more between them, begins a table of options; what
is indented under it belongs to it. Doctests become code blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)*) {2,}(?P<text>\S.*)")


def as_markdown(docstring: str) -> str:
    """A docstring with its tables, doctests and links as Markdown has them."""
    text = "\n\n".join(map(paragraph, paragraphs(docstring)))
    return re.sub(r"\bdocs/([\w/-]+)\.md\b", r"[docs/\1.md](../\1.md)", text)


def explained(docstring: str) -> dict[str, str]:
    """What a docstring says of each option, by its name."""
    return {
        name: text
        for block in paragraphs(docstring)
        for names, text in entries(block)
        for name in names.split(", ")
    }


def paragraphs(docstring: str) -> list[str]:
    return [block for block in re.split(r"\n\s*\n", docstring.strip("\n")) if block.strip()]


def paragraph(block: str) -> str:
    """One paragraph, table, doctest or piece of code."""
    if block.startswith(">>> "):
        return f"```pycon\n{block}\n```"
    rows = list(entries(block))
    if not rows:
        return block
    cells = [f"| {coded(names)} | {escaped(text)} |" for names, text in rows]
    return "\n".join(["| | |", "|---|---|", *cells])


def entries(block: str) -> Iterator[tuple[str, str]]:
    """(names, text) of a table of options; nothing where the block is none."""
    lines = block.splitlines()
    if not ENTRY.fullmatch(lines[0]):
        return
    names, text = "", ""
    for line in lines:
        entry = ENTRY.fullmatch(line)
        if entry is None:
            text = f"{text} {line.strip()}"
            continue
        if names:
            yield names, text
        names, text = entry["names"], entry["text"]
    yield names, text


def coded(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


try:
    import griffe
except ImportError:  # the tests read docstrings without it
    pass
else:

    class Markdown(griffe.Extension):
        """Turns every docstring into Markdown as it is read."""

        def on_object(self, *, obj: griffe.Object, **_: object) -> None:
            if obj.docstring is not None:
                obj.docstring.value = as_markdown(obj.docstring.value)
