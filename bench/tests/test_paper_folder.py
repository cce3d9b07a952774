"""A folder of a suite of the paper: in shards, resumed, reported without the model."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from geoshrink.cli import main
from geoshrink_bench import command
from geoshrink_bench.asked import FILE
from geoshrink_bench.cases.checkpoint_suite import FULL
from geoshrink_bench.paper import pipelines
from geoshrink_bench.paper.columns import COLUMNS
from geoshrink_bench.report import load
from geoshrink_bench.report.latex import tabular
from geoshrink_bench.report.results import Cell, Setting
from geoshrink_bench.report.tables import beside
from geoshrink_bench.score import Score
from geoshrink_bench.store import Store
from geoshrink_bench.suite import read, suites
from geoshrink_bench.words import Measure

pytest.importorskip("diffusers")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
ROWS = [
    {"method": "direct", "budget": 4},
    {"method": "GeoShrink (published)", "budget": 4, "paper": {"speedup": 4.98, "PSNR": 21.6227}},
]
CHANGE = {
    "seeds": 2, "steps": 6, "prompts": {"count": 2}, "call": {"height": 32, "width": 32},
    "columns": ["PSNR", "LPIPS"], "rows": ROWS,
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a tiny FLUX and prompts, and out/: its suite, the first of two shards run."""
    from hosts import image, text

    place = tmp_path_factory.mktemp("place")
    torch.manual_seed(0)
    parts: dict[str, Any] = {"text_encoder": text.clip_text(), "tokenizer": text.clip_tokenizer()}
    parts |= {"text_encoder_2": text.t5(), "tokenizer_2": text.tokenizer()}
    image.flux("FluxPipeline", {}, **parts)[0].save_pretrained(str(place / "model"))
    (place / "prompts.txt").write_text("a cat\na dog\nthe house\n")
    load, pipes = pipelines.Pipeline.load, {}

    def load_once(host, folder, device, dtype, offload=None):
        if "pipe" not in pipes:
            load(host, folder, device, dtype, offload)
            pipes["pipe"] = host.pipe
        host.pipe = pipes["pipe"]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOSHRINK_WEIGHTS", str(tmp_path_factory.mktemp("weights")))
        patch.setattr(pipelines.Pipeline, "load", load_once)
        patch.chdir(place)
        assert bench("run", "flux", *GIVEN, "--shard", "1/2", "--summary", "first.md") == 0
        yield place
    torch.set_num_threads(threads)


GIVEN = ("--checkpoint", "model", "--prompts", "prompts.txt", "--device", "cpu")
GIVEN = (*GIVEN, "--change", json.dumps(CHANGE), "--out", "out")


def bench(*words: Any) -> int:
    return main(["bench", *map(str, words)])


@pytest.fixture
def begun(place, tmp_path):
    """A copy of the folder with one shard."""
    return Path(shutil.copytree(place / "out", tmp_path / "out"))


