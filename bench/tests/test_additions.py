"""The lines of CONTRIBUTING.md: each kind of thing is added from outside the packages."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch

import geoshrink
from cases import small_case
from geoshrink import cli
from geoshrink.hosts.registry import HOSTS
from geoshrink.meshes.registry import MESHES
from geoshrink.rules import RULES
from geoshrink.solvers import SOLVERS
from geoshrink_bench import command
from geoshrink_bench.cases import zoo as running
from geoshrink_bench.methods.registry import METHODS
from geoshrink_bench.metrics.zoo import ADDED

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def block(word: str) -> dict[str, Any]:
    """Runs the lines that have a word in them; what they define."""
    (lines,) = [lines for lines in BLOCKS if word in lines]
    names: dict[str, Any] = {
        "geoshrink": geoshrink,
        "velocity": lambda x, sigma: torch.sin(3 * x) * (1 + sigma),
        "noise": torch.randn(2, 8, generator=torch.Generator().manual_seed(0)),
        "sigmas": [1 - i / 20 for i in range(21)],
    }
    exec(compile(lines, str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize(
    ("word", "registry", "name"),
    [
        ("register_rule", RULES, "half"),
        ("register_mesh", MESHES, "halves"),
        ("register_solver", SOLVERS, "plain"),
    ],
)
def test_rules_meshes_and_solvers(word, registry, name):
    block(word)
    assert name in registry
    del registry[name]


def test_a_host():
    names = block("register_host")
    assert names["handle"].report.evaluations == 10
    HOSTS.remove(next(host for host in HOSTS if host.name == "painter"))


def test_a_rival_a_metric_and_a_suite(tmp_path, monkeypatch):
    def load(name, device="cpu", folder=None):
        model = small_case().model
        model.facts["sha256"] = "0" * 64
        return model

    monkeypatch.setattr(running, "load", load)
    suite = block("register_method")["suite"]
    try:
        progress = command.run(suite, tmp_path, quiet=True)
        assert not progress.failed
        text = (tmp_path / "summary.md").read_text(encoding="utf-8")
        assert "Thrifty" in text and "largest" in text
    finally:
        METHODS.pop("Thrifty")
        ADDED.clear()


def test_a_command(monkeypatch, tmp_path, capsys):
    (tmp_path / "greeting.py").write_text(
        '"""Greet somebody."""\n'
        "def add_arguments(parser): parser.add_argument('name')\n"
        "def run(args): print('hello', args.name); return 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("greet", "greeting", cli.GROUP)
    monkeypatch.setattr(cli, "entry_points", lambda group: [entry])
    assert cli.main(["greet", "Ada"]) == 0 and "hello Ada" in capsys.readouterr().out
    assert cli.main(["demo"]) == 2 and "pip install geoshrink-bench" in capsys.readouterr().err
