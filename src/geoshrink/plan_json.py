"""A plan as the body of a JSON file, both ways."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from .blocks import Blocks
from .grid import read_grid
from .rules import Rule

VERSION = 1
Made = TypeVar("Made")


LATER = {
    "correct": None,
    "clock": "sigma",
    "aim": None,
}  # left out as long as they are these: older readers


def encoded(plan: Any) -> dict[str, Any]:
    body = asdict(plan) | {"rules": [rule.to_json() for rule in plan.rules], "version": VERSION}
    return {name: part for name, part in body.items() if name not in LATER or part != LATER[name]}


def decoded(kind: type[Made], body: Any) -> Made:
    """The plan, an object of this class; a ValueError if the body is none of it."""
    if not isinstance(body, Mapping) or "version" not in body:
        raise ValueError(f"this is not a geoshrink plan: {json.dumps(body)[:60]!r}")
    body = dict(body)
    version = body.pop("version")
    if version != VERSION:
        raise ValueError(
            f"this plan has version {version!r}, this geoshrink reads {VERSION}: update it"
        )
    try:
        grid, rules = read_grid(body.pop("grid")), [Rule(**rule) for rule in body.pop("rules")]
        anchors, given = tuple(body.pop("anchors")), body.pop("coefficients")
        coefficients = None if given is None else tuple(given)
        blocks = Blocks(**body.pop("blocks"))
        return kind(grid, anchors, tuple(rules), coefficients, blocks=blocks, **body)  # type: ignore[call-arg]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"this plan is damaged: {error}") from None
