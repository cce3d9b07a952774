"""The prompts of a file, and which of them a suite takes.

A file of one prompt a line (.txt), a table with a column "prompt" or "caption" (.csv, .tsv), or a
JSON list of strings or of objects with "prompt", "prompt_en" or "caption"; "id" or "caption_id" is
the identifier that some benchmarks name their files by. Blank lines and rows are left out. For
models that are given pictures: a folder of them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

TEXTS = ("prompt", "prompt_en", "caption")
IDENTIFIERS = ("id", "caption_id")
#: Which `count` of n prompts: all there are, the first, every (n/count)-th, or the least hashes.
TAKES = ("all", "first", "interval", "hash")
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


@dataclass(frozen=True)
class Prompt:
    """A text, or the name of a picture and its file."""

    text: str
    identifier: str
    file: str | None = None
    known: str | None = None  # the picture's hash, where its file need not be at hand

    @property
    def given(self) -> str:
        """What the model is given."""
        return self.file or self.text

    @cached_property
    def picture(self) -> str | None:
        """A hash of the picture."""
        if self.known:
            return self.known
        file = Path(self.given)
        if file.suffix.lower() not in PICTURES or not file.is_file():
            return None
        return hashlib.sha256(file.read_bytes()).hexdigest()[:20]


def read(source: str | Path | Sequence[str]) -> list[Prompt]:
    """All prompts of a file, or of a list of them; all pictures of a folder."""
    if not isinstance(source, (str, Path)):
        return numbered(list(source), "the list of prompts")
    path = Path(source)
    if path.is_dir():
        return pictures(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of prompts {str(source)!r}")
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".json":
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from None
    elif path.suffix in (".csv", ".tsv"):
        between = "\t" if path.suffix == ".tsv" else ","
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=between)
        found = [{str(k).lower(): v for k, v in row.items()} for row in rows]
        found = [row for row in found if not blank(row)]
    else:
        found = [line.strip() for line in text.splitlines() if line.strip()]
    if not isinstance(found, list) or not found:
        raise ValueError(f"{path} holds no prompts: it should be a list of them")
    return numbered(found, str(path))


def pictures(folder: Path) -> list[Prompt]:
    """By their names in the folder, without what follows the dot."""
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in PICTURES)
    if not found:
        raise ValueError(f"{folder} holds no pictures ({', '.join(PICTURES)})")
    names = [path.relative_to(folder).with_suffix("").as_posix() for path in found]
    return [Prompt(name, name, str(path)) for name, path in zip(names, found)]


def blank(row: Mapping[str, Any]) -> bool:
    """Whether a table's row has a column of prompts and nothing in it."""
    texts = [row[key] for key in TEXTS if key in row]
    return bool(texts) and not any(text and text.strip() for text in texts)


def numbered(found: Sequence[Any], where: str) -> list[Prompt]:
    prompts = []
    for i, item in enumerate(found):
        text, identifier = item, f"{i:05}"
        if isinstance(item, Mapping):
            text = next((item[key] for key in TEXTS if key in item), None)
            identifier = next((str(item[key]) for key in IDENTIFIERS if key in item), identifier)
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"{where}: number {i + 1} has no prompt in {' or '.join(TEXTS)}, is {item!r:.80}"
            )
        prompts.append(Prompt(text.strip(), identifier))
    return prompts


def taken(prompts: Sequence[Prompt], count: int, take: str) -> list[Prompt]:
    """The `count` prompts that a suite compares.

    >>> [p.text for p in taken(numbered("abcdef", ""), 3, "interval")]
    ['a', 'c', 'e']
    """
    n = len(prompts)
    if n < count or (take == "all" and n != count):
        raise ValueError(
            f"the suite takes {count} prompts ({take}), but there are {n}: give the whole file, or "
            f"change its prompts"
        )
    if take == "interval":
        return [prompts[i * n // count] for i in range(count)]
    if take == "hash":
        return sorted(prompts, key=lambda p: hashlib.sha256(p.text.encode()).hexdigest())[:count]
    return list(prompts[:count])


def spare(prompts: Sequence[Prompt], used: Sequence[Prompt], count: int) -> list[Prompt]:
    """Some that are not compared, to calibrate methods on."""
    texts = {prompt.text for prompt in used}
    return [prompt for prompt in prompts if prompt.text not in texts][:count]
