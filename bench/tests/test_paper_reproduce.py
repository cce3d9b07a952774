"""The paper's tables with one command: what it finds, what it costs, a dry run to the page."""

from __future__ import annotations

import json
import math
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from geoshrink.cli import main
from geoshrink_bench.paper import cost, inventory, tables, tiny
from geoshrink_bench.paper.hosts import HOSTS
from geoshrink_bench.paper.inventory import Found
from geoshrink_bench.report import reproduction
from geoshrink_bench.report.reproduction import DRY, Entry
from geoshrink_bench.reproduce import Reproduction, entry, reproduce, told
from geoshrink_bench.score import Score
from geoshrink_bench.suite import read, suites
from geoshrink_bench.words import Measure, Row

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PAPER = 999.5  # a number that nobody measures
QUICK = {
    "steps": 7,
    "rows": [
        {"method": "direct", "budget": 5, "paper": {"speedup": PAPER}},
        {"method": "GeoShrink (corrected)", "budget": 5},
    ],
}


# -- which tables, which suites


def test_the_first_five_tables_take_the_nine_checkpoints():
    found = {table.name: names for table, names in tables.grouped().items()}
    assert list(found) == [f"Table {i}" for i in range(1, 6)]
    assert found["Table 1"] == ["sd35", "flux", "hunyuanvideo-chronomagic", "hunyuanvideo-vbench"]
    assert found["Table 4"] == ["trellis", "hunyuan3d"]
    names = [name for each in found.values() for name in each if name != "acestep-v1"]
    assert len({tables.folder_name(read(name)) for name in names}) == 9


def test_every_suite_has_a_table_and_a_name_for_its_prompts():
    assert set(tables.PROMPTS) == set(suites("paper"))
    every = tables.grouped(list(tables.PROMPTS))
    assert sorted(n for names in every.values() for n in names) == sorted(tables.PROMPTS)
    sources: dict[str, str] = {}
    for name, stem in tables.PROMPTS.items():  # one file for one set of prompts
        assert sources.setdefault(read(name).prompts["source"], stem) == stem


def test_some_suites_only():
    found = tables.grouped(["flux", "ablation"])
    assert {t.name: names for t, names in found.items()} == {
        "Table 1": ["flux"],
        "Table 6": ["ablation"],
    }
    with pytest.raises(ValueError, match="no suite 'fluxx'; there are ablation"):
        tables.grouped(["fluxx"])


@pytest.mark.parametrize("name", tables.PROMPTS)
def test_our_default_is_a_row_wherever_the_papers_method_is(name):
    rows = read(name).rows
    published = ("GeoShrink (published)", "ablation: GeoShrink")
    budgets = {row.budget for row in rows if row.method in published}
    assert budgets and budgets == {r.budget for r in rows if r.method == "GeoShrink (corrected)"}


# -- what it costs


def test_the_calls_of_a_suite_by_hand():
    """FLUX.1: 50 of the full run, five rivals by their speed-ups, four rows of 10 calls."""
    rivals = sum(50 / speedup for speedup in (4.78, 4.65, 4.82, 4.86, 4.97))
    found = cost.cost_of(read("flux"))
    assert (found.samples, found.runs) == (500, 5000)
    assert found.calls == pytest.approx(500 * (50 + rivals + 4 * 10) + 50)  # learned: once
    assert found.hours == pytest.approx(found.calls * 8.763 / 50 / 3600)


def test_what_is_fitted_or_learned_beforehand_is_counted():
    assert cost.beforehand(Row("TeaCache", options={"threshold": 0.4})) == 4
    assert cost.beforehand(Row("TeaCache", options={"coefficients": [1.0]})) == 0
    assert cost.beforehand(Row("GeoShrink (learned)", 10)) == 1
    assert cost.calls_of(Row("FORA"), 28) == 28


def test_a_stage_that_is_no_evaluation_is_not_counted():
    assert cost.cost_of(read("minimax-h3")).calls == 750 * (29 + 3 * (10 + 15 + 20))


