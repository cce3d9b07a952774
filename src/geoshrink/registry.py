"""Registry: objects by their names, open to others. Rules, meshes and solvers have one each."""

from __future__ import annotations

import re
from typing import Any, TypeVar

Item = TypeVar("Item")


class Registry(dict[str, Item]):
    """A dict that refuses what is not of its kind, and names that are taken or badly written.

    what    in a word, for errors and for the public function register_<what>
    kind    the class of its objects, or of which they are subclasses; each has a name
    """

    def __init__(self, what: str, kind: type[Item]):
        super().__init__()
        self.what, self.kind = what, kind

    def add(self, item: Any) -> None:
        given = item if isinstance(item, type) else type(item)
        if not issubclass(given, self.kind):
            place = self.kind.__module__.rpartition(".")[0]
            raise TypeError(
                f"register_{self.what} takes a {place}.{self.kind.__name__}, got {item!r}"
            )
        name: Any = getattr(item, "name", None)
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9+-]*", name):
            raise ValueError(
                f"a {self.what}'s name is of small letters, digits, + and hyphens, not {name!r}"
            )
        if name in self:
            raise ValueError(f"{self.what} {name!r} is already registered: choose another name")
        self[name] = item  # type: ignore[assignment]
