"""The scripts in benchmarks/: --help says what they do, and does nothing else."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(p for p in FOLDER.rglob("*.py") if "__main__" in p.read_text(encoding="utf-8"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_does_nothing_else(script, monkeypatch, capsys):
    def write(*_: object, **__: object) -> None:
        raise AssertionError("--help writes")

    monkeypatch.setattr(Path, "write_text", write)
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(str(script.parent))
    try:
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(script), run_name="__main__")
    except ImportError as error:
        pytest.skip(str(error))
    assert end.value.code == 0 and "usage:" in capsys.readouterr().out
