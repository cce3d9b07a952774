"""Mutation testing: one small change at a time, and whether the tests notice it.

    python scripts/mutate.py reserve grid --count 20 --seed 0

Takes names of the table below. Prints killed, survived and the score of each, and every survivor
with its line and the change. A mutant that runs out of time counts as killed. Needs Python 3.11.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from time import monotonic, process_time
from types import CodeType, FunctionType
from typing import Any

import hypothesis  # noqa: F401  (in memory before the forks, like the next ones)
import numpy as np  # noqa: F401
import pytest
import torch

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "geoshrink"
LIMIT = 300  # seconds for a mutant
SLOW = 2.0  # seconds; tests that take longer are shown no mutants
Line = tuple[str, int]

#: What is changed (files or folders of the package) → the tests that have to notice.
TARGETS: dict[str, tuple[str, str]] = {
    "reserve": ("history/reserve.py", "reserve"),
    "meshes": ("meshes", "anchors meshes universal plan"),
    "grid": ("grid.py track.py", "grid"),
    "report": ("report.py history/record.py", "report report_facts"),
    "rules": ("rules", "rules retention"),
    "gains": ("planning/gains.py", "gains"),
    "plan": ("plan.py targets.py methods.py", "plan inputs targets default universal"),
    "run": ("run.py", "run run_ends reserve planning_flow correction default"),
    "history": ("history/slot.py history/cell.py", "run run_ends correction"),
    "correction": ("history/correction.py correction.py clock.py", "correction universal"),
    "response": ("solvers/response.py", "correction correction_schedulers"),
    "solvers": ("solvers", "solvers"),
    "files": ("files.py moved.py registry.py", "files moved registry"),
}
COMPARE = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.Lt, ast.GtE: ast.Lt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node can be changed to."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        yield with_(node, ops=[COMPARE[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not is_text(node):
        yield with_(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield with_(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield from (ast.Constant(node.value * 1.5 or 1.0), ast.Constant(node.value / 2 or -1.0))
    elif isinstance(node, ast.Slice) and (node.lower or node.upper):
        yield with_(node, lower=None, upper=None)
    elif isinstance(node, ast.Return) and not is_none(node.value):
        yield with_(node, value=ast.Constant(None))


def is_none(node: ast.AST | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def with_(node: ast.AST, **fields: object) -> ast.AST:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def is_text(node: ast.BinOp) -> bool:
    """Whether this puts strings together: only the words would change."""
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in (node.left, node.right)
    )


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    where    the statement's first line as it is written, or the changed expression's own
    change   before and after, in words
    place    the number of this change among those with the same words in the same line, from 1
    source   the whole changed file
    lines    those that run the change
    """

    file: Path
    line: int
    where: str
    change: str
    place: int
    source: str
    lines: range

    @property
    def name(self) -> str:
        """The same for the same change, also when lines are added above it."""
        again = f" ({self.place})" if self.place > 1 else ""
        return f"{self.file.relative_to(PACKAGE)} | {self.where} | {self.change}{again}"


