"""The reference: every public name is there, and its docstring explains each of its options."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import geoshrink
from geoshrink.hosts.options import OPTIONS

ROOT = Path(__file__).parents[1]
DOCSTRINGS = runpy.run_path(str(ROOT / "scripts/docstrings.py"))
#: What **options stands for, by the function that takes it.
GRID = {"prediction", "alphas", "data", "regimes"}
PLANNED = {*inspect.signature(geoshrink.Plan.of).parameters} - {"sigmas"}
FURTHER = {
    "accelerate": {*OPTIONS, "scheduler", "denoisers"},
    "odeint": PLANNED,
    "profile": GRID,
    "Run": PLANNED,
    "sample": PLANNED,
}


def public() -> list[str]:
    """The names that geoshrink exports: those that __init__.py imports as themselves."""
    body = ast.parse(Path(geoshrink.__file__).read_text(encoding="utf-8")).body
    aliases = [a for node in body if isinstance(node, ast.ImportFrom) for a in node.names]
    return sorted(a.name for a in aliases if a.asname == a.name)


def entries() -> dict[str, list[str]]:
    """The names in the reference, with the members that are shown of each."""
    found = {}
    for page in (ROOT / "docs/reference").glob("*.md"):
        for entry in page.read_text(encoding="utf-8").split("\n::: geoshrink.")[1:]:
            name = entry.split()[0]
            assert name not in found, f"{name} is in the reference twice"
            members = re.search(r"^      members: \[(.*)\]$", entry, re.MULTILINE)
            found[name] = [member for member in members[1].split(", ") if member] if members else []
    return found


def options_of(function: Any) -> set[str]:
    """The names of its arguments that a reader has to understand."""
    arguments = inspect.signature(function).parameters.values()
    named = {
        a.name for a in arguments if a.kind is not a.VAR_KEYWORD and a.kind is not a.VAR_POSITIONAL
    }
    return {name for name in named - {"self", "cls"} if not name.startswith("_")}


def test_every_public_name_is_in_the_reference():
    assert sorted(entries()) == public()


@pytest.mark.parametrize("name", public())
def test_a_public_name_explains_its_options(name):
    it = getattr(geoshrink, name)
    if not callable(it):  # what it is stands under it in the source
        return
    told = DOCSTRINGS["explained"](inspect.getdoc(it) or "")
    missing = (options_of(it) | FURTHER.get(name, set())) - set(told)
    assert inspect.getdoc(it) and not missing, f"{name} does not explain {sorted(missing)}"


@pytest.mark.parametrize("name", [name for name, members in entries().items() if members])
def test_members_in_the_reference_explain_their_options(name):
    for member in entries()[name]:
        it = inspect.getattr_static(getattr(geoshrink, name), member)
        it = getattr(it, "__func__", it)
        told = inspect.getdoc(it)
        assert told, f"{name}.{member} has no docstring"
        if inspect.isfunction(it):
            missing = {o for o in options_of(it) if not re.search(rf"\b{o}\b", told)}
            assert not missing, f"{name}.{member} does not explain {sorted(missing)}"


def test_docstrings_become_markdown():
    told = """Does it (docs/quality.md).

        its(code)

    one, two   what | they
               are
    three      a < b

    >>> 1 + 1
    2
    """
    assert DOCSTRINGS["as_markdown"](inspect.cleandoc(told)).split("\n\n") == [
        "Does it ([docs/quality.md](../quality.md)).",
        "    its(code)",
        "| | |\n|---|---|\n| `one`, `two` | what \\| they are |\n| `three` | a &lt; b |",
        "```pycon\n>>> 1 + 1\n2\n```",
    ]
    assert list(DOCSTRINGS["explained"](inspect.cleandoc(told))) == ["one", "two", "three"]
