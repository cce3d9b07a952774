"""A plan as the body of a JSON file, both ways. schemas/plan.schema.json says what is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from reprlib import repr as cut
from typing import Any, TypeVar

from .blocks import Blocks
from .files import digest, version
from .grid import read_grid
from .pointers import explained
from .purpose import Purpose
from .rules import Rule

VERSION = 1
MADE_BY, DIGEST = "geoshrink", "sha256"
PROFILE = "geoshrink profile"  # a key that profiles have (planning/files.py)
LETTERS = 300  # of an error, at most: a stranger may have written what it quotes
Made = TypeVar("Made")


LATER = {
    "correct": None,
    "clock": "sigma",
    "aim": None,
    "slow": (),
    "purpose": None,
}  # left out as long as they are these: older readers


def encoded(plan: Any) -> dict[str, Any]:
    body = asdict(plan) | {"rules": [rule.to_json() for rule in plan.rules], "version": VERSION}
    body["purpose"] = None if plan.purpose is None else plan.purpose.to_json()
    return {name: part for name, part in body.items() if name not in LATER or part != LATER[name]}


def sealed(plan: Any) -> dict[str, Any]:
    """The body of a file: with the geoshrink that wrote it, and a sha256 of all the rest."""
    body = json.loads(json.dumps(encoded(plan))) | {MADE_BY: version()}
    return body | {DIGEST: digest(body)}


def unsealed(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a plan; a ValueError if it has a sha256, and that is of something else."""
    if (recorded := body.pop(DIGEST, None)) is not None and recorded != digest(body):
        raise ValueError(
            f"this plan is damaged (its {DIGEST} is another one): fetch it again; if you changed "
            f"it on purpose, take {DIGEST} out of it"
        )
    body.pop(MADE_BY, None)
    return body


def decoded(kind: type[Made], body: Any) -> Made:
    """The plan, an object of this class; a ValueError if the body is none of it."""
    if isinstance(body, Mapping) and PROFILE in body:
        raise ValueError(
            "this is a profile, from which plans are made: Profile.load(file).plan(budget=10)"
        )
    if not isinstance(body, Mapping) or "version" not in body:
        raise ValueError(f"this is not a geoshrink plan: {json.dumps(body)[:60]!r}")
    body = dict(body)
    if body["version"] != VERSION:
        raise ValueError(
            f"this plan has version {cut(body['version'])}, this geoshrink reads {VERSION}: update "
            "it"
        )
    body = unsealed(body)
    del body["version"]
    try:
        grid, rules = read_grid(body.pop("grid")), [Rule(**rule) for rule in body.pop("rules")]
        anchors, given = tuple(body.pop("anchors")), body.pop("coefficients")
        coefficients = None if given is None else tuple(given)
        blocks = Blocks(**body.pop("blocks"))
        purpose = Purpose.of(body.pop("purpose", None))
        more = {"blocks": blocks, "purpose": purpose, **body}
        return kind(grid, anchors, tuple(rules), coefficients, **more)  # type: ignore[call-arg]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"this plan is damaged: {str(error)[:LETTERS]}") from None


@explained("plans")
def read(kind: Any, file: str | Path) -> Any:
    """The plan in a file, an object of this class; errors name the file."""
    try:
        return kind.from_json(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"plan={str(file)[:200]!r} is not a readable file ({type(error).__name__}): give a "
            "Plan, the path of its JSON file, or the contents as a dict"
        ) from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
