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
from geoshrink_bench.paper.results import IDENTICAL, Result, Value
from geoshrink_bench.paper.suite import FULL, read
from geoshrink_bench.paper.table import table_of

from geoshrink.cli import main
from geoshrink_bench import paper
from geoshrink_bench.paper import pipelines
from geoshrink_bench.paper.columns import COLUMNS
from geoshrink_bench.report.latex import tabular
from geoshrink_bench.store import Store

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
    assert "2 of 4 missing" in (place / "first.md").read_text("utf-8")
    assert (place / "first.md").read_bytes() == (begun / "summary.md").read_bytes()
    assert len(Store(done).files()) == 12
    assert "missing" not in (done / "summary.md").read_text("utf-8")
    again = paper.resume(done, quiet=True)
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
    kept = json.loads((away / "paper.json").read_text("utf-8"))
    (away / "paper.json").write_text(json.dumps(kept | {"within": "/nowhere"}))
    monkeypatch.setattr(pipelines.Pipeline, "load", lambda *_: pytest.fail("no model is here"))
    assert bench("report", away, "--out", tmp_path / "made") == 0
    assert "12 samples of 1 suite" in capsys.readouterr().out
    assert bench("resume", away) == 2
    assert "there is no folder '/nowhere/model' with the checkpoint" in capsys.readouterr().err
    found = json.loads((done / "results.json").read_text("utf-8"))["results"]
    text = (tmp_path / "made" / "results.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == len(found) * 2
    for row in rows:
        result = next(r for r in found if r["row"]["method"] == row["method"])
        value = result["columns"][row["column"]]
        assert float(row["evaluations"]) == result["evaluations"] and row["samples"] == "4"
        if isinstance(value, str):
            assert row["status"] == value and not row["mean"]
        else:
            assert (float(row["mean"]), float(row["sd"])) == (value["mean"], value["sd"])
    ours = next(r for r in rows if "Geo" in r["method"] and r["column"] == "PSNR")
    assert (ours["paper"], ours["paper_speedup"], ours["better"]) == ("21.6227", "4.98", "higher")


def test_the_formats_of_a_report(done, tmp_path):
    """The same numbers; the best in bold; the paper's beside them; samples, plots and reasons."""
    written = paper.report([done], tmp_path, quiet=True)
    assert [path.name for path in written] == [
        "results.csv", "report.md", "report.tex", "report.html"
    ]  # fmt: skip
    md, tex, html = (
        (tmp_path / f"report.{end}").read_text("utf-8") for end in ("md", "tex", "html")
    )
    assert md == (done / "summary.md").read_text("utf-8")
    bold = re.findall(r"\*\*(.*?)\*\*", md)
    assert len(bold) == 1 and "±" in bold[0]
    assert rf"\textbf{{{bold[0].replace('±', '$' + chr(92) + 'pm$')}}}" in tex
    assert f"<strong>{bold[0]}</strong>" in html
    assert r"\toprule" in tex and r"\caption{FLUX.1-dev on Pick-a-Pic." in tex
    assert all("21.6227" in text and "4.98" in text for text in (md, tex, html))
    assert all("needs the weights lpips-alex" in text for text in (md, tex, html))
    assert html.count('class="stage"') == 1 and "a dog, direct, B = 4" in html
    assert "PSNR, by speed-up" in html and "GeoShrink (published), paper" in html
    none = paper.report([done], tmp_path / "none", samples=0, quiet=True)[-1].read_text("utf-8")
    assert 'class="stage"' not in none
    both = paper.report([done, shutil.copytree(done, tmp_path / "other")], tmp_path, quiet=True)
    assert both[-1].read_text("utf-8").count('class="folded"') >= 2


def made_up(name: str) -> list[Result]:
    """Results of a suite whose numbers rise with the row, the full run's the highest."""
    suite = read(name)
    rows = [*suite.rows, FULL]
    return [
        Result(row, 1, 5.0, 5.0, 1.0, 2.0, [], dict.fromkeys(suite.columns, Value(1.0 + i, 0.5)))
        for i, row in enumerate(rows)
    ]


@pytest.mark.parametrize("name", paper.suites())
def test_the_best_of_those_with_one_budget(name):
    """Of all rows where there is only one; the full run never is, nor who has no budget then."""
    suite = read(name)
    table = table_of(suite, made_up(name))
    budgets = {row.budget for row in suite.rows} - {None}
    contests = [[r.label for r in suite.rows if r.budget == budget] for budget in budgets]
    if len(contests) == 1:
        contests = [[row.label for row in suite.rows]]
    ends = {name: -1 if COLUMNS[name].higher else 0 for name in suite.columns}
    best = {(table.rows[i][0], table.columns[j].name) for i, j in table.best()}
    assert best == {(labels[end], name) for labels in contests for name, end in ends.items()}
    assert tabular(table).isascii()


def test_what_agrees_to_the_last_bit_is_best():
    suite = read("flux", {"columns": ["PSNR"], "rows": ROWS})
    values = [Value(30.0), Value(IDENTICAL, None, 4)]
    found = [Result(r, 4, 4.0, 4.0, 1.0, 1.0, [], {"PSNR": v}) for r, v in zip(suite.rows, values)]
    text = table_of(suite, found).markdown()
    assert "**identical**" in text and "| 30 |" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "flux", *GIVEN, "--weights", "w"), "--weights is for suites on the models of the"),
        (("run", "flux", *GIVEN, "--full-only"), "--full-only is for suites on the models of the"),
        (("run", "flux", *GIVEN, "--shard", "3/2"), "--shard is i/n with i from 1 to n; got '3/2'"),
        (("run", "flux", *GIVEN, "--summary", "no/s.md"), "no folder no for the summary no/s.md"),
        (("run", "first", "--prompts", "p.txt"), "--prompts is for the suites of the paper"),
        (("run", "first", "--change", "{}"), "--change is for the suites of the paper"),
        (("run", "zoo.yaml", "--checkpoint", "m"), "--checkpoint is for the suites of the paper"),
        (("resume", "out", "--weights", "w"), "--weights is for suites on the models of the zoo"),
        (("report", "out", "--plots", "p"), "--plots is for suites on the models of the zoo"),
        (("report", "out", "zoo"), "out is of a suite of the paper: report zoo apart"),
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
    (begun / "paper.json").write_text('{"name": "flux"')
    assert bench("resume", begun) == 2
    assert "paper.json is damaged" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match=r"is no folder of a suite of the paper"):
        paper.report([begun.parent])
