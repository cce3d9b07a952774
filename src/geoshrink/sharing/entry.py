"""Entry: one file of a place, as its index describes it. All of it may come from a stranger."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from reprlib import repr as cut
from typing import Any

from ..plan import Plan
from ..plan_json import DIGEST, MADE_BY, PROFILE
from ..planning import Profile
from ..planning.files import parsed
from ..purpose import MOST, Purpose, check_name, is_count

#: Bytes of a file, at most.
LIMITS = {"plan": 2 * 2**20, "profile": 128 * 2**20}
HASH = re.compile(r"[0-9a-f]{64}")
DIGITS = 16  # of a hash, in a file's name


@dataclass(frozen=True)
class Entry:
    """
    sha256      of the file's contents, as the file itself has it
    kind        "plan" or "profile"
    bytes       of the file
    geoshrink   the version that wrote it
    purpose     what it is for
    budget      model calls of a plan; None for a profile, which plans any
    """

    sha256: str
    kind: str
    bytes: int
    geoshrink: str
    purpose: Purpose
    budget: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, str) or not HASH.fullmatch(self.sha256):
            raise ValueError(f"a sha256 has 64 hexadecimal digits, got {str(self.sha256)[:80]!r}")
        if not isinstance(self.kind, str) or self.kind not in LIMITS:
            raise ValueError(f"a file is a plan or a profile, got kind {str(self.kind)[:60]!r}")
        check_name("geoshrink's version", self.geoshrink)
        if not isinstance(self.bytes, int) or isinstance(self.bytes, bool) or self.bytes < 1:
            raise ValueError(f"bytes are a whole number from 1 on, got {cut(self.bytes)}")
        if self.bytes > LIMITS[self.kind]:
            raise ValueError(f"a {self.kind} of {cut(self.bytes)} bytes is too large to be one")
        if self.budget is not None and not is_count(self.budget):
            told = f"a budget is a whole number from 1 to {MOST}, got {cut(self.budget)}"
            raise ValueError(told)

    @property
    def file(self) -> str:
        """Its name follows from its contents: no index can name another."""
        return f"{self.sha256[:DIGITS]}.{self.kind}.json"

    @classmethod
    def of(cls, given: Any) -> Entry:
        """What an index says."""
        names = {field.name for field in fields(cls)}
        if not isinstance(given, Mapping) or set(given) != names:
            raise ValueError(f"an entry has {', '.join(sorted(names))}, got {str(given)[:80]!r}")
        purpose = Purpose.of(given["purpose"])
        if purpose is None:
            raise ValueError("an entry says what it is for: purpose is missing")
        return cls(**{**given, "purpose": purpose})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "purpose": self.purpose.to_json()}


def described(content: bytes) -> Entry:
    """The entry of a file's contents, read and checked in full; a ValueError if it is neither a
    plan nor a profile, or has no sha256.
    """
    body = decoded(content)
    check_words(body)
    kind = "profile" if PROFILE in body else "plan"
    if not isinstance(body.get(DIGEST), str) or MADE_BY not in body:
        raise ValueError(f"this {kind} has no {DIGEST}, or does not say which geoshrink wrote it")
    if kind == "profile":
        purpose, budget = read_profile(body).facts, None
    else:
        plan = Plan.from_body(body)
        known = Purpose() if plan.purpose is None else plan.purpose
        purpose, budget = known.filled(Purpose(steps=plan.grid.given)), plan.budget
    return Entry(body[DIGEST], kind, len(content), body[MADE_BY], purpose, budget)


def read_profile(body: dict[str, Any]) -> Profile:
    try:
        return parsed(Profile, dict(body), "this file")
    except OverflowError as error:
        raise ValueError(f"this file is damaged ({error}): profile again") from None


def check_words(body: Any) -> None:
    """Refuses control characters, wherever they are and however deep: some of these words will be
    printed.
    """
    left = [body]
    while left:
        part = left.pop()
        if isinstance(part, str) and not part.isprintable():
            raise ValueError(f"this file has control characters in {part[:60]!r}")
        if isinstance(part, (list, dict)):
            left += part if isinstance(part, list) else [*part, *part.values()]


def decoded(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        start = content[:60].decode("utf-8", "replace")
        raise ValueError(f"this is neither a plan nor a profile, or it is damaged: {start!r}")
    return body
