"""The code blocks of a page: what each is, whether it runs, and what its shell lines ask for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)(`{3,})([\w+-]*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- not run: (\S[^>]*?) -->\s*\Z")
ENDS = ("&", "&&", "|", ">")
PYTHON, SHELL = {"python", "py", "pycon"}, {"sh", "bash", "shell", "console"}
#: What a line of shell, or of Python, begins with: no block may have one and be called text.
BEGINS = r"(?:geoshrink|make|pip) [\w.'\[-]|python3? (?:-m |\S+\.py)"
BEGINS += r"|import \w|from [\w.]+ import |\w+ = geoshrink\."
TELLS = re.compile(f"^(?:{BEGINS})", re.MULTILINE)
INDENTED = re.compile(f"^ {{4}}(?:{BEGINS})", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    line     of its first fence, from 1
    reason   why it is not run, as the comment before it says; None: it is
    """

    page: Path
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page."""
    return list(blocks_in(page, page.read_text(encoding="utf-8")))


def blocks_in(page: Path, text: str) -> Iterator[Block]:
    """The same of a text."""
    for match in FENCE.finditer(text):
        indent, _, language, inside = match.groups()
        mark = MARK.search(text[: match.start()])
        lines = [line.removeprefix(indent) for line in inside.splitlines()]
        number = text.count("\n", 0, match.start()) + 1
        yield Block(page, number, language, "\n".join(lines) + "\n", mark and mark[1])


def unfenced(text: str) -> list[str]:
    """Lines of code that are only indented: nobody would run them. Doctests are run."""
    outside = FENCE.sub("", text)
    return [match[0].strip() for match in INDENTED.finditer(outside)]


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a shell block; of a console's, those after a $."""
    text = block.text
    if block.language == "console":
        text = "".join(f"{line[2:]}\n" for line in text.splitlines() if line.startswith("$ "))
    text = text.replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"\w+=.*", words[0]):  # of the environment
            words = words[1:]
        while words:  # one command after another
            ends = [i for i, word in enumerate(words) if word in ENDS]
            end = ends[0] if ends else len(words)
            found.append(words[:end])
            words = words[end + 1 :] if ends and words[end] == "&&" else []
    return [words for words in found if words]