def mutants(file: Path) -> Iterator[Mutant]:
    """Every change of a file, without types, words and messages."""
    source = file.read_text(encoding="utf-8")
    written, tree, seen = source.splitlines(), ast.parse(source), Counter()
    skipped = {id(part) for node in ast.walk(tree) if idle(node) for part in ast.walk(node)}
    held = {id(part): s for s in ast.walk(tree) if simple(s) for part in ast.walk(s)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for name, value in ast.iter_fields(node):
            for place, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or id(child) in skipped or name == "annotation":
                    continue
                for changed in changes(child):
                    line = getattr(child, "lineno", getattr(node, "lineno", 0))
                    around: Any = held.get(id(child), child if hasattr(child, "lineno") else node)
                    change = f"{ast.unparse(child)}  →  {ast.unparse(changed)}"
                    put(node, name, place, changed)
                    text = ast.unparse(ast.fix_missing_locations(tree))
                    put(node, name, place, child)
                    where = written[line - 1].strip()
                    seen[where, change] += 1
                    lines = range(around.lineno, around.end_lineno + 1)
                    yield Mutant(file, line, where, change, seen[where, change], text, lines)


def simple(node: ast.AST) -> bool:
    """Whether this is a statement that holds no others."""
    return isinstance(node, ast.stmt) and not hasattr(node, "body")


def put(node: ast.AST, name: str, place: int, child: ast.AST) -> None:
    held = getattr(node, name)
    if isinstance(held, list):
        held[place] = child
    else:
        setattr(node, name, child)


def idle(node: ast.AST) -> bool:
    """What no test has to notice: messages of errors, f-strings, types and imports."""
    typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    kinds = (ast.Raise, ast.JoinedStr, ast.Assert, ast.AnnAssign, ast.ImportFrom)
    return typing or (isinstance(node, kinds) and not getattr(node, "value", None))


class Loop:
    """A pytest plugin: runs the tests once as they are, then once for every mutant, and writes
    {mutant's place in the list: True if a test failed, else the tests to run in the slow way}.

    Everything runs in forks of one process that has collected the tests and run none. A mutant is
    put in place by giving the functions of its file their changed code. Where a changed line has
    run before, on import or in the collection, that is not enough: this is the slow way. A mutant
    meets the tests that run its lines, quick ones before slow ones, until one fails.
    """

    def __init__(self, folder: Path, tried: list[Mutant]):
        self.folder, self.tried = folder, tried
        self.files = {str(copy_of(m.file, folder)) for m in tried}
        self.early: set[Line] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        sys.settrace(follow(self.files, self.early))
        yield
        sys.settrace(None)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        notes = self.folder / "notes.json"
        if not in_fork(lambda: watch(session.items, self.files, notes), 1200):
            return True
        noted = json.loads(notes.read_text(encoding="utf-8"))
        lines = {test: {(file, line) for file, line in noted[test][1]} for test in noted}
        items = [item for item in session.items if noted[item.nodeid][0] < SLOW]
        items.sort(key=lambda item: noted[item.nodeid][0])
        functions = [f for f in gc.get_objects() if isinstance(f, FunctionType)]
        found: list[bool | list[str]] = []
        for mutant in self.tried:
            place = str(copy_of(mutant.file, self.folder))
            touched = {(place, line) for line in mutant.lines}
            own = [item for item in items if lines[item.nodeid] & touched]
            new = changed_code([f for f in functions if f.__code__.co_filename == place], mutant)
            if new is None or touched & self.early:
                others = [item for item in items if item not in own]
                found.append([item.nodeid for item in own + others])
            else:
                limits = [(item, 5 + 5 * noted[item.nodeid][0]) for item in own]
                found.append(not in_fork(lambda n=new, o=limits: patched(n, o), LIMIT))
        (self.folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
        return True


def copy_of(file: Path, folder: Path) -> Path:
    return folder / "geoshrink" / file.relative_to(PACKAGE)


def follow(files: set[str], lines: set[Line]) -> Any:
    """A trace function that notes which lines of these files run."""

    def inside(frame: Any, *_: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return inside

    return lambda frame, *_: inside if frame.f_code.co_filename in files else None


def in_fork(work: Callable[[], bool], limit: float) -> bool:
    """Whether work() is true in a fork of this process, in so many seconds."""
    child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(not work()))
    child.start()
    child.join(limit)
    if child.exitcode is None:
        child.kill()
    child.join()
    return child.exitcode == 0


class Failures:
    """A pytest plugin that counts them."""

    count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.failed


def passes(item: pytest.Item, after: pytest.Item | None) -> bool:
    failures, plugins = Failures(), item.config.pluginmanager
    plugins.register(failures)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
    plugins.unregister(failures)
    return not failures.count


def watch(items: list[pytest.Item], files: set[str], notes: Path) -> bool:
    """Whether the tests pass; writes {test: (seconds, lines it runs)}."""
    found = {}
    for item, after in zip_longest(items, items[1:]):
        lines: set[Line] = set()
        began = monotonic()
        sys.settrace(follow(files, lines))
        passed = passes(item, after)
        sys.settrace(None)
        found[item.nodeid] = monotonic() - began, sorted(lines)
        if not passed:
            return False
    notes.write_text(json.dumps(found), encoding="utf-8")
    return True


def patched(
    new: list[tuple[FunctionType, CodeType]], limits: list[tuple[pytest.Item, float]]
) -> bool:
    """Whether the tests pass with this code in these functions, each in so many seconds of work:
    a mutant that does not end is killed.
    """
    for function, code in new:
        function.__code__ = code
    for (item, seconds), after in zip_longest(limits, [item for item, _ in limits[1:]]):
        most = int(process_time() + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        if not passes(item, after):
            return False
    return True


def changed_code(
    functions: list[FunctionType], mutant: Mutant
) -> list[tuple[FunctionType, CodeType]] | None:
    """The code of a mutant for the functions of its file; None if it does not fit into them."""
    before = codes(compile(mutant.file.read_text(encoding="utf-8"), "", "exec"))
    after = codes(compile(mutant.source, "", "exec"))
    changed = {place_of(b): a for b, a in zip(before, after)}
    found = []
    for function in functions:
        old = function.__code__
        code = changed[place_of(old)]
        if len(before) != len(after) or code.co_freevars != old.co_freevars:
            return None
        found.append((function, code.replace(co_filename=old.co_filename)))
    return found


def place_of(code: Any) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno  # the first is of Python 3.11


def codes(code: CodeType) -> list[CodeType]:
    """A code object and all that are in it, in order."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [code, *(found for c in inner for found in codes(c))]


class Order:
    """A pytest plugin: only these tests, in this order."""

    def __init__(self, order: list[str]):
        self.order = order

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self.order if test in found]


def run(folder: Path, names: list[str], plugin: Any) -> bool:
    """Whether pytest ends well on the copy of the package in this folder."""
    paths = [str(folder), str(ROOT / "bench" / "src")]
    sys.path[:0] = paths
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading them takes a second
    sys.pycache_prefix = str(folder / "compiled")  # the loop writes it
    sys.dont_write_bytecode = not isinstance(plugin, Loop)
    os.chdir(ROOT)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in names]
    return not pytest.main([*options, *files], plugins=[plugin])


def survivors(folder: Path, names: list[str], tried: list[Mutant]) -> list[Mutant] | None:
    """The mutants that no test notices; None if tests fail without any change."""
    found, alive = folder / "found.json", []
    in_fork(lambda: run(folder, names, Loop(folder, tried)), 36_000)
    if not found.exists():
        return None
    for mutant, seen in zip(tried, json.loads(found.read_text(encoding="utf-8"))):
        if isinstance(seen, list):
            place = copy_of(mutant.file, folder)
            place.write_text(mutant.source, encoding="utf-8")
            seen = not in_fork(lambda order=seen: run(folder, names, Order(order)), LIMIT)
            shutil.copy2(mutant.file, place)
        if not seen:
            alive.append(mutant)
    return alive


def equivalent() -> set[str]:
    """The names of the mutants that docs/mutation.md lists as the same program."""
    rows = (ROOT / "docs" / "mutation.md").read_text(encoding="utf-8").splitlines()
    return {row.removeprefix("    ") for row in rows if row.startswith("    ")}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="+", choices=TARGETS)
    parser.add_argument("--count", type=int, default=20, help="mutants of each target (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of mutants (0)")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    compiled = shutil.ignore_patterns("__pycache__")
    gc.freeze()
    same = equivalent()
    for name in args.targets:
        places, names = (words.split() for words in TARGETS[name])
        files = [f for p in places for f in (sorted((PACKAGE / p).rglob("*.py")) or [PACKAGE / p])]
        every = [mutant for file in files for mutant in mutants(file)]
        chosen = random.Random(args.seed).sample(every, min(args.count, len(every)))
        tried = [mutant for mutant in chosen if mutant.name not in same]
        began = monotonic()
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(PACKAGE, Path(folder) / "geoshrink", ignore=compiled)
            alive = survivors(Path(folder), names, tried)
        if alive is None:
            print(f"{name}: the tests fail without any change", file=sys.stderr)
            return 1
        for mutant in alive:
            print(f"  survived, line {mutant.line}\n    {mutant.name}")
        dead = len(tried) - len(alive)
        print(
            f"{name}: {len(chosen)} of {len(every)} tried, {len(chosen) - len(tried)} equivalent, "
            f"{dead} killed, {len(alive)} survived; score {dead / max(1, len(tried)):.0%}; "
            f"{monotonic() - began:.0f} s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
