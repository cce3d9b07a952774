"""What docs/results.md takes from the other pages of this folder, as it stands there.

Nothing is measured here. A page that has lost a section that is quoted is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent


def read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def made_by(name: str) -> str:
    """The command that made a page, and on what."""
    found = re.search(r"Made by (`[^`]+`)(?:\s+on ([A-Z][\w ]+?))?[:.,\n]", read(name))
    if found is None:
        raise ValueError(f"benchmarks/{name} does not say what it was made by")
    command = re.sub(r" --models( (?!-)[\w-]+)+", " …", found[1])
    return command + (f", {found[2].strip()}" if found[2] else "")


def source(name: str) -> str:
    """A line beneath what is quoted."""
    return f"*From [benchmarks/{name}](../benchmarks/{name}): {made_by(name)}.*"


def section(name: str, heading: str) -> str:
    """The text beneath a heading."""
    parts = re.split(r"^## (.+)$", read(name), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2]))
    if heading not in found:
        raise ValueError(f"benchmarks/{name} has no section {heading!r}; it has {', '.join(found)}")
    return found[heading].strip()


def bullets(name: str, heading: str, start: str = "") -> str:
    """The bullets of a section, those that begin so."""
    lines = [line for line in section(name, heading).splitlines() if line.startswith(f"- {start}")]
    if not lines:
        raise ValueError(f"benchmarks/{name}, {heading}: no bullet begins with {start!r}")
    return "\n".join(lines)


def tables(text: str) -> Iterator[list[list[str]]]:
    """Every pipe table: its heading, then its rows."""
    for block in re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE):
        lines = [
            [cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.splitlines()
        ]
        yield [lines[0], *lines[2:]]


def rows(name: str, heading: str, first: str, labels: tuple[str, ...]) -> str:
    """Some rows of the table of a section whose heading begins so."""
    for table in tables(section(name, heading)):
        if table[0][0] == first:
            kept = [row for row in table[1:] if row[0] in labels]
            if [row[0] for row in kept] != list(labels):
                raise ValueError(f"benchmarks/{name}, {first!r}: not all of {', '.join(labels)}")
            return piped(table[0], kept)
    raise ValueError(f"benchmarks/{name}, {heading}: no table begins with {first!r}")


def piped(heading: Sequence[str], found: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table whose first columns are words."""
    line = "|---" * words + "|--:" * (len(heading) - words) + "|"
    return "\n".join([row_of(heading), line, *map(row_of, found)])


def row_of(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# -- the parts


def others() -> str:
    """The default on models of others and on ours, against direct."""
    names = ("corrected", "slow", "default")
    labels = tuple(f"{w}: {name}" for w in ("models of others", "our models") for name in names)
    told = rows("pace.md", "Against direct", "against direct", labels)
    lost = section("pace.md", "Behind direct")
    return f"{told}\n\n{lost}\n\n{source('pace.md')}"


def sizes() -> str:
    """How the advantage changes with the size of a network."""
    name, parts = "gpu/sizes.md", []
    for heading in ("28 steps, guidance 4.5, shift 3", "50 steps, guidance 3, shift 3"):
        parts.append(f"{heading}, mean of 7, 10, 15 and 20 calls:\n\n{bullets(name, heading)}")
    return "\n\n".join([*parts, source(name)])


def trusted() -> str:
    doubt = bullets("estimate.md", "Losses and misses", "Doubt, the default")
    return f"{doubt}\n\n{source('estimate.md')}"


def held() -> str:
    told = bullets("quality.md", "Misses first")
    return f"{told}\n\n{source('quality.md')}"


def flow() -> str:
    lost = bullets("flow_lines.md", "Losses first")
    came = bullets("flow_lines.md", "What was asked for, and what came")
    return f"{lost}\n\nWhat came:\n\n{came}\n\n{source('flow_lines.md')}"


def speed() -> str:
    """Speed-up on full-size models, of direct's, and memory; a row for each model."""
    heading = ["", "evaluations", "direct", "geoshrink", "of direct's", "extra memory"]
    found = []
    text = read("gpu/CORRECTED.md")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    for model, body in zip(parts[1::2], parts[2::2]):
        table = {row[0]: row for row in next(tables(body))[1:]}
        full, direct, ours = table["full"], table["direct"], table["corrected"]
        found.append([model, f"{ours[1]} of {full[1]}", direct[3], ours[3], ours[4], ours[5]])
    return f"{piped(heading, found)}\n\n{source('gpu/CORRECTED.md')}"
