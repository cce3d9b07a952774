"""Which code made a cell, and whether that is today's.

Two hashes: of the code behind the method, and of the code that runs every method alike. A method's
covers its class with all that this names in its file, and whole files of what these import inside
geoshrink and geoshrink_bench.methods, and so on. Comments, docstrings, layout and annotations do
not count; nor do pages, commands and reports, which decide no number.

A file that is imported brings the package that holds it, as in Python: its registry may need it.
The two top packages are left out, since they hold everything. So a method may be called stale
though none of its numbers changes. What neither hash covers: weights and the versions of metrics,
which are in a cell by themselves; and how a modality turns x into what is measured.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import geoshrink
from geoshrink.files import digest

from . import syntax
from .methods.base import Method
from .methods.direct import Again
from .methods.ours import Learned, Ours
from .methods.registry import METHODS, Entry
from .methods.tuning import TUNED
from .zoo.recipes import RECIPES

CURRENT, STALE, UNKNOWN = "current", "stale", "stale: made by unknown code"
FULL = "full"  # what a suite on a checkpoint calls the full run
LENGTH = 16  # hexadecimal digits of a hash
FOLLOWED = ("geoshrink", "geoshrink_bench.methods")
LEFT_OUT = ("geoshrink.batch", "geoshrink.cli", "geoshrink.commands", "geoshrink.compare")
LEFT_OUT += ("geoshrink.files", "geoshrink.moved", "geoshrink.page", "geoshrink.studio")


class Part(NamedTuple):
    """A file, or one definition of it with what it needs there."""

    module: str
    name: str = ""


#: What a form of ours runs in: the case calls it, not the method's file.
OURS_IN = {
    "zoo": Part("geoshrink.sampling"),
    "foreign": Part("geoshrink.sampling"),
    "checkpoint": Part("geoshrink.hosts"),
}
ALIKE = (Part("geoshrink_bench.methods.registry", "Entry"), Part("geoshrink_bench.lab"))
#: The loop in which every method steps on the zoo, the full run too. A Run that queries at every
#: stage is the plain solver to the last bit, by the tests, so that run.py is left out.
LOOP = (
    Part("geoshrink.sampling"),
    Part("geoshrink.solvers.euler"),
    Part("geoshrink.grid"),
    Part("geoshrink.track"),
)
ZOO = (*ALIKE, *LOOP, Part("geoshrink_bench.cases.zoo"), Part("geoshrink_bench.cases.zoo_case"))
#: What runs every method alike, by the kind of case; these files alone, without their imports.
RUNNERS = {
    "zoo": (
        *ZOO,
        Part("geoshrink_bench.zoo.model"),
        Part("geoshrink_bench.zoo.network"),
        Part("geoshrink_bench.zoo.autoencoder"),
    ),
    "foreign": (
        *ZOO,
        Part("geoshrink_bench.foreign.model"),
        Part("geoshrink_bench.foreign.schedules"),
    ),
    "checkpoint": (
        *ALIKE,
        Part("geoshrink_bench.cases.checkpoint"),
        Part("geoshrink_bench.paper.host"),
        Part("geoshrink_bench.paper.loop"),
        Part("geoshrink_bench.paper.pipelines"),
        Part("geoshrink_bench.paper.upstream"),
    ),
}


class Code:
    """The sources of the two packages, as they were when this was made.

    roots   the folder of each
    """

    def __init__(self, roots: Mapping[str, Path]):
        self.texts = {
            module_name(package, path.relative_to(folder)): (path.name, path.read_text("utf-8"))
            for package, folder in roots.items()
            for path in sorted(folder.rglob("*.py"))
        }
        self.modules: dict[str, syntax.Module | None] = {}
        self.hashes: dict[str, str] = {}
        self.known: dict[Any, dict[str, str]] = {}

    def of(self, spec: Mapping[str, Any]) -> dict[str, str]:
        """What a cell says of the code that makes it; a method without a source is left out."""
        kind, options = kind_of(spec), spec.get("options") or {}
        key = digest([kind, spec["method"], options]), id(METHODS.get(spec["method"]))
        if key not in self.known:
            with uncollected():
                method = self.method(spec["method"], options, kind)
                runner = {"runner": self.runner(kind)}
            self.known[key] = {"method": method, **runner} if method else runner
        return self.known[key]

    def module(self, name: str) -> syntax.Module | None:
        """None where there is no such file: the name of a class, another library's module."""
        if name not in self.modules:
            file, text = self.texts.get(name) or outside(name)
            package = name if file == "__init__.py" else name.rpartition(".")[0]
            self.modules[name] = syntax.Module(package, text) if file else None
        return self.modules[name]

    def hash_of(self, name: str) -> str:
        """Of a whole file."""
        if name not in self.hashes:
            module = self.module(name)
            self.hashes[name] = syntax.digest(module.body) if module else ""
        return self.hashes[name]

    def reached(self, names: Iterable[str]) -> set[str]:
        """The modules with these names, and those that they import, their packages included."""
        found, waiting = set(), list(names)
        while waiting:
            name = waiting.pop()
            if name in found or not follows(name):
                continue
            waiting.append(name.rpartition(".")[0])
            module = self.module(name) if name in self.texts else None
            if module is not None:
                found.add(name)
                waiting += syntax.imports_of(module.body)
        return found

    def behind(self, part: Part) -> dict[str, str]:
        """Hashes by module of all that a part needs; nothing where it has no source."""
        module = self.module(part.module)
        if module is None:
            return {}
        if not part.name:
            return {name: self.hash_of(name) for name in self.reached([part.module])}
        body = module.part(part.name)
        more = self.reached(syntax.imports_of(body)) - {part.module}
        own = {f"{part.module}:{part.name}": syntax.digest(body)}
        return own | {name: self.hash_of(name) for name in more}

    def method(self, name: str, options: Mapping[str, Any], kind: str) -> str | None:
        """The hash of a method as a suite sets it; None where its source is nowhere.

        kind    of case: zoo, foreign or checkpoint
        """
        entry = METHODS.get(Again.name if name == FULL else name)
        if entry is None:
            return None
        parts, state = parts_of(entry)
        if TUNED in options.values():
            parts.append(Part("geoshrink_bench.methods.tuning"))
        if {part_of(Ours), part_of(Learned)} & set(parts):
            parts.append(OURS_IN[kind])
        found = [self.behind(part) for part in parts]
        if not all(found):
            return None
        hashes = {name: hash_ for each in found for name, hash_ in each.items()}
        return digest([hashes, state])[:LENGTH]

    def runner(self, kind: str) -> str:
        """The hash of what runs every method alike."""
        return digest([self.alone(part) for part in RUNNERS[kind]])[:LENGTH]

    def alone(self, part: Part) -> str:
        module = self.module(part.module)
        if module is None:
            raise ValueError(f"{part.module} is not where it was: name its file in code.py")
        return syntax.digest(module.part(part.name)) if part.name else self.hash_of(part.module)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection, which takes longer here than parsing itself."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def module_name(package: str, path: Path) -> str:
    parts = [package, *path.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def outside(name: str) -> tuple[str, str]:
    """The file and text of a module of somebody else that has been imported; empty where none."""
    path = Path(getattr(sys.modules.get(name), "__file__", None) or "")
    return (path.name, path.read_text("utf-8")) if path.suffix == ".py" else ("", "")


@cache
def follows(name: str) -> bool:
    def within(tops: tuple[str, ...]) -> bool:
        return any(name == top or name.startswith(f"{top}.") for top in tops)

    return within(FOLLOWED) and not within(LEFT_OUT) and name != "geoshrink"


def parts_of(entry: Any) -> tuple[list[Part], Any]:
    """Where a method is written, and what it was made with, where it is there already."""
    if not isinstance(entry, Entry):
        return [part_of(entry)], None
    makers: list[Any] = [entry.kind, entry.fit, entry.calibrate and entry.calibrate[1]]
    state = None
    if not isinstance(entry.kind, type) and not inspect.signature(entry.kind).parameters:
        method = entry.kind()
        makers[0], state = type(method), state_of_method(method)
    return list(dict.fromkeys(part_of(maker) for maker in makers if maker)), state


def part_of(maker: Any) -> Part:
    """Of a class, a method of one, or a function."""
    maker = getattr(maker, "func", maker)  # of functools.partial
    owner = getattr(maker, "__self__", maker)
    kind = owner if isinstance(owner, type) or inspect.isfunction(owner) else type(owner)
    return Part(kind.__module__, kind.__qualname__.partition(".")[0])


def state_of_method(method: Method) -> dict[str, str]:
    return {name: repr(value) for name, value in sorted(vars(method).items()) if name != "name"}


def kind_of(spec: Mapping[str, Any]) -> str:
    """The kind of case that a cell ran on."""
    if "setting" not in spec:
        return "checkpoint"
    return "zoo" if spec["setting"]["model"] in RECIPES else "foreign"


#: The code that is installed, read as this module is imported: what runs, however files change.
TODAY = Code(
    {"geoshrink": Path(geoshrink.__file__).parent, "geoshrink_bench": Path(__file__).parent}
)


def state_of(spec: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Whether today's code made a cell: CURRENT, STALE or UNKNOWN."""
    made = result.get("code") or {}
    if not {"method", "runner"} <= set(made):
        return UNKNOWN
    return CURRENT if made == TODAY.of(spec) else STALE
