"""Whether a command of a page can be given: the words are parsed, nothing is run."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from geoshrink import cli

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECTS = {"geoshrink": ROOT / "pyproject.toml", "geoshrink-bench": ROOT / "bench/pyproject.toml"}


class Parsed(Exception):
    """The words are understood."""


def check_geoshrink(words: Sequence[str]) -> None:
    """`geoshrink WORDS`: the parser of the command takes them."""

    def stop(*_: Any, **__: Any) -> int:
        raise Parsed

    if words[0] in ("--version", "--help", "-h"):
        return
    modules = cli.installed()
    assert words[0] in modules, f"there is no command geoshrink {words[0]}"
    module = importlib.import_module(modules[words[0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "run", stop)
        try:
            cli.main(words)
        except Parsed:
            return
        except SystemExit as end:
            assert end.code == 0, f"geoshrink {' '.join(words)} is not understood"
            return
    raise AssertionError(f"geoshrink {' '.join(words)} was refused")


def check_make(words: Sequence[str]) -> None:
    """`make WORDS`: the targets and the variables are in the Makefile."""
    for word in words:
        name, is_variable, _ = word.partition("=")
        pattern = rf"^{re.escape(name)} \?=" if is_variable else rf"^{re.escape(name)}:"
        assert re.search(pattern, MAKEFILE, re.MULTILINE), f"make {word}: not in the Makefile"


def check_python(words: Sequence[str]) -> None:
    """`python WORDS`: the script or the module is there."""
    if words[0] == "-m":
        module = words[1]
        assert importlib.util.find_spec(module), f"python -m {module}: no such module"
    elif not words[0].startswith("-"):
        assert (ROOT / words[0]).is_file(), f"python {words[0]}: no such file"


def check_pip(words: Sequence[str]) -> None:
    """`pip WORDS`: the extras of our packages are declared."""
    for word in words[1:]:
        name, _, extras = word.rstrip("]").partition("[")
        name = {".": "geoshrink", "./bench": "geoshrink-bench"}.get(name, name)
        if name in PROJECTS:
            project = tomllib.loads(PROJECTS[name].read_text(encoding="utf-8"))["project"]
            known = project.get("optional-dependencies", {})
            wrong = {extra for extra in extras.split(",") if extra} - set(known)
            assert not wrong, f"{word}: {name} has no extra {', '.join(wrong)}"


CHECKS = {
    "geoshrink": check_geoshrink,
    "make": check_make,
    "python": check_python,
    "python3": check_python,
    "pip": check_pip,
}
HARMLESS = {"cd", "mkdir", "export", "git", "tar", "split", "ls", "cat", "."}


def check(words: Sequence[str]) -> bool:
    """Whether it is known that the command can be given; an error where it cannot."""
    if words[0] in CHECKS and len(words) > 1:
        CHECKS[words[0]](words[1:])
    return words[0] in CHECKS or words[0] in HARMLESS
