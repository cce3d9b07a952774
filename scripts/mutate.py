"""Mutation testing: one small change at a time, and whether the tests notice it.

    python scripts/mutate.py reserve grid --count 20 --seed 0

Takes names of the table below. Prints killed, survived and the score of each, and every survivor
with its line and the change. A mutant that runs out of time counts as killed.
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
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import hypothesis  # noqa: F401  (in memory before the forks, like the next ones)
import numpy as np  # noqa: F401
import pytest
import torch  # noqa: F401

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "geoshrink"

FILES = ("test_files.py", "test_moved.py", "test_registry.py")
#: What is changed (files or folders of the package) → the tests that have to notice.
TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "reserve": (("history/reserve.py",), ("test_reserve.py",)),
    "meshes": (("meshes",), ("test_anchors.py", "test_meshes.py", "test_universal.py")),
    "grid": (("grid.py", "track.py"), ("test_grid.py",)),
    "report": (("report.py", "history/record.py"), ("test_report.py", "test_report_facts.py")),
    "rules": (("rules",), ("test_rules.py", "test_retention.py")),
    "gains": (("planning/gains.py",), ("test_gains.py",)),
    "plan": (("plan.py",), ("test_plan.py", "test_inputs.py")),
    "run": (
        ("run.py",),
        ("test_run.py", "test_run_ends.py", "test_reserve.py", "test_planning_flow.py"),
    ),
    "history": (("history/slot.py", "history/cell.py"), ("test_run.py", "test_sampling.py")),
    "solvers": (("solvers",), ("test_solvers.py",)),
    "files": (("files.py", "moved.py", "registry.py"), FILES),
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


class Tests:
    """The tests of a target, run in forks of this process on a copy of the package.

    This process has torch in memory already, which saves most of the time of a mutant. Only tests
    that run the changed lines are run (all, where none does: a constant, a default), quick ones
    before slow ones; the first failure ends it.
    """

    def __init__(self, folder: str, names: tuple[str, ...]):
        self.folder = Path(folder)
        self.names = names
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, set[tuple[str, int]]] = {}
        self.limit = 600.0

    def watch(self, files: list[Path]) -> bool:
        """Whether the tests pass as they are; notes how long each takes and which lines it runs."""
        notes = self.folder / "notes.json"
        watch = Watch({str(self.copy_of(f)) for f in files})
        began = monotonic()
        passed = self.run(watch, notes)
        self.limit = 20 + 2 * (monotonic() - began)
        for test, (seconds, lines) in json.loads(notes.read_text(encoding="utf-8")).items():
            self.seconds[test] = seconds
            self.lines[test] = {(file, line) for file, line in lines}
        return passed

    def copy_of(self, file: Path) -> Path:
        return self.folder / "geoshrink" / file.relative_to(PACKAGE)

    def kill(self, mutant: Mutant) -> bool:
        """Whether a test fails, or does not end, with this mutant in place of its file."""
        place = self.copy_of(mutant.file)
        touched = {(str(place), line) for line in mutant.lines}
        order = [test for test in self.lines if self.lines[test] & touched] or list(self.lines)
        order.sort(key=lambda test: self.seconds[test])
        place.write_text(mutant.source, encoding="utf-8")
        try:
            return not self.run(Order(order))
        finally:
            shutil.copy2(mutant.file, place)

    def run(self, plugin: Any, notes: Path | None = None) -> bool:
        arguments = (str(self.folder), self.names, plugin, notes)
        child = multiprocessing.get_context("fork").Process(target=run, args=arguments)
        child.start()
        child.join(self.limit)
        if child.exitcode is None:
            child.kill()
        child.join()
        return child.exitcode == 0


class Watch:
    """A pytest plugin: {test: (seconds, the lines of these files that it runs)}."""

    def __init__(self, files: set[str]):
        self.files = files
        self.notes: dict[str, tuple[float, list[tuple[str, int]]]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        lines: set[tuple[str, int]] = set()

        def inside(frame: Any, event: str, _: Any) -> Any:
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return inside

        def enter(frame: Any, *_: Any) -> Any:
            return inside if frame.f_code.co_filename in self.files else None

        began = monotonic()
        sys.settrace(enter)
        yield
        sys.settrace(None)
        self.notes[item.nodeid] = monotonic() - began, sorted(lines)


class Order:
    """A pytest plugin: only these tests, in this order."""

    def __init__(self, order: list[str]):
        self.order = order

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self.order if test in found]


def run(folder: str, names: tuple[str, ...], plugin: Any, notes: Path | None) -> None:
    paths = [folder, str(ROOT / "bench" / "src")]
    sys.path[:0] = paths
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.pycache_prefix = str(Path(folder) / "compiled")  # the first run writes it
    sys.dont_write_bytecode = notes is None
    os.chdir(ROOT)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading them takes a second
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
    files = [str(ROOT / "tests" / name) for name in names]
    code = pytest.main([*options, *files], plugins=[plugin])
    if notes is not None:
        notes.write_text(json.dumps(plugin.notes), encoding="utf-8")
    os._exit(int(code))


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
        places, names = TARGETS[name]
        files = [f for p in places for f in (sorted((PACKAGE / p).rglob("*.py")) or [PACKAGE / p])]
        every = [mutant for file in files for mutant in mutants(file)]
        chosen = random.Random(args.seed).sample(every, min(args.count, len(every)))
        tried = [mutant for mutant in chosen if mutant.name not in same]
        began = monotonic()
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(PACKAGE, Path(folder) / "geoshrink", ignore=compiled)
            tests = Tests(folder, names)
            if not tests.watch(files):
                print(f"{name}: the tests fail without any change", file=sys.stderr)
                return 1
            alive = 0
            for mutant in tried:
                if not tests.kill(mutant):
                    alive += 1
                    print(f"  survived  line {mutant.line}\n    {mutant.name}", flush=True)
        dead = len(tried) - alive
        print(
            f"{name}: {len(chosen)} of {len(every)} tried, {len(chosen) - len(tried)} equivalent, "
            f"{dead} killed, {alive} survived; score {dead / max(1, len(tried)):.0%}; "
            f"{monotonic() - began:.0f} s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