def test_the_seconds_are_those_that_were_measured():
    lines = (ROOT / cost.SOURCE).read_text("utf-8").splitlines()
    full = {r["model"]: r for r in map(json.loads, lines) if r.get("method") == "full"}
    names = {"flux": "flux", "sd3": "sd3", "hunyuan-video": "hunyuan"}
    assert set(cost.MEASURED) == set(names)
    for host, timed in cost.MEASURED.items():
        measured = full[names[host]]
        assert timed.calls == measured["evaluations"]
        assert timed.seconds == pytest.approx(measured["seconds"], abs=5e-4)


def test_what_was_not_timed_says_so():
    found = cost.cost_of(read("hy-motion"))
    assert found.hours is None and cost.hours_text(found) == "not measured"


def test_the_docs_have_the_table_of_costs():
    names = [n for found in tables.grouped(list(tables.PROMPTS)).values() for n in found]
    table = cost.table(names).markdown().split("\n\n", 1)[1].strip()
    text = (ROOT / "docs/paper.md").read_text("utf-8")
    assert table in text and "python -m geoshrink_bench.paper.cost" in text


# -- what is there


@pytest.fixture
def machine(tmp_path):
    """A folder with a checkpoint of TRELLIS by its files, and too few prompts."""
    tiny.make("trellis", tmp_path / "TRELLIS-text-base")
    (tmp_path / "t3bench.txt").write_text("a cat\na dog\n")
    return tmp_path


def test_what_is_missing_is_said_with_the_way_to_get_it(tmp_path, capsys):
    found = reproduce(tmp_path, look_only=True, only=["flux", "hunyuan3d", "acestep"])
    assert set(found.why) == {"flux", "hunyuan3d", "acestep"} and not found.written
    text = capsys.readouterr().out
    for said in (
        "0 of 3 suites can run",
        f"hf download black-forest-labs/FLUX.1-dev --local-dir {tmp_path}/FLUX.1-dev",
        f"no {tmp_path}/pickapic (.csv, .tsv, .json, .txt): Pick-a-Pic, test set",
        "pip install --no-deps hy3dgen==2.0.2",
        f"no {tmp_path}/gso/: GSO",
        "acestep-v15-base (converted for diffusers)",
    ):
        assert said in text
    with pytest.raises(FileNotFoundError, match="nothing to run: flux: no "):
        reproduce(tmp_path, tmp_path / "out", only=["flux"], quiet=True)
    assert not (tmp_path / "out").exists()


def test_prompts_may_lie_elsewhere(tmp_path, capsys):
    (tmp_path / "words").mkdir()
    reproduce(tmp_path, look_only=True, only=["flux"], prompts=tmp_path / "words")
    said = capsys.readouterr().out
    assert f"no {tmp_path}/words/pickapic (" in said
    assert f"--local-dir {tmp_path}/FLUX.1-dev" in said


def test_a_host_of_pictures_is_not_given_words(tmp_path):
    (tmp_path / "gso.txt").write_text("a shoe\n" * 1100)
    found = inventory.look("hunyuan3d", tmp_path, tmp_path)
    assert any("'a shoe' is no file: give a folder of pictures" in why for why in found.why)


def test_what_cannot_be_made_or_was_not_timed_is_told():
    timed, other = (Found(name, read(name), Path(), None) for name in ("flux", "hy-motion"))
    hours = cost.cost_of(timed.suite).hours
    text = inventory.listing([timed, other], {"acestep-v1": "no tiny model"})
    assert f"2 of 3 suites can run: {hours:.1f} GPU-hours on an H200" in text
    assert ", and 1 suites that were not timed." in text
    assert "  missing: acestep-v1: no tiny model" in text
    assert "not timed" not in inventory.listing([timed], {})


