"""Shelf: the plans and profiles of a place, which its index.json lists: push, find, pull."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as cut
from typing import Any

from ..files import write_whole
from ..plan import Plan
from ..plan_json import DIGEST, MADE_BY, PROFILE, sealed
from ..planning import Profile
from ..planning.files import text_of
from ..purpose import Purpose
from .entry import HASH, LIMITS, Entry, check_words, decoded, described, read_profile
from .place import Place

INDEX, KIND, VERSION = "index.json", "geoshrink index", 1
INDEX_BYTES = 16 * 2**20
#: What entries are found by, beside sha256.
FACTS = ("model", "network", "scheduler", "steps", "guidance")


@dataclass(frozen=True)
class Query:
    """What is wanted; None: whatever it is.

    model, scheduler, network   a part of the name is enough, in whatever case
    guidance                    a number that the file's is, or whose range holds it
    sha256                      the beginning of it
    """

    model: str | None = None
    scheduler: str | None = None
    network: str | None = None
    steps: int | None = None
    guidance: float | None = None
    budget: int | None = None
    kind: str | None = None
    sha256: str | None = None

    def difference(self, entry: Entry) -> dict[str, str]:
        """In what an entry is not what is wanted: words by fact, what matters most first."""
        its, found = entry.purpose, dict[str, str]()
        for name in ("model", "scheduler", "network"):
            wanted = getattr(self, name)
            if wanted is not None and wanted.casefold() not in getattr(its, name).casefold():
                found[name] = f"{name} {getattr(its, name) or 'not known'}"
        if self.steps not in (None, its.steps):
            found["steps"] = f"{its.steps} steps"
        if self.guidance is not None:
            low, high = its.range or (float("nan"), float("nan"))
            if not low - 1e-6 <= self.guidance <= high + 1e-6:
                found["guidance"] = f"guidance {its.guidance if its.range else 'not known'}"
        if self.budget not in (None, entry.budget):
            calls = f"budget {entry.budget}" if entry.budget else "a profile, of no budget"
            found["budget"] = calls
        if self.kind not in (None, entry.kind):
            found["kind"] = f"a {entry.kind}"
        if self.sha256 is not None and not entry.sha256.startswith(self.sha256.lower()):
            found["sha256"] = f"sha256 {entry.sha256[:8]}"
        return found


@dataclass(frozen=True)
class Shelf:
    """
    address   a folder, or an address: http(s):// to pull from, any that fsspec knows for both
    """

    address: str
    place: Place = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", Place(self.address))

    def entries(self) -> list[Entry]:
        """All that the index lists, the latest first."""
        try:
            content = self.place.read(INDEX, INDEX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(
                f"there are no plans in {self.address}: it has no {INDEX}. geoshrink plans push "
                "FILE PLACE begins one"
            ) from None
        return read_index(content, self.address)

    def find(self, query: Query) -> list[Entry]:
        return [entry for entry in self.entries() if not query.difference(entry)]

    def push(self, file: str | Path, told: Purpose | None = None) -> Entry:
        """Puts a plan or a profile there, and into the index.

        told   facts that the file does not have; one that contradicts it is an error
        """
        self.place.check_writable()
        content = prepared(Path(file), told or Purpose())
        entry = described(content)
        with self.place.alone():
            try:
                known = read_index(self.place.read(INDEX, INDEX_BYTES), self.address)
            except (FileNotFoundError, NotADirectoryError):
                known = []
            self.place.write(entry.file, content)
            others = [other for other in known if other.sha256 != entry.sha256]
            listed = [each.to_json() for each in (entry, *others)]
            index = json.dumps({KIND: VERSION, "entries": listed}, indent=1) + "\n"
            self.place.write(INDEX, index.encode())
        return entry

    def pull(self, entry: Entry, out: str | Path = ".") -> Path:
        """Fetches a file, checks that it is what the index says, and writes it; its path.

        out   a file, or a folder in which it gets its own name
        """
        try:
            content = self.place.read(entry.file, min(LIMITS[entry.kind], entry.bytes))
        except FileNotFoundError:
            raise ValueError(f"{self.address} lists {entry.file}, but does not have it") from None
        found = described(content)
        if found != entry:
            raise ValueError(
                f"{entry.file} is not what the index of {self.address} says: it is {told(found)}, "
                f"not {told(entry)}; it was not kept"
            )
        folder = Path(out).is_dir() or str(out).endswith(("/", os.sep))
        path = Path(out) / entry.file if folder else Path(out)
        if path.exists() and path.read_bytes() != content:
            raise ValueError(f"{path} is there already, with other contents: name another file")
        return write_whole(path, content)


def told(entry: Entry) -> str:
    calls = f" with {entry.budget} calls" if entry.budget else ""
    return f"a {entry.kind}{calls} for {entry.purpose} (sha256 {entry.sha256[:8]})"


def prepared(file: Path, told: Purpose) -> bytes:
    """The contents of a file to push: with these facts, a sha256, and our version."""
    try:
        return completed(file, file.read_bytes(), told)
    except ValueError as error:
        told_file = str(error) if str(file) in str(error) else f"{file}: {error}"
        raise ValueError(told_file) from None


def completed(file: Path, content: bytes, told: Purpose) -> bytes:
    body = decoded(content)
    check_words(body)
    made: Any = read_profile(body) if PROFILE in body else Plan.from_body(body)
    known = made.facts if isinstance(made, Profile) else made.purpose or Purpose()
    for name in FACTS:
        given, own = getattr(told, name), getattr(known, name)
        if given not in ("", None) and own not in ("", None, given):
            raise ValueError(f"{file} is for {name} {own!r}, not {given!r}: leave --{name} out")
    purpose = known.filled(told)
    if {DIGEST, MADE_BY} <= set(body) and purpose == known:
        return content  # whole already
    made = replace(made, purpose=purpose)
    text = text_of(made) if isinstance(made, Profile) else json.dumps(sealed(made))
    return f"{text}\n".encode()


def read_index(content: bytes, address: str) -> list[Entry]:
    """The entries of an index; a ValueError if it is none, or one of them is damaged."""
    try:
        body = json.loads(content.decode("utf-8"))
        if not isinstance(body, dict) or KIND not in body:
            raise ValueError(f"it has no {KIND!r}: {cut(body)}")
        if body[KIND] != VERSION:
            told = f"it has version {cut(body[KIND])}, this geoshrink reads {VERSION}"
            raise ValueError(told)
        if not isinstance(listed := body.get("entries"), list):
            raise ValueError(f"its entries are a list, got {cut(listed)}")
        return [Entry.of(each) for each in listed]
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"the {INDEX} of {address} cannot be read: {error}") from None


def check_hash(given: str | None) -> None:
    if given is not None and not (
        0 < len(given) <= 64 and HASH.fullmatch(given.lower().ljust(64, "0"))
    ):
        raise ValueError(f"--sha256 is up to 64 hexadecimal digits, got {given[:80]!r}")


def nearest(query: Query, entries: Sequence[Entry]) -> str:
    """What comes closest to a query that nothing answers, in words."""
    order = [*Query.__dataclass_fields__]
    apart = [query.difference(entry) for entry in entries]
    apart.sort(key=lambda facts: (len(facts), -min(map(order.index, facts))))
    return f"the nearest has {', '.join(apart[0].values())}" if apart else "there is nothing"
