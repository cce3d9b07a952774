"""Mutation testing: one small change at a time, and whether the tests notice it.

    python scripts/mutate.py reserve grid --count 20 --seed 0

Takes names of the table below. Prints killed, survived and the score of each, and every survivor
with its line and the change. A mutant that runs out of time counts as killed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np  # noqa: F401  (in memory before the forks)
import pytest
import torch  # noqa: F401

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "geoshrink"

#: What is changed (files or folders of the package) → the tests that have to notice.
TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "reserve": (("history/reserve.py",), ("test_reserve.py",)),
    "meshes": (("meshes",), ("test_anchors.py", "test_meshes.py", "test_universal.py")),
    "grid": (("grid.py", "track.py"), ("test_grid.py",)),
    "report": (("report.py", "history/record.py"), ("test_report.py",)),
    "rules": (("rules",), ("test_rules.py", "test_retention.py")),
    "gains": (("planning/gains.py",), ("test_gains.py",)),
    "plan": (("plan.py",), ("test_plan.py", "test_inputs.py")),
    "run": (("run.py",), ("test_run.py", "test_reserve.py")),
    "history": (("history/slot.py", "history/cell.py"), ("test_run.py", "test_sampling.py")),
    "solvers": (("solvers",), ("test_solvers.py",)),
    "files": (("files.py", "moved.py", "registry.py"), ("test_files.py", "test_moved.py")),
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
    elif isinstance(node, ast.Return) and node.value is not None:
        yield with_(node, value=ast.Constant(None))


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


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, the change in words, the changed source), without types, words and messages."""
    tree = ast.parse(source)
    skipped = {id(part) for node in ast.walk(tree) if idle(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for name, value in ast.iter_fields(node):
            for place, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or id(child) in skipped or name == "annotation":
                    continue
                for changed in changes(child):
                    before = ast.unparse(child)
                    line = getattr(child, "lineno", getattr(node, "lineno", 0))
                    put(node, name, place, changed)
                    words = f"{before}  →  {ast.unparse(changed)}"
                    yield line, words, ast.unparse(ast.fix_missing_locations(tree))
                    put(node, name, place, child)


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


def killed(file: Path, source: str, tests: tuple[str, ...], limit: float) -> bool:
    """Whether the tests fail on a copy of the package with this source in place of the file.

    They run in a fork of this process, which has torch in memory already: that saves most of the
    time of a mutant.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "geoshrink"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / file.relative_to(PACKAGE)).write_text(source, encoding="utf-8")
        child = multiprocessing.get_context("fork").Process(target=run, args=(folder, tests))
        child.start()
        child.join(limit)
        if child.exitcode is None:
            child.kill()
        child.join()
        return child.exitcode != 0


def run(folder: str, tests: tuple[str, ...]) -> None:
    paths = [folder, str(ROOT / "bench" / "src")]
    sys.path[:0] = paths
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    os.chdir(ROOT)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    os._exit(int(pytest.main([*options, *(str(ROOT / "tests" / name) for name in tests)])))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="+", choices=TARGETS)
    parser.add_argument("--count", type=int, default=20, help="mutants of each target (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of mutants (0)")
    parser.add_argument("--limit", type=float, default=180, help="seconds for a mutant (180)")
    args = parser.parse_args(arguments)
    for name in args.targets:
        places, tests = TARGETS[name]
        files = [f for p in places for f in (sorted((PACKAGE / p).rglob("*.py")) or [PACKAGE / p])]
        unchanged = files[0].read_text(encoding="utf-8")
        if killed(files[0], unchanged, tests, 10 * args.limit):
            print(f"{name}: the tests fail without any change", file=sys.stderr)
            return 1
        every = [(f, *m) for f in files for m in mutants(f.read_text(encoding="utf-8"))]
        chosen = random.Random(args.seed).sample(every, min(args.count, len(every)))
        alive = 0
        for file, line, words, source in chosen:
            if not killed(file, source, tests, args.limit):
                alive += 1
                print(f"  survived  {file.relative_to(PACKAGE)}:{line}  {words}", flush=True)
        dead = len(chosen) - alive
        score = f"{dead / max(1, len(chosen)):.0%}"
        print(f"{name}: {dead} killed, {alive} survived of {len(every)}; score {score}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
