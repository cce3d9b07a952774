"""The Makefile: its help names every target for people, and a tag cannot be a command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not here")


def make(*words: str, **env: str) -> str:
    command = ["make", "--silent", "--no-print-directory", *words]
    made = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return made.stdout


@needs_make
def test_the_help_has_a_line_for_every_target_and_no_other():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony is not None
    lines = make("help").splitlines()
    named = [re.match(r"make ([a-z-]+): \S", line) for line in lines]
    assert all(named), lines
    assert sorted(found[1] for found in named if found) == sorted(set(phony[1].split()) - {"help"})


@needs_make
@pytest.mark.parametrize("tag", ["v0.1.0", 'v1"; echo bad $(echo worse) `echo worst`'])
def test_a_tag_is_one_word_whatever_it_holds(tag):
    assert (
        make("release-check", "PYTHON=echo", TAG=tag) == f"scripts/release_check.py --tag {tag}\n"
    )


@needs_make
def test_a_release_is_checked_without_a_tag():
    assert make("release-check", "PYTHON=echo", TAG="") == "scripts/release_check.py\n"
