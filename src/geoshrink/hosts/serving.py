"""What a request to a server may ask of us, and what it is told afterwards.

A server has options of its own; a request may ask for another number of calls, for a quality, or
for an exact run. A request comes from outside: it can name no file, and what is wrong with it makes
its run exact, with the reason in what it is told.
"""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

from ..learning import Learning
from ..report import Report
from ..teaching import is_off
from .options import COUNTED, check_options

KEY = "geoshrink"  # of a request's field, header and report
VARIABLE = "GEOSHRINK"  # of the environment: the server's own options
EXACT = "exact"
#: What a request may say.
ASKED = (EXACT, *COUNTED, "most", "judge")
#: What can go wrong with what somebody has sent.
WRONG = (ArithmeticError, RecursionError, TypeError, ValueError)
#: What gives way to a request that says how many calls it wants.
REPLACED = (*COUNTED, "most", "judge", "plan", "anchors", "coefficients")
KEPT = 256  # kinds of requests whose options are remembered
REASONS, LETTERS = 8, 300  # that a request is told
LONGEST = 2000  # letters of what a request may ask


def read(given: Any) -> dict[str, Any]:
    """Options as a mapping, from a mapping, JSON, or words.

    >>> read("speedup=3, most=12"), read('{"budget": 10}'), read("exact"), read(None)
    ({'speedup': 3, 'most': 12}, {'budget': 10}, {'exact': True}, {})
    """
    if given is None or given == "":
        return {}
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if not isinstance(given, str):
        raise ValueError(f"expected words like speedup=3, or JSON, got {given!r}")
    if len(given) > LONGEST:
        raise ValueError(f"{len(given)} letters are too many: {given[:20]!r} …")
    if given.lstrip().startswith("{"):
        try:
            return read(json.loads(given))
        except (RecursionError, ValueError) as error:
            raise ValueError(f"not valid JSON ({error}): {given!r}") from None
    return dict(read_word(word, given) for word in given.split(","))


def read_word(word: str, given: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in word.partition("="))
    if not equals and name == EXACT:
        return EXACT, True
    if not (name and equals and value):
        raise ValueError(f"expected words like speedup=3, target_db=30 or exact, got {given!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


class Policy:
    """The options of a server, and what they become for a request.

    own   of the server, as for accelerate(); {} or exact: only requests that ask are accelerated
    """

    def __init__(self, own: Any = None):
        options = read(own)
        exact = options.pop(EXACT, not options)
        if not isinstance(exact, bool):
            raise ValueError(f"exact is true or false, got {exact!r}")
        if not is_off(options.get("learn")):
            options["learn"] = Learning.of(options["learn"])  # one for all requests
        self.exact, self.own = exact, options
        check_options(None, options)  # what is wrong with a server's own is said at once
        self.known: OrderedDict[str, tuple[dict[str, Any] | None, str]] = OrderedDict()
        self.lock = Lock()

    @classmethod
    def from_environment(cls) -> Policy:
        try:
            return cls(os.environ.get(VARIABLE))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{VARIABLE}={os.environ[VARIABLE]!r}: {error}") from None

    def options(self, asked: Any = None) -> tuple[dict[str, Any] | None, str]:
        """(checked options of accelerate() for a request, why it is exact though it asked).

        None in place of the options: the request is exact.
        """
        try:
            asked = read(asked)
            name = json.dumps(asked, sort_keys=True)
            if len(name) > LONGEST:
                raise ValueError(f"{len(name)} letters are too many: {name[:20]!r} …")
        except WRONG as error:
            return None, f"{KEY}: {error}"
        with self.lock:
            if name in self.known:
                self.known.move_to_end(name)
                return self.known[name]
        try:
            found = self.merged(asked), ""
        except WRONG as error:
            found = None, f"{KEY}: {error}"
        with self.lock:
            self.known[name] = found
            while len(self.known) > KEPT:
                self.known.popitem(last=False)
        return found

    def merged(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        for word, value in asked.items():
            if word not in ASKED:
                raise ValueError(f"a request may say {', '.join(ASKED)}; got {word!r}")
            if not (value is None or isinstance(value, (bool, int, float, str))):
                raise ValueError(f"{word} is a number or a word, got {value!r}")
        asked = {word: value for word, value in asked.items() if value is not None}
        exact = asked.pop(EXACT, self.exact and not asked)
        if not isinstance(exact, bool):
            raise ValueError(f"exact is true or false, got {exact!r}")
        if exact:
            return None
        own = dict(self.own)
        if any(word in asked for word in COUNTED):
            own = {word: value for word, value in own.items() if word not in REPLACED}
        return check_options(None, {**own, **asked})


def holds_quality(options: Mapping[str, Any]) -> bool:
    """Whether a run decides by what it measures how many calls it makes."""
    plan = options.get("plan")
    return "target_db" in options or (plan is not None and plan.aim is not None)


def told(report: Report | None, why: str = "", steps: int | None = None) -> dict[str, Any]:
    """What a response says of its run, as plain JSON.

    calls         stages at which the model was queried: what was paid for
    steps         stages of the solver; given where there is no report, since all were queried
    forwards      calls of the networks in them, where somebody counts
    estimated_db  about how far from the full run; None if unknown, or if nothing was predicted
    doubtful      it is not to be trusted: fewer steps might do as well
    reasons       what was not as planned
    """
    reasons = [short(why)] if why else []
    if report is None:
        numbers = {"calls": steps, "steps": steps, "forwards": None}
        known = {"exact": True, "estimated_db": None, "doubtful": False, "reasons": reasons}
        return {**numbers, **known}
    db = report.estimated_db
    reasons += [short(f"stage {n}: {reason}") for n, reason in report.reasons]
    return {
        "calls": report.evaluations,
        "steps": report.steps,
        "forwards": report.forwards,
        "exact": not report.predicted,
        "estimated_db": round(db, 1) if db is not None and math.isfinite(db) else None,
        "doubtful": report.doubtful,
        "reasons": reasons[:REASONS],
    }


def short(words: str) -> str:
    """So that it fits into a header, with what a request has said in it."""
    return words if len(words) <= LETTERS else f"{words[:LETTERS]} …"


def joined(before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    """What is told of two runs of one request: calls add up, the worse estimate counts; what is
    not known of one of them is not known of both.
    """
    if before is None:
        return after
    both = before, after
    found: dict[str, Any] = {}
    for name in ("calls", "steps", "forwards"):
        numbers = [one[name] for one in both]
        found[name] = None if None in numbers else sum(numbers)
    known = [one["estimated_db"] for one in both if not one["exact"]]
    return {
        **found,
        "exact": all(one["exact"] for one in both),
        "estimated_db": None if None in known or not known else min(known),
        "doubtful": any(one["doubtful"] for one in both),
        "reasons": [*before["reasons"], *after["reasons"]][:REASONS],
    }