@pytest.fixture(scope="module")
def done(place, tmp_path_factory):
    """The whole suite, resumed where nobody stands in the folder it was begun in."""
    folder = tmp_path_factory.mktemp("done") / "out"
    shutil.copytree(place / "out", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        assert bench("resume", folder, "--shard", "2/2") == 0
    return folder


def test_shards_share_a_folder(place, begun, done):
    cases = {(s["prompt"], s["seed"]) for s, _ in Store(begun).cells()}
    assert cases == {("a cat", 0), ("a cat", 1)} and len(Store(begun).files()) == 6
    assert "2 of 4 missing" in (begun / "summary.md").read_text("utf-8")
    assert (place / "first.md").read_bytes() == (done / "summary.md").read_bytes()
    assert len(Store(done).files()) == 12
    assert "missing" not in (done / "summary.md").read_text("utf-8")
    again = command.resume(done, quiet=True)
    assert (again.done, again.kept, again.failed) == (0, 12, [])


def test_the_summary_says_how_it_was_made(done):
    """The command makes the same cells; what differs from the suite is said."""
    text = (done / "summary.md").read_text("utf-8")
    command = re.findall("Made by `(.*)`", text)[0]
    words = shlex.split(command)
    assert words[:4] == ["geoshrink", "bench", "run", "flux"]
    given = dict(zip(words[4::2], words[5::2]))
    assert json.loads(given.pop("--change")) == CHANGE
    assert given == {
        "--checkpoint": "model", "--prompts": "prompts.txt", "--device": "cpu", "--out": str(done)
    }  # fmt: skip
    assert "On CPU, fp32" in text and "The suite's own precision is bf16." in text
    assert "Changed from the suite's protocol: seeds, steps, prompts, call" in text
    assert "and the suite chooses (what this run changed stands above):" in text


def test_a_report_needs_no_model(done, tmp_path, monkeypatch, capsys):
    away = Path(shutil.copytree(done, tmp_path / "away"))
    kept = json.loads((away / FILE).read_text("utf-8"))
    (away / FILE).write_text(json.dumps(kept | {"within": "/nowhere", "summary": None}))
    monkeypatch.setattr(pipelines.Pipeline, "load", lambda *_: pytest.fail("no model is here"))
    assert bench("report", away, "--out", tmp_path / "made") == 0
    assert "3 of 3 cells" in capsys.readouterr().out
    assert bench("resume", away) == 2
    assert "there is no folder '/nowhere/model' with the checkpoint" in capsys.readouterr().err
    (setting,) = load([done]).settings
    text = (tmp_path / "made" / "results.csv").read_text("utf-8")
    assert text == (done / "results.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == len(setting.cells) * 2
    for row in rows:
        cell = next(c for c in setting.cells if c.method == row["method"])
        score = cell.score(row["metric"])
        assert float(row["evaluations"]) == cell.evaluations
        if isinstance(score, str):
            assert row["status"] == score and not row["mean"]
        else:
            assert (float(row["mean"]), float(row["sd"])) == (score.mean, score.sd)
            assert row["count"] == "4" and row["made_on"] == "CPU"
    ours = next(r for r in rows if "Geo" in r["method"] and r["metric"] == "PSNR")
    assert (ours["paper"], ours["paper_speedup"], ours["better"]) == ("21.6227", "4.98", "higher")


def test_the_formats_of_a_report(done, tmp_path):
    """The same numbers; the best in bold; the paper's beside them; samples, plots and reasons."""
    written = command.report([done], tmp_path, quiet=True)
    assert [path.name for path in written] == [
        "results.csv", "losses.md", "report.md", "report.tex", "calls.csv", "report.html"
    ]  # fmt: skip
    md, tex, html = (
        (tmp_path / f"report.{end}").read_text("utf-8") for end in ("md", "tex", "html")
    )
    assert md == (done / "summary.md").read_text("utf-8")
    bold = re.findall(r"\*\*(.*?)\*\*", md)
    assert len(bold) == 1 and "±" in bold[0]
    assert rf"\textbf{{{bold[0].replace('±', '$' + chr(92) + 'pm$')}}}" in tex
    assert f"<strong>{bold[0]}</strong>" in html
    assert r"\toprule" in tex and r"\caption{FLUX.1-dev on Pick-a-Pic: measured" in tex
    assert all("21.6227" in text and "4.98" in text for text in (md, tex, html))
    assert all("needs the weights lpips-alex" in text for text in (md, tex, html))
    assert html.count('class="stage"') == 1 and "a dog, direct, B = 4" in html
    assert "PSNR to the full run, by speed-up" in html and "paper, as printed" in html
    none = command.report([done], tmp_path / "none", samples=0, quiet=True)[-1].read_text("utf-8")
    assert 'class="stage"' not in none
    other = shutil.copytree(done, tmp_path / "other")
    both = command.report([done, other], tmp_path, quiet=True)
    assert both[-1].read_text("utf-8").count('class="folded"') >= 2


def made_up(name: str) -> Setting:
    """Results of a suite whose numbers rise with the row, the full run's the highest."""
    suite = read(name)
    cells = []
    for i, row in enumerate([*suite.rows, FULL]):
        facts = {"evaluations": 5.0}
        cell = Cell(row.method, row.budget, row.setting, row.options, status="done", result=facts)
        cell.scores = {(column, "full"): Score(1.0 + i, 0.5) for column in suite.columns}
        cells.append(cell)
    metrics = {column: Measure.of(COLUMNS[column]) for column in suite.columns}
    return Setting(suite.title, suite.host, {}, cells, metrics, ["full"], label=suite.label)


@pytest.mark.parametrize("name", suites("paper"))
def test_the_best_of_those_with_one_budget(name):
    """Of all rows where there is only one; the full run never is, nor who has no budget then."""
    suite = read(name)
    table = beside(made_up(name))
    budgets = {row.budget for row in suite.rows} - {None}
    contests = [[r.title for r in suite.rows if r.budget == budget] for budget in budgets]
    if len(contests) == 1:
        contests = [[row.title for row in suite.rows]]
    ends = {name: -1 if COLUMNS[name].higher else 0 for name in suite.columns}
    best = {(table.rows[i][0], table.columns[j].name) for i, j in table.best()}
    assert best == {(titles[end], name) for titles in contests for name, end in ends.items()}
    assert tabular(table).isascii()


def test_what_agrees_to_the_last_bit_is_best():
    metrics = {"PSNR": Measure("PSNR", "dB", "higher")}
    scores = [Score(30.0), Score.of([999.0] * 4, 2)]
    cells = [Cell(m, 4, status="done", result={"evaluations": 4.0}) for m in ("a", "b")]
    for cell, score in zip(cells, scores):
        cell.scores["PSNR", "full"] = score
    text = beside(Setting("t", "flux", {}, cells, metrics, ["full"], label="tab")).markdown()
    assert "**identical**" in text and "| 30.00 |" in text


def test_a_zoo_and_a_checkpoint_in_one_report(done, tmp_path):
    """Each with its own tables, on one page, in one spreadsheet."""
    suite = {"models": {"fruit": {"budgets": [3], "steps": 4}}, "methods": ["direct"], "seeds": 1}
    command.run(suite | {"samples": 1, "converged": 8}, tmp_path / "zoo", quiet=True)
    written = command.report([tmp_path / "zoo", done], tmp_path, quiet=True)
    rows = list(csv.DictReader(written[0].read_text("utf-8").splitlines()))
    assert {row["model"] for row in rows} == {"fruit", "flux"}
    for path in (each for each in written if each.stem == "report"):
        text = path.read_text("utf-8")
        assert "fruit, 4 steps" in text and "FLUX.1-dev on Pick-a-Pic" in text


def test_a_folder_from_before_is_read(done, tmp_path):
    """paper.json had what asked.json has, flat."""
    old = Path(shutil.copytree(done, tmp_path / "old"))
    kept = json.loads((old / FILE).read_text("utf-8"))
    (old / FILE).unlink()
    options = {**kept.pop("options"), "dtype": None, "clip": None, "clap": None, "keep": True}
    del kept["summary"]
    (old / "paper.json").write_text(json.dumps(kept | options))
    assert load([old]).settings[0].cells == load([done]).settings[0].cells


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "flux", *GIVEN, "--weights", "w"), "--weights is for suites on the models of the"),
        (("run", "flux", *GIVEN, "--full-only"), "--full-only is for suites on the models of the"),
        (("run", "flux", *GIVEN, "--shard", "3/2"), "--shard is i/n with i from 1 to n; got '3/2'"),
        (("run", "flux", *GIVEN, "--summary", "no/s.md"), "--summary no/s.md: there is no folder"),
        (("run", "first", "--prompts", "p.txt"), "--prompts is for the suites of the paper"),
        (("run", "zoo.yaml", "--checkpoint", "m"), "--checkpoint is for the suites of the paper"),
        (("resume", "out", "--weights", "w"), "--weights is for suites on the models of the zoo"),
        (("report", "out", "zoo"), "zoo is no folder of a bench: it has no asked.json"),
    ],
)  # fmt: skip
def test_options_that_do_not_apply_are_refused(
    words, message, begun, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo.yaml").write_text("name: x\nmodels: {fruit: {}}\nmethods: [direct]\n")
    there = sorted(tmp_path.rglob("*"))
    assert bench(*words) == 2 and message in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == there


def test_a_damaged_folder_is_said(begun, capsys):
    (begun / FILE).write_text('{"name": "flux"')
    assert bench("resume", begun) == 2
    assert "asked.json is damaged" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match=r"is no folder of a bench"):
        command.report([begun.parent])
