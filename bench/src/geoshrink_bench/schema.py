"""How a suite's file is checked: a function for every key, which quotes what it refuses.

A check is called with where it is and the value, and returns the value as it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoshrink.checks import check_switch, is_number, whole

Check = Callable[[str, Any], Any]
REQUIRED = object()


@dataclass(frozen=True)
class Key:
    """How a key's value is checked, and the value where the key is left out."""

    check: Check
    default: Any = REQUIRED


def checked(where: str, given: Any, keys: Mapping[str, Key], what: str = "key") -> dict[str, Any]:
    """All keys with their values; a required one may not be empty either."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} must be a mapping such as {next(iter(keys))}: …, got {given!r}")
    check_names(where, given, keys, what)
    found = {}
    for name, key in keys.items():
        if key.default is REQUIRED and given.get(name) in (None, [], {}, ()):
            raise ValueError(f"{where} has no {name}")
        found[name] = key.check(f"{where}: {name}", given[name]) if name in given else key.default
    return found


def check_names(where: str, given: Mapping[str, Any], known: Collection[str], what: str) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        known = ", ".join(sorted(known))
        raise ValueError(f"{where}: unknown {what} {unknown[0]!r}; there are {known}")


def anything(where: str, value: Any) -> Any:
    return value


def text(where: str, value: Any) -> str:
    return str(value)


def switch(where: str, value: Any) -> bool:
    check_switch(where, value)
    return value


def count(where: str, value: Any, least: int = 1) -> int:
    if whole(value, where) < least:
        raise ValueError(f"{where} must be at least {least}, got {value!r}")
    return value


def one_of(known: Collection[Any]) -> Check:
    def check(where: str, value: Any) -> Any:
        if value not in known:
            raise ValueError(f"{where}: no {value!r}; there are {', '.join(map(str, known))}")
        return value

    return check


def list_of(each: Check, of: str) -> Check:
    def check(where: str, value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} are a list of {of}, got {value!r}")
        return [each(where, item) for item in value]

    return check


def mapping(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value or {}, Mapping):
        raise ValueError(f"{where} has values by name, got {value!r}")
    return dict(value or {})


def finite(value: Any) -> bool:
    return is_number(value) and not isinstance(value, bool) and math.isfinite(value)


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold keys such as models and methods, not {found!r}")
    return found
