"""Who may import whom: planning stands on the core, and no import hides in a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import geoshrink

ROOT = Path(geoshrink.__file__).parent
ABOVE = ("adapters", "bench", "cli", "cli_plan", "compare", "demo", "zoo")
FLAT = ("anchors", "checks", "grid", "placement", "plan", "track", "universal", "cli_plan")
OWN = [
    *(ROOT / "planning").glob("*.py"),
    *(ROOT / "adapters" / f"{name}.py" for name in ("handle", "options", "profiling", "recording")),
    *(ROOT / f"{name}.py" for name in FLAT),
]


def relative_imports(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.ImportFrom, bool]]:
    """(import of our own, whether it is inside a function)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.level:
            yield child, inside
        yield from relative_imports(child, inside or isinstance(child, ast.FunctionDef))


@pytest.mark.parametrize("file", OWN, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_are_at_the_top_and_point_down(file):
    below = file.parent.name == "planning"
    for found, inside in relative_imports(ast.parse(file.read_text(encoding="utf-8"))):
        assert not inside, f"line {found.lineno} imports inside a function"
        names = [found.module or "", *(alias.name for alias in found.names)]
        if below and found.level == 2:
            assert not {name.split(".")[0] for name in names} & {*ABOVE}, f"line {found.lineno}"
