"""benchmarks/claims.py: it prints, writes where it is told to, and is remade from the archive."""

from __future__ import annotations

import importlib.util
import tarfile
from pathlib import Path

import pytest

from cell_pages import without_code
from geoshrink_bench import command, suite
from geoshrink_bench.asked import Asked
from geoshrink_bench.store import Store

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def claims():
    spec = importlib.util.spec_from_file_location("claims", BENCHMARKS / "claims.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(folder, methods):
    """Cells in which the published method is first, the others by their place."""
    models = {"fruit": {"budgets": [3, 4], "guidance": 1.0, "steps": 6}}
    found = suite.read({"samples": 2, "seeds": 1, "models": models, "methods": list(methods)})
    Asked("", found.source).save(folder)
    for cell in found.cells():
        scores = {"PSNR": {"full": [40.0 - methods.index(cell["method"])] * 2}}
        more = {"kind": "fidelity", "converged": 800, "weights": "ab", "version": "1"}
        ran = {"evaluations": cell["budget"], "evaluated": [0, 1, 2], "held": 0}
        Store(folder).write(cell | more, {"scores": scores} | ran)


def test_it_prints_and_writes_only_where_it_is_told(tmp_path, capsys):
    module, before = claims(), (BENCHMARKS / "CLAIMS.md").read_bytes()
    fill(tmp_path / "cells", ["GeoShrink (published)", "direct", *module.BASELINES])
    module.main([str(tmp_path / "cells")])
    text = capsys.readouterr().out
    assert text.count("| 2 of 2 | the settings that ran | yes |") == 6
    assert "| 2 of 2 | all models | yes |" in text
    module.main([str(tmp_path / "cells"), "--out", str(tmp_path / "table.md")])
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == text
    assert (BENCHMARKS / "CLAIMS.md").read_bytes() == before


def test_who_made_fewer_calls_is_counted_apart(tmp_path, monkeypatch):
    module = claims()
    fill(tmp_path, ["GeoShrink (published)", "direct", *module.BASELINES])
    store = Store(tmp_path)
    for spec, result in list(store.cells()):
        if spec["method"] == "FORA" and spec["budget"] == 4:
            store.write(spec, result | {"evaluations": 3})
        elif spec["method"] == "FORA":  # with as many calls it is ahead
            store.write(spec, result | {"scores": {"PSNR": {"full": [50.0, 50.0]}}})
        elif spec["method"] == "TeaCache" and spec["budget"] == 4:  # with fewer calls ahead
            better = {"scores": {"PSNR": {"full": [50.0, 50.0]}}}
            store.write(spec, result | better | {"evaluations": 3})
        elif spec["method"] == "ToCa":
            store.write(spec, result | {"evaluations": 2 * spec["budget"]})
    text = module.table([tmp_path])
    assert "| Ahead of FORA | nearer to the full run | 1 of 2 | 0 of 1 | the settings" in text
    assert "| Ahead of ToCa | nearer to the full run | 2 of 2 | none | the settings" in text
    rows = {line.split(" | ")[0]: line for line in text.splitlines()}
    assert rows["| Ahead of ToCa"].endswith("| not judged |")
    assert rows["| Ahead of TeaCache"].endswith("| no |")  # 1 of 2: too few with as many calls
    monkeypatch.setattr(module, "ENOUGH", 1)
    rows = {line.split(" | ")[0]: line for line in module.table([tmp_path]).splitlines()}
    assert rows["| Ahead of FORA"].endswith("| no |")
    assert rows["| Ahead of TeaCache"].endswith("| yes |")  # 1 of 1


def test_folders_without_the_methods_are_refused(tmp_path, capsys):
    module = claims()
    fill(tmp_path, ["GeoShrink (published)", "FORA"])
    for folder, reason in ((tmp_path, "beside direct, TeaCache"), (tmp_path / "no", "no folder")):
        with pytest.raises(SystemExit):
            module.main([str(folder)])
        assert reason in capsys.readouterr().err


@pytest.mark.slow
def test_the_results_are_those_of_the_archive(tmp_path, monkeypatch):
    """Cells of the first versions are read, and give the tables that were written of them."""
    with tarfile.open(BENCHMARKS / "cells.tar.xz") as archive:
        archive.extractall(tmp_path / "cells", filter="data")
    monkeypatch.chdir(tmp_path)
    command.report(["cells/rivals"], "out", quiet=True)
    for name, kept in {"report.md": "RESULTS.md", "losses.md": "LOSSES.md"}.items():
        made, before = Path("out", name).read_text("utf-8"), (BENCHMARKS / kept).read_text("utf-8")
        assert without_code(made) == without_code(before)


@pytest.mark.slow
def test_the_table_is_that_of_the_archive(tmp_path, monkeypatch, capsys):
    with tarfile.open(BENCHMARKS / "cells.tar.xz") as archive:
        archive.extractall(tmp_path / "cells", filter="data")
    monkeypatch.chdir(tmp_path)
    claims().main(["cells/rivals", "cells/first"])
    assert capsys.readouterr().out == (BENCHMARKS / "CLAIMS.md").read_text(encoding="utf-8")