def test_what_is_there_is_checked_before_anything_runs(machine, capsys):
    with tiny.surroundings():
        few = inventory.look("trellis", machine, machine)
        (machine / "t3bench.txt").write_text("a cat\n" * 300)
        ready = inventory.look("trellis", machine, machine)
        (machine / "TRELLIS-text-base/pipeline.json").unlink()
        broken = inventory.look("trellis", machine, machine)
    assert few.why == (
        "the suite takes 300 prompts (all), but there are 2: give the whole file, or change its "
        "prompts",
    )
    assert ready.ready and ready.prompts == machine / "t3bench.txt"
    assert "holds no pipeline.json" in broken.state and not broken.ready
    found = [ready, inventory.look("flux", machine, machine)]
    assert "1 of 2 suites can run: 0.0 GPU-hours" in inventory.listing(found, {})


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({}, ValueError, "give --models FOLDER with the checkpoints, or --dry-run"),
        ({"models": "x", "dry_run": True}, ValueError, "its own models .*leave --models x out"),
        ({"prompts": "y", "dry_run": True}, ValueError, "leave --prompts y out"),
        ({"models": "nowhere"}, FileNotFoundError, "--models: there is no folder 'nowhere'"),
        ({"models": ".", "prompts": "no"}, FileNotFoundError, "--prompts: there is no folder 'no'"),
        ({"only": ["x"], "dry_run": True}, ValueError, "--only: no suite 'x'"),
        ({"shard": "3/2", "dry_run": True}, ValueError, "i from 1 to n; got '3/2'"),
    ],
)
def test_bad_input_is_quoted(given: dict[str, Any], kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        reproduce(out=tmp_path / "out", quiet=True, **given)
    assert not (tmp_path / "out").exists()


# -- the page


def entry_of(means: dict[str, float], name: str = "flux", why: str = "") -> Entry:
    """A suite with PSNR of some rows by their titles."""
    found = Found(name, read(name), Path(), None)
    setting = reproduction.waiting(found)
    for cell in setting.cells:
        if cell.title in means:
            cell.status = "done"
            cell.scores["PSNR", "full"] = Score(means[cell.title])
    return Entry(found, setting, why)


def test_losses_come_first_and_the_worst_of_them_first(tmp_path):
    means = {"geoshrink, B = 10": 20.0, "paper, B = 10": 20.5, "direct, B = 10": 23.0}
    entry = entry_of({**means, "SpeCa, τ₀ = 12, β = 0.3": 17.0, "learned, B = 10": 40.0})
    ours, theirs = reproduction.losses([entry])
    assert [[row[4], float(row[6])] for row in ours.rows] == [  # type: ignore[arg-type]
        ["direct, B = 10", 3.0],
        ["paper, B = 10", 0.5],
    ]
    assert ours.caption.startswith("2 of 3 comparisons")
    assert [row[2] for row in theirs.rows] == ["paper, B = 10", "SpeCa, τ₀ = 12, β = 0.3"]
    assert float(theirs.rows[0][6]) == pytest.approx(21.6227 - 20.5)  # type: ignore[arg-type]
    table = tables.grouped(["flux"])
    _, text = reproduction.write({next(iter(table)): [entry]}, tmp_path, "made", dry=False)
    words = text.read_text("utf-8")
    assert words.index("Where our default loses") < words.index("Table 1: FLUX.1-dev on Pick-a-Pic")
    assert text.name == "paper.md" and DRY not in words


def test_a_draw_is_no_loss_and_the_full_run_no_rival():
    near = {"geoshrink, B = 10": 20.0, "direct, B = 10": 20.04, "full": 99.0}
    (pair,) = reproduction.rivals_ahead(entry_of(near))
    assert pair.other == "direct, B = 10" and pair.behind == pytest.approx(0.04)
    assert not reproduction.losses([entry_of(near)])[0].rows


def test_a_rival_without_any_error_is_ahead_and_called_identical():
    same = {"geoshrink, B = 10": 20.0, "direct, B = 10": math.inf}
    (row,) = reproduction.losses([entry_of(same)])[0].rows
    assert [f"{row[i]}" for i in (3, 5)] == ["20", "identical"]


def test_a_rival_whose_error_is_nought_is_ahead():
    found = entry_of({})
    found.setting.metrics["LPIPS"] = Measure("LPIPS", "", "lower")
    for cell in found.setting.cells:
        if cell.title in ("geoshrink, B = 10", "direct, B = 10"):
            cell.status = "done"
            cell.scores["LPIPS", "full"] = Score(0.0 if cell.label == "direct" else 0.1)
    (row,) = reproduction.losses([found])[0].rows
    assert row[4] == "direct, B = 10" and float(row[6]) == math.inf  # type: ignore[arg-type]


def test_the_page_has_both_kinds_of_losses_and_what_was_not_run(tmp_path):
    (table,) = tables.grouped(["hunyuan3d"])
    lacking = entry_of({}, "hunyuan3d", "no weights")
    for path in reproduction.write({table: [lacking]}, tmp_path, "made", dry=True):
        text = path.read_text("utf-8")
        places = [
            text.index(words)
            for words in (
                reproduction.DRY_NOTE,
                "Where our default loses",
                "Where what was measured is behind the paper",
                "What was not run",
                "learned stands for it",
            )
        ]
        assert places == sorted(places)


def test_another_budget_is_no_contest():
    found = entry_of({"geoshrink, B = 10": 20.0, "direct, B = 15": 30.0}, "minimax-h3")
    assert not list(reproduction.rivals_ahead(found))


def test_a_suite_that_did_not_run_has_the_papers_numbers_and_the_reason(tmp_path):
    (table,) = tables.grouped(["hunyuan3d"])
    entry = entry_of({}, "hunyuan3d", "no weights")
    for path in reproduction.write({table: [entry]}, tmp_path, "made", dry=False):
        text = path.read_text("utf-8")
        assert "Not run: no weights." in text and "75.4569" in text and "not run" in text


# -- the dry run


def quick(out: Path, *only: str, **more: Any) -> Any:
    return reproduce(out=out, dry_run=True, only=only, change=QUICK, quiet=True, **more)


@pytest.fixture(scope="module")
def dried(tmp_path_factory):
    """A dry run of one suite of each of Table 1 to 4, and of one without a tiny model."""
    pytest.importorskip("diffusers")
    pytest.importorskip("torchdiffeq")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOSHRINK_WEIGHTS", str(tmp_path_factory.mktemp("weights")))
        out = tmp_path_factory.mktemp("dry")
        yield out, quick(out, "flux", "minimax-h3", "hy-motion", "trellis", "acestep-v1")


def test_a_dry_run_goes_to_the_finished_page(dried):
    out, result = dried
    assert result.ran == ["flux", "minimax-h3", "hy-motion", "trellis"] and not result.failed
    assert [path.name for path in result.written] == ["dry-run.html", "dry-run.md"]
    for path in result.written:
        text = path.read_text("utf-8")
        assert text.index(DRY) < text.index("Where our default loses")
        for title in (
            "Table 1: FLUX.1-dev on Pick-a-Pic",
            "Table 2: MiniMax-H3 on ChronoMagic-Bench-150",
            "Table 3: HY-Motion-1.0 on SSAE",
            "Table 4: TRELLIS-text-base on T³Bench",
        ):
            assert title in text
        assert "no tiny model of it" in text and "geoshrink bench paper --dry-run --only" in text
    text = (out / "dry-run.md").read_text("utf-8")
    assert text.count("| geoshrink, B = 5 | 5 |") == 4  # NFE
    assert text.count(f" {PAPER}× |") == 4 and text.count("Changed from the suite's protocol") == 4


def test_cells_of_a_dry_run_are_apart_from_real_ones(dried):
    out, _ = dried
    assert (out / "dry-run-cells" / "flux").is_dir() and not (out / "cells").exists()


def test_cells_of_before_are_shown_with_the_reason_why_there_are_no_new_ones(dried):
    result = Reproduction(why={"flux": "no weights"})
    made = entry("flux", None, dried[0] / "dry-run-cells", result)
    assert made.why == "no weights" and not result.failed
    assert "done" in {cell.status for cell in made.setting.cells}


def test_what_is_changed_by_hand_holds_in_a_dry_run_too(tmp_path, monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr("geoshrink_bench.reproduce.run_one", lambda *given: seen.append(given))
    given = {"seeds": 3, "steps": 7}
    reproduce(out=tmp_path, dry_run=True, only=["hunyuan3d"], change=given, quiet=True)
    [(_, cells, change, *_)] = seen
    assert change["seeds"] == 3 and change["steps"] == 7 and change["prompts"]["count"] == 1
    assert cells == tmp_path / "dry-run-cells" / "hunyuan3d"


def test_a_dry_run_leaves_nothing_of_its_doubles(dried):
    assert "hymotion" not in sys.modules and "trellis.pipelines" not in sys.modules
    diffusers: Any = import_module("diffusers")
    assert diffusers.ModularPipeline.load_components.__name__ == "load_components"


def test_cells_that_are_done_are_kept(dried, capsys):
    """A page of one suite; then that of all, without running the others."""
    out, _ = dried
    again = reproduce(out=out, dry_run=True, only=["hy-motion"], change=QUICK)
    assert "0 cells run, 3 kept from before" in capsys.readouterr().out
    assert again.ran == ["hy-motion"]


def test_one_suite_that_fails_stops_no_other(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torchdiffeq")
    monkeypatch.setattr(HOSTS["trellis"], "build", lambda *given: 1 / 0)
    found = quick(tmp_path, "trellis", "hy-motion")
    assert found.ran == ["hy-motion", "trellis"] and found.failed == ["trellis"]
    text = (tmp_path / "dry-run.md").read_text("utf-8")
    assert "ZeroDivisionError" in text
    broken = quick(tmp_path, "trellis", "hy-motion", dtype="int8")
    assert broken.failed == ["hy-motion", "trellis"] and "no 'int8'" in broken.why["trellis"]
    assert "failed: trellis: ValueError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"name": "flux", "source": {}}', '{"name": "flux", "source": "flux"}']
)
def test_damaged_cells_of_one_suite_cost_no_other_its_page(tmp_path, capsys, content):
    (tmp_path / "flux").mkdir()
    (tmp_path / "flux" / "asked.json").write_text(content)
    result = Reproduction(why={"flux": "no checkpoint"})
    made = entry("flux", None, tmp_path, result)
    assert made.why == result.why["flux"] and result.failed == ["flux"]
    assert made.why.startswith("no checkpoint; its cells cannot be read: ")
    assert "failed: flux: no checkpoint; its cells" in capsys.readouterr().err
    assert {cell.status for cell in made.setting.cells} == {"not run"}


def test_a_suite_without_cells_and_without_a_reason_is_told(tmp_path):
    assert entry("flux", None, tmp_path, Reproduction()).why == "it has no cells"


def test_the_page_has_the_command_that_was_given():
    options = {"device": "cpu", "dtype": "fp32", "clip": None, "clap": "CLAP", "shard": "2/3"}
    words = told("models", "out", None, ["flux"], {"seeds": 1}, {**options, "stale": True})
    assert words == (
        "geoshrink bench paper --models models --only flux --change '{\"seeds\": 1}' --device cpu "
        "--dtype fp32 --clap CLAP --shard 2/3 --stale --out out"
    )
    assert "--models m --prompts p --out o" in told("m", "o", "p", None, None, {})
    plain = dict.fromkeys(options) | {"shard": "1/1", "stale": False}
    assert told(None, "out", None, None, {}, plain) == "geoshrink bench paper --dry-run --out out"


def test_a_dry_run_is_not_promised_gpu_hours(capsys):
    reproduce(dry_run=True, look_only=True, only=["hunyuan3d"])
    said = capsys.readouterr().out
    assert "1 of 1 suites can run: a dry run of them takes minutes on a CPU." in said
    assert "GPU-hours" not in said and "hunyuan3d" in said


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "paper", "--list", "--only", "flux"]) == 0
    assert "hf download black-forest-labs/FLUX.1-dev" in capsys.readouterr().out
    few = ["--change", json.dumps(QUICK), "--dry-run", "--only", "hunyuan3d"]
    assert main(["bench", "paper", *few, "--out", "out"]) == 0
    assert "| geoshrink, B = 5 | 5 |" in Path("out/dry-run.md").read_text("utf-8")
    capsys.readouterr()
    assert main(["bench", "paper"]) != 0
    assert "give --models FOLDER" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_dry_run(tmp_path):
    pytest.importorskip("diffusers")
    assert main(["bench", "paper", "--dry-run", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "dry-run.md").read_text("utf-8")
    for name in (name for found in tables.grouped().values() for name in found):
        suite = read(name)
        assert suite.title in text
        assert (tmp_path / "dry-run-cells" / name).is_dir() == (suite.host in tiny.TINY)
        for row in suite.rows:
            assert row.title in text and all(f"| {n:g}" in text for n in row.paper.values())
