"""Prompts from a file: lines of text, JSON lines, or Parquet, here or at an fsspec address."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..pointers import see

FORMATS = (
    "a file with a prompt on each line, JSON lines (.jsonl) or Parquet (.parquet), here or at an "
    "address like s3://…"
)
#: Names of a row that are no arguments of the call.
PROMPT, SEED = "prompt", "seed"


@dataclass(frozen=True)
class Prompt:
    """One sample that is wanted.

    call   arguments of the model's call beside those of the whole batch
    """

    text: str | None
    seed: int
    call: Mapping[str, Any] = field(default_factory=dict)


def read_prompts(path: str, seed: int = 0) -> list[Prompt]:
    """
    path    FILE.txt: a prompt on each line. FILE.jsonl, FILE.parquet: rows with a prompt, and
            where they have it a seed; what else they have goes into the model's call
    seed    of prompts that have none: the first gets this, each other the next
    """
    content = open_file(path)
    kind = path.rpartition(".")[2].lower()
    try:
        if kind == "parquet":
            rows = parquet_rows(content)
        elif kind in ("jsonl", "ndjson"):
            rows = list(json_rows(content.decode("utf-8-sig")))
        else:
            lines = content.decode("utf-8-sig").split("\n")
            rows = [{PROMPT: line.strip()} for line in lines if line.strip()]
    except (UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not rows:
        raise ValueError(f"{path} holds no prompts")
    return [prompt_of(row, seed + i, f"{path}, row {i + 1}") for i, row in enumerate(rows)]


def prompt_of(row: Mapping[str, Any], seed: int, where: str) -> Prompt:
    given = {name: value for name, value in row.items() if value is not None}
    text, own = given.pop(PROMPT, None), given.pop(SEED, seed)
    if text is not None and not (isinstance(text, str) and text.strip()):
        raise ValueError(f"{where}: a prompt is text, got {text!r}")
    if not isinstance(own, int) or isinstance(own, bool) or own < 0:
        raise ValueError(f"{where}: a seed is a whole number from 0 on, got {own!r}")
    for name, value in given.items():
        if not is_plain(value):
            raise ValueError(f"{where}: {name} is text, a number or a list of them, got {value!r}")
    return Prompt(text, own, given)


def is_plain(value: Any) -> bool:
    """Whether JSON can say it: it is part of a sample's name, and goes into its row."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def json_rows(text: str) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):  # U+2028 is no end of a line
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number} is not JSON ({error}): {line[:80]!r}") from None
        if isinstance(row, str):
            row = {PROMPT: row}
        if not isinstance(row, dict):
            raise ValueError(f'line {number} is not an object like {{"prompt": …}}: {line[:80]!r}')
        yield row


def parquet_rows(content: bytes) -> list[Mapping[str, Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise ImportError("Parquet needs pyarrow: pip install 'geoshrink[batch]'") from None
    try:
        return parquet.read_table(io.BytesIO(content)).to_pylist()
    except ArrowInvalid as error:
        raise ValueError(f"it is no Parquet file ({error})") from None


def open_file(path: str) -> bytes:
    """A file here, or at an address like s3://…"""
    opened = fsspec().open if "://" in path else open
    try:
        with opened(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, IsADirectoryError):
        told = f"no file of prompts {path!r}: give {FORMATS}"
        raise see(FileNotFoundError(told), "batch") from None


def fsspec() -> Any:
    try:
        import fsspec as found
    except ImportError:
        raise ImportError("addresses need fsspec: pip install 'geoshrink[batch]'") from None
    return found
