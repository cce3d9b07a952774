"""A suite and a profile on a cluster of two nodes: bit for bit what one process makes."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from batch import QUIET, Command, Nodes, nodes, parts, until

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("alone"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]
SUITE = {
    "name": "tiny",
    "models": {"fruit-latent": {"budgets": [5, 8]}},
    "methods": ["direct", "GeoShrink (corrected)", "FORA"],
    "samples": 2,
    "seeds": 1,
    "converged": 60,
    "metrics": ["PSNR"],
}
TIMED = ("prepared", "seconds")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    with nodes(2, tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite in one process."""
    folder = tmp_path_factory.mktemp("one")
    status, said = suite(folder).end(300)
    assert status == 0 and "6 cells run, 0 kept" in said, said
    return folder / "cells"


def suite(folder: Path, *more: object, env: dict[str, str] | None = None) -> Command:
    (folder / "tiny.yaml").write_text(json.dumps(SUITE))  # JSON is YAML
    words = ("bench", "run", "tiny.yaml", "--out", "cells", *more)
    return Command(folder, *words, env=env or QUIET)


def cells(folder: Path) -> dict[str, Any]:
    """What each cell holds, but for what was timed."""
    found = {}
    for path in folder.glob("*.cell.json"):
        cell = json.loads(path.read_text("utf-8"))
        cell["result"] = {k: v for k, v in cell["result"].items() if k not in TIMED}
        found[path.name] = cell["spec"], cell["result"]
    return found


def references(folder: Path) -> dict[str, tuple[Any, bytes]]:
    return {path.name: contents(path) for path in folder.glob("*.reference.safetensors")}


def contents(path: Path) -> tuple[Any, bytes]:
    """What a file of tensors says, and its numbers: safetensors writes the facts in any order."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.reference.safetensors")}


def test_a_suite_survives_a_lost_worker_and_is_that_of_one_process(
    cluster: Nodes, one: Path, tmp_path: Path
):
    going = suite(tmp_path, "--ray", cluster.address, env=cluster.env)
    out = tmp_path / "cells"
    until(lambda: len(references(out)) == 2 and any(out.glob("*.cell.json")), 200)
    made = stamps(out)
    busy = until(lambda: [pid for pid, at in cluster.workers().items() if at.endswith(".do")], 30)
    os.kill(busy[0], signal.SIGKILL)
    status, said = going.end(300)
    assert status == 0 and "6 cells run, 0 kept from before" in said, said
    assert "a worker was lost" in said
    assert cells(out) == cells(one) and len(cells(out)) == 6
    assert references(out) == references(one)
    assert stamps(out) == made  # each was computed once
    assert (out / "summary.md").read_bytes() == (one / "summary.md").read_bytes()
    assert not parts(out) and not [*out.glob("*.error.json")]

    status, said = suite(tmp_path, "--ray", cluster.address, env=cluster.env).end(300)
    assert status == 0 and "0 cells run, 6 kept from before" in said, said
    assert stamps(out) == made


def test_a_suite_by_two_processes_is_that_of_one(one: Path, tmp_path: Path):
    status, said = suite(tmp_path, "--workers", 2).end(300)
    out = tmp_path / "cells"
    assert status == 0 and "6 cells run, 0 kept from before" in said, said
    assert cells(out) == cells(one) and references(out) == references(one)


def test_a_reference_is_made_by_one_worker(cluster: Nodes, one: Path, tmp_path: Path):
    """While it is made, the other one waits: no cell is there before both references."""
    going = suite(tmp_path, "--ray", cluster.address, env=cluster.env)
    out, most = tmp_path / "cells", [0]

    def there() -> bool:
        doing = [at for at in cluster.workers().values() if at.endswith(".do")]
        most[0] = max(most[0], len(doing))
        return len(references(out)) == 2

    until(there, 200)
    assert most[0] <= 1
    assert going.end(300)[0] == 0 and cells(out) == cells(one)


def test_a_profile_is_that_of_one_process(cluster: Nodes, tmp_path: Path):
    words = ("plan", "fruit-latent", "--samples", 4, "--steps", 8, "--batch", 2, "--budget", 4)
    told = []
    for name, more, env in (
        ("one", (), QUIET),
        ("many", ("--ray", cluster.address), cluster.env),
    ):
        out = "--out", f"{name}.json", "--plan", f"{name}.plan.json"
        status, said = Command(tmp_path, *words, *out, *more, env=env).end(300)
        assert status == 0, said
        files = [tmp_path / f"{name}.json", tmp_path / f"{name}.plan.json"]
        told.append([path.read_bytes() for path in files])
    assert told[0] == told[1]
