"""The report: numbers against an independent sum, every format, nothing hidden, a real browser."""

from __future__ import annotations

import csv
import io
import math
import re
import wave
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from cases import small_case
from geoshrink import sample
from geoshrink.cli import main
from geoshrink.page import Column, Comparison, Page, Series, Table
from geoshrink_bench import command, samples, suite
from geoshrink_bench.asked import Asked
from geoshrink_bench.cases import zoo as running
from geoshrink_bench.cases.zoo_case import Trace, forwards_of
from geoshrink_bench.methods.direct import Again, Direct
from geoshrink_bench.methods.fora import Fora
from geoshrink_bench.methods.ours import Ours
from geoshrink_bench.methods.registry import METHODS
from geoshrink_bench.metrics.zoo import metrics_of
from geoshrink_bench.page import Choice, Folded, Shown, Sound, drawing, encode_wave
from geoshrink_bench.report import latex, load, markdown, spreadsheet, write
from geoshrink_bench.report import zoo as reading
from geoshrink_bench.report.contests import chosen
from geoshrink_bench.report.latex import escaped
from geoshrink_bench.report.looks import medium
from geoshrink_bench.report.overview import duels, glance, losses, wins
from geoshrink_bench.report.webpage import webpage
from geoshrink_bench.samples import Samples, read_samples
from geoshrink_bench.score import Score
from geoshrink_bench.store import Store, put
from geoshrink_bench.zoo.recipes import RECIPES
from pages import in_browser, opened

torch.set_num_threads(1)
METHOD, OURS = "GeoShrink (corrected)", "geoshrink"  # in a suite, in a report
SUITE = {
    "name": "Tiny & <fast>",
    "samples": 2,
    "seeds": 2,
    "converged": 20,
    "models": {"fruit": {"budgets": [3, 4], "guidance": [1.0, 2.0], "shift": 3.0, "steps": 6}},
    "methods": [METHOD, "direct", "FORA", "MagCache"],
}
PSNR = {METHOD: 30.0, "direct": 20.0, "FORA": 25.0, "MagCache": 28.0}  # at budget 3


def spec_of(cell, **changes):
    return {**cell, "kind": "fidelity", "converged": 20, "weights": "ab", "version": "1"} | changes


def result_of(cell, **changes):
    full = [PSNR[cell["method"]] + cell["budget"] - 3 + more for more in (0.0, 1.0, 2.0, 5.0)]
    result = {
        "scores": {"PSNR": {"full": full, "converged": [v - 5 for v in full]}},
        "evaluations": float(cell["budget"]),
        "evaluated": [0, 1, 3],
        "held": 2**20,
        "prepared": 0.5,
        "calibrated": cell["method"] == "MagCache",
        "adaptive": False,
    }
    return result | changes


@pytest.fixture
def filled(tmp_path):
    """A folder in which every cell of SUITE is done."""
    return fill(tmp_path / "bench")


def fill(folder, given=SUITE, skip=lambda cell: False, **changes):
    found = suite.read(given)
    Asked("", found.source).save(folder)
    for cell in found.cells():
        if not skip(cell):
            Store(folder).write(spec_of(cell), result_of(cell, **changes))
    return folder


def first_cell(method, given=SUITE):
    return next(cell for cell in suite.read(given).cells() if cell["method"] == method)


def page_of(results):
    from contextlib import nullcontext

    return webpage(results, lambda total: nullcontext()).html()


# Scores


def test_a_score_is_the_mean_and_the_sd_over_seeds():
    each = np.random.default_rng(0).normal(30, 3, 40)
    found = Score.of(list(each), seeds=5)
    means = each.reshape(5, 8).mean(1)
    assert found.mean == pytest.approx(each.mean())
    assert found.sd == pytest.approx(np.std(means, ddof=1))
    assert (found.identical, found.count) == (0, 40)
    assert Score.of([1.0, 2.0], 1) == Score(1.5, None, 0, 2) and Score.of(0.25, 5).mean == 0.25
    with pytest.raises(ValueError, match="3 samples are not 2 seeds"):
        Score.of([1.0, 2.0, 3.0], 2)


def test_what_is_identical_is_never_averaged():
    assert Score.of([999.0] * 4, 2).text() == "identical"
    mixed = Score.of([30.0, 999.0, 34.0, 36.0], 2)
    assert mixed.mean == pytest.approx(32.5) and mixed.identical == 1
    assert mixed.text(1) == "32.5 ± 3.5, 1 of 4 identical"
    assert Score.of([999.0, 1.0], 1, higher=False).mean == 500.0  # 999 cm are 999 cm


# Reading


def test_every_cell_is_there_or_said_to_be_missing(tmp_path):
    folder = fill(tmp_path, skip=lambda c: c["budget"] == 4 and c["method"] == "direct")
    gone = spec_of(first_cell("FORA"))
    Store(folder).path(gone).unlink()
    Store(folder).fail(gone, "Traceback …\n  line\nValueError: cannot be reached")
    broken = Store(folder).path(spec_of(first_cell("MagCache")))
    broken.write_text("{")
    results = load([folder])
    status = [(c.label, c.budget, c.status, c.reason) for c in results.settings[0].cells]
    assert ("FORA", 3, "failed", "ValueError: cannot be reached") in status
    assert ("direct", 4, "not run", "") in status and ("MagCache", 3, "not run", "") in status
    assert results.damaged == [broken]
    for text in (markdown(results), page_of(results)):
        assert "ValueError: cannot be reached" in text and broken.name in text
    rows = list(csv.DictReader(io.StringIO(spreadsheet(results))))
    assert "failed: ValueError: cannot be reached" in {row["status"] for row in rows}


def test_numbers_of_two_weights_never_mix(filled):
    import os

    cell = first_cell("direct")
    Store(filled).write(spec_of(cell, weights="older"), result_of(cell, evaluations=1.0))
    path = Store(filled).path(spec_of(cell, weights="older"))
    os.utime(path, (1, 1))
    results = load([filled])
    assert results.settings[0].at["direct", 3].evaluations == 3.0
    assert results.left_out == [
        "1 cells of fruit with other weights, version or converged steps than the newest"
    ]
    os.utime(path, (2e9, 2e9))  # now it is the newest: all others are of another model
    results = load([filled])
    assert results.settings[0].at["direct", 3].evaluations == 1.0
    assert [c.status for c in results.cells].count("done") == 1


def test_folders_that_are_no_bench(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        load([tmp_path / "nowhere"])
    with pytest.raises(FileNotFoundError, match=r"no folder of a bench: it has no asked\.json"):
        load([tmp_path])
    (tmp_path / "suite.json").write_text("{")  # as the first folders have it
    with pytest.raises(ValueError, match=r"suite\.json is damaged"):
        load([tmp_path])
    (tmp_path / "suite.json").write_text("[]")
    with pytest.raises(ValueError, match=r"it holds \[\], no suite"):
        load([tmp_path])
    Asked("", SUITE).save(tmp_path)
    with pytest.raises(ValueError, match="has no cells: run `geoshrink bench resume"):
        load([tmp_path])
    assert main(["bench", "report", str(tmp_path)]) == 2
    assert "has no cells" in capsys.readouterr().err
    with pytest.raises(ValueError, match="at least one folder"):
        load([])


def test_several_folders_are_one_report(tmp_path, filled):
    more = SUITE | {"methods": ["direct", "FORA", "TaylorSeer"], "name": "More"}
    other = fill(tmp_path / "more", more, skip=lambda c: c["method"] != "TaylorSeer" or True)
    cell = first_cell("TaylorSeer", more)
    Store(other).write(spec_of(cell), result_of(cell | {"method": "FORA"}))
    results = load([filled, other])
    assert results.name == "Tiny & <fast>; More" and len(results.settings) == 2
    assert results.settings[0].labels == [OURS, *SUITE["methods"][1:], "TaylorSeer"]
    assert results.settings[0].at["FORA", 3].status == "done"  # not run in the other folder


def test_seconds_join_what_they_belong_to(filled):
    cell = first_cell("FORA")
    spec = spec_of(cell, kind="latency", repeats=3, on="H200")
    Store(filled).write(spec, {"seconds": [0.3, 0.1, 0.2], "prepared": 0.0})
    results = load([filled])
    rows = csv.DictReader(io.StringIO(spreadsheet(results)))
    timed = [row for row in rows if row["seconds"]]
    assert [(r["method"], r["budget"], r["reference"]) for r in timed] == [
        ("FORA", "3", "full"),
        ("FORA", "3", "converged"),
    ]
    assert float(timed[0]["seconds"]) == 0.2 and timed[0]["timed_on"] == "H200"
    assert float(timed[0]["seconds_iqr"]) == pytest.approx(0.1)
    slow = spec_of(first_cell("direct"), kind="latency", repeats=3, on="H200")
    Store(filled).fail(slow, "RuntimeError: too slow")
    timed_suite = SUITE | {"latency": True}
    Asked("", timed_suite).save(filled)
    assert "seconds: RuntimeError: too slow" in markdown(load([filled]))
    assert f"seconds: {OURS}, MagCache" in markdown(load([filled]))
    assert "PSNR to the full run, by seconds" in page_of(results)
    assert "time (s)" in markdown(results)


# Formats


def test_the_csv_has_a_row_for_each_cell_and_reference(filled):
    rows = list(csv.DictReader(io.StringIO(spreadsheet(load([filled])))))
    assert len(rows) == 2 * 2 * 4 * 2 and {row["status"] for row in rows} == {"done"}
    row = next(r for r in rows if r["method"] == "FORA" and r["reference"] == "converged")
    each = np.array([25.0, 26.0, 27.0, 30.0]) - 5
    assert float(row["mean"]) == each.mean()
    assert float(row["sd"]) == pytest.approx(np.std([each[:2].mean(), each[2:].mean()], ddof=1))
    assert row["evaluated"] == "[0, 1, 3]" and row["held_bytes"] == str(2**20)
    assert (row["calibrated"], row["unit"], row["better"]) == ("False", "dB", "higher")


def test_markdown_marks_the_best_of_a_kind(filled):
    text = markdown(load([filled]))
    assert "### fruit, 6 steps, guidance 1, shift 3: PSNR, dB ↑" in text
    assert f"| {OURS} | **32.00 ± 2.12** | **33.00 ± 2.12** | 1.0 | calibration-free |" in text
    assert "| MagCache | 30.00 ± 2.12 | 31.00 ± 2.12 | 1.0 | calibrated |" in text
    assert "| best in | fruit (of 4) | all (of 4) | kind |" in text
    assert f"| {OURS} | 4 | 4 | calibration-free |" in text


def test_who_spends_more_than_the_budget_does_not_win(filled):
    cell = first_cell("FORA")
    scores = {"PSNR": {"full": [999.0] * 4, "converged": [99.0] * 4}}
    Store(filled).write(spec_of(cell), result_of(cell, scores=scores, evaluations=6.0))
    results = load([filled])
    text = markdown(results)
    assert "| FORA | identical (6 runs) | 28.00 ± 2.12 |" in text
    assert [row[0] for row in wins(results, "full").rows] == [OURS]
    Store(filled).write(spec_of(cell), result_of(cell, scores=scores, evaluations=3.1))
    assert "| FORA | **identical (3.1 runs)** |" in markdown(load([filled]))


def test_ours_against_each_method_in_decibels(filled):
    rows = duels(load([filled])).rows
    assert [row[0] for row in rows] == ["MagCache", "FORA", "direct"]
    magcache = rows[0]
    assert magcache[1:4] == [4, 4, 0] and magcache[4] == pytest.approx(2.0)  # 30 against 28
    cell = first_cell("FORA")
    scores = {"PSNR": {"full": [40.0] * 4, "converged": [20.0] * 4}}
    Store(filled).write(spec_of(cell), result_of(cell, scores=scores, evaluations=6.0))
    fora = next(row for row in duels(load([filled])).rows if row[0] == "FORA")
    assert fora[1:4] == [4, 3, 1] and fora[5] == pytest.approx(32 - 40)
    assert fora[7] == pytest.approx((6 / 3 + 1 + 1 + 1) / 4)
    Store(filled).path(spec_of(first_cell("direct"))).unlink()
    direct = next(row for row in duels(load([filled])).rows if row[0] == "direct")
    assert direct[1] == 3 and "Not run yet" not in markdown(load([filled]))


def test_every_loss_is_listed_first_and_the_worst_of_all_first(filled):
    assert losses(load([filled])).rows == []
    for budget, gain in ((3, 4.0), (4, 9.0)):
        for rival, more in (("FORA", 0.0), ("MagCache", 1.0), ("direct", -30.0)):
            cell = {**first_cell(rival), "budget": budget}
            scores = {"PSNR": {"full": [PSNR[METHOD] + budget - 1 + gain + more] * 4}}
            Store(filled).write(spec_of(cell), result_of(cell, scores=scores))
    cell = {**first_cell("FORA"), "budget": 3}
    table = losses(load([filled]))
    assert [(row[3], row[4], getattr(row[8], "text", "")) for row in table.rows] == [
        (4, "MagCache", "10.00"),
        (4, "FORA", "9.00"),
        (3, "MagCache", "5.00"),
        (3, "FORA", "4.00"),
    ]
    assert [row[5] for row in table.rows] == ["calibrated", "calibration-free"] * 2
    for text in (markdown(load([filled])), page_of(load([filled]))):
        assert 0 < text.index("Where our default loses") < text.index("Ours at a glance")
    assert write(load([filled]), filled)[1].read_text(encoding="utf-8").count("| 10.00 |") == 1
    Store(filled).write(spec_of(cell), result_of(cell, evaluations=9.0))
    assert len(losses(load([filled])).rows) == 3  # who spends more is no rival


def test_a_cell_that_the_suite_no_longer_asks_for_is_shown_as_what_it_is(filled):
    cell = {**first_cell("FORA"), "options": {"interval": 2}}
    Store(filled).write(spec_of(cell), result_of(cell))
    results = load([filled])
    assert "FORA (interval 2)" in results.settings[0].labels and not results.left_out
    elsewhere = {**cell, "setting": {**cell["setting"], "guidance": 7.0}}
    Store(filled).write(spec_of(elsewhere), result_of(elsewhere))
    assert load([filled]).left_out == ["1 cells that the suite does not ask for (any more)"]


def test_a_name_stays_on_its_line(tmp_path):
    name = "a\n\\input{x}\r\u2028# b <i>"
    results = load([fill(tmp_path, {**SUITE, "name": name})])
    assert latex(results).startswith("% a \\input{x} # b <i>: made by")
    assert not any(line.startswith("\\input") for line in latex(results).splitlines())
    assert markdown(results).splitlines()[0] == "# a \\\\input{x} # b \\<i>"


def test_a_glance_names_the_winner_of_every_setting(filled):
    cell = next(c for c in suite.read(SUITE).cells() if c["setting"]["guidance"] == 2.0)
    better = cell | {"method": "MagCache"}
    scores = {"PSNR": {"full": [40.0] * 4, "converged": [20.0] * 4}}
    Store(filled).write(spec_of(better), result_of(better, scores=scores))
    table = glance(load([filled]))
    assert [row[1:4] for row in table.rows] == [[g, "3", b] for g in "12" for b in (3, 4)]
    shown = [[table.shown(i, j) for j in range(4, 10)] for i in range(4)]
    assert shown[0] == ["32.00", "32.00", OURS, "+2.00", "FORA", "+5.00"]
    assert shown[2] == ["32.00", "40.00", "MagCache", "-8.00", "FORA", "+5.00"]
    assert "the 4 contests" in table.caption and "best of all in 3, and" in table.caption
    assert "calibration-free rival in 4;" in table.caption
    Store(filled).path(spec_of(first_cell("direct"))).unlink()
    table = glance(load([filled]))
    assert table.rows[0][6] == f"{OURS}, so far" and "the 3 contests" in table.caption


def test_forwards_count_the_branches_of_guidance(filled):
    rows = list(csv.DictReader(io.StringIO(spreadsheet(load([filled])))))
    assert {(r["guidance"], r["budget"], r["forwards"]) for r in rows} == {
        *(("1.0", "3", "3.0"), ("1.0", "4", "4.0"), ("2.0", "3", "6.0"), ("2.0", "4", "8.0")),
    }


@pytest.mark.parametrize("method", ["GeoShrink (corrected)", "direct", "AB2, direct grid"])
def test_forwards_within_an_interval_are_those_that_ran(method):
    """Against a count of the rows that the network is given."""
    case = replace(small_case(), guidance=2.0, interval=(0.5, 0.9))
    rows = []
    case.network.register_forward_hook(lambda module, args, out: rows.append(len(args[0])))
    outcome = METHODS[method]({}, lambda: [], 5).run(case, 5)
    setting = dict(model="fruit", guidance=2.0, shift=case.shift, interval=[0.5, 0.9])
    setting["steps"] = case.grid().steps
    steps = outcome.steps or case.grid().steps
    found = forwards_of(setting, outcome.evaluated, outcome.partial, steps)
    assert found == sum(rows) / len(case.labels) and 5 < found < 10


def test_numbers_of_two_definitions_never_mix(filled, monkeypatch):
    (plain,) = metrics_of("fruit")
    changed = replace(plain, metric=replace(plain.metric, version="2"))
    cell = first_cell("direct")
    Store(filled).write(spec_of(cell), result_of(cell, versions={"PSNR": "2"}))
    assert load([filled]).settings[0].at["direct", 3].score("PSNR", "full") == "not run"
    monkeypatch.setattr(reading, "all_metrics", lambda: {"PSNR": changed})
    results = load([filled])
    done = [c for c in results.cells if c.score("PSNR", "full") != "not run"]
    assert [(c.label, c.budget) for c in done] == [("direct", 3)]


def test_a_method_that_has_not_run_is_named_beneath_the_table(tmp_path):
    results = load([fill(tmp_path / "bench", skip=lambda cell: cell["method"] == "FORA")])
    text = markdown(results)
    assert "Not run yet: FORA." in text and "\n| FORA |" not in text


def test_a_contest_counts_when_every_method_has_run(filled):
    assert wins(load([filled]), "full").rows == [[OURS, 4, 4, "calibration-free"]]
    Store(filled).path(spec_of(first_cell("MagCache"))).unlink()
    results = load([filled])
    found = wins(results, "full")
    assert found.rows == [[OURS, 3, 3, "calibration-free"]]
    assert "Not counted: 1 in which methods have yet to run" in found.caption
    assert f"{OURS}, so far" in page_of(results)
    Store(filled).fail(spec_of(first_cell("MagCache")), "ValueError: no")
    assert wins(load([filled]), "full").rows == [[OURS, 4, 4, "calibration-free"]]


def test_skipped_metrics_give_their_reason(filled):
    cell = first_cell("FORA")
    result = result_of(cell)
    result["scores"]["LPIPS"] = {"full": "skipped: needs lpips-alex"}
    Store(filled).write(spec_of(cell), result)
    results = load([filled])
    rows = list(csv.DictReader(io.StringIO(spreadsheet(results))))
    status = {(r["method"], r["budget"], r["metric"], r["guidance"]): r["status"] for r in rows}
    assert status["direct", "3", "LPIPS", "1.0"] == "not run"
    assert any(r["status"] == "skipped: needs lpips-alex" for r in rows)
    assert "needs lpips-alex" in markdown(results) and "needs lpips-alex" in page_of(results)


def test_latex_has_groups_and_bold_and_no_bare_signs(filled):
    text = latex(load([filled]))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 4
    first = text.split(r"\begin{table}")[1]
    assert r"\multicolumn{4}{l}{\emph{calibration-free}} \\" in first
    assert rf"{OURS} & \textbf{{32.00 $\pm$ 2.12}} & \textbf{{33.00 $\pm$ 2.12}} & 1.0 \\" in first
    assert r"MagCache & 30.00 $\pm$ 2.12" in first  # alone of its kind: it beat nobody
    assert first.index("FORA") < first.index(r"\emph{calibrated}") < first.index("MagCache")
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert not re.search(r"[^\x00-\x7f]|(?<!\\)[#_%]", "\n".join(body))
    columns = {line.count(" & ") for line in first.splitlines() if line.endswith(r"\\")}
    assert columns == {0, 3}
    assert escaped("a_b 50% σ 10⁻⁴ ≈") == r"a\_b 50\% $\sigma$ 10$^{-4}$ ≈"


def test_the_page_is_whole_and_escaped(filled):
    html = page_of(load([filled]))
    assert "Tiny &amp; &lt;fast&gt;" in html and "<fast>" not in html
    assert re.search(r"https?:|//[a-z]+\.|@import|url\(", html) is None
    for title in ("Ours at a glance", "Who is nearest to the converged flow", "where the numbers"):
        assert title.lower() in html.lower()
    assert html.count('<details class="folded"') == 3  # two settings and the origin
    assert ">+2.00<" in html  # ours has 32, the best other, MagCache, 30


def test_the_six_files_and_the_command(filled, tmp_path, capsys):
    assert main(["bench", "report", str(filled), "--out", str(tmp_path / "out")]) == 0
    assert "16 of 16 cells" in capsys.readouterr().out
    names = {"results.csv", "losses.md", "report.md", "report.tex", "report.html", "calls.csv"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert {path.name for path in write(load([filled]), filled)} == names
    assert main(["bench", "report", str(filled), "--samples", "-3"]) == 2
    assert "--samples must be at least 0, got -3" in capsys.readouterr().err
    plots = tmp_path / "plots"
    assert main(["bench", "report", str(filled), "--plots", str(plots)]) == 0
    drawn = [path.read_text() for path in plots.iterdir()]
    assert len(drawn) == len(load([filled]).settings) and all("<svg" in each for each in drawn)


# The choice of what a chart shows


def test_a_chart_begins_with_ours_direct_and_the_best(filled):
    setting = load([filled]).settings[0]
    assert chosen(setting, {OURS}) == [OURS, "direct", "MagCache", "FORA"]
    names = [f"FORA (interval {i})" for i in range(1, 10)]
    many = SUITE | {"methods": ["direct", *({"FORA": {"interval": i}} for i in range(1, 10))]}
    folder = fill(filled.parent / "many", many, evaluations=3.0)
    for cell in suite.read(many).cells():
        if cell["options"].get("interval", 0) > 6:
            scores = {"PSNR": {"full": [50.0] * 4, "converged": [50.0] * 4}}
            Store(folder).write(spec_of(cell), result_of(cell, scores=scores, evaluations=3.0))
    results = load([folder])
    shown = chosen(results.settings[0], set())
    assert len(shown) == 7 and shown[0] == "direct" and set(names[6:]) <= set(shown)
    html = page_of(results)
    assert html.count('class="choosable off"') == 4 * 3 and "3 more" in html
    other = lambda cell: cell["method"] != "FORA"  # noqa: E731
    ours = ["σ, signed time", {"GeoShrink": {"rule": "log"}}, "FORA"]
    found = load([fill(filled.parent / "ours", SUITE | {"methods": ours}, other)])
    assert found.ours == {"σ, signed time", "GeoShrink (rule log)"}


def test_a_choice_refuses_what_it_does_not_have():
    line = Series("a", [1, 2], [3, 4])
    with pytest.raises(ValueError, match="no series 'b'; there are 'a'"):
        Choice("t", [line], "x", "y", chosen=["b"])
    with pytest.raises(ValueError, match="leave y_range out"):
        Choice("t", [line], "x", "y", y_range=(0, 1))
    far = Series("far", [1, 2], [1000, 2000])
    html = Choice("t", [line, far], "x", "y", chosen=["a"]).html()
    assert ">4.0<" in html and ">2000<" not in html  # the axes follow what is shown
    assert html.count("<title>") == 4


# Samples and traces


def load_small(name, device="cpu", folder=None):
    model = small_case().model
    model.facts["sha256"] = "0" * 64
    return model


@pytest.fixture
def small_model(monkeypatch):
    monkeypatch.setattr(running, "load", load_small)


KEPT = SUITE | {
    "keep": 2,
    "models": {"fruit": {"budgets": [4, 5], "guidance": [1.0, 2.0], "shift": 3.0, "steps": 6}},
    "methods": ["direct", METHOD, {"FORA": {"interval": 1}}],
}


def test_samples_are_kept_whole_and_made_anew(tmp_path, small_model):
    command.run(KEPT, tmp_path, quiet=True)
    files = sorted(tmp_path.glob("*.samples.safetensors"))
    assert len(files) == 2 * 2 * 3 + 2 * 2  # cells, and the references of two settings
    found = [read_samples(path) for path in files]
    assert all(s is not None and s.values[0].shape == (2, 3, 8, 8) for s in found)
    assert all(
        s is not None and len(s.labels) == 2 and set(s.labels) <= set("abcde") for s in found
    )
    html = page_of(load([tmp_path]))
    assert html.count('class="comparison"') == 1 and "Error along the way, B = 4" in html
    identical = html.count('<span class="score">identical</span>')
    assert identical == 2  # FORA in full: beyond its budget, so at the first budget only
    cell = next(tmp_path.glob("*.cell.json"))
    gone = cell.with_name(cell.name.replace("cell.json", "samples.safetensors"))
    gone.unlink()
    progress = command.run(KEPT, tmp_path, quiet=True)
    assert (progress.done, progress.kept) == (1, 11) and read_samples(gone) is not None


def test_without_keep_nothing_is_kept(tmp_path, small_model):
    command.run(KEPT | {"keep": 0}, tmp_path, quiet=True)
    assert not list(tmp_path.glob("*.samples.safetensors"))
    assert all("trace" not in result for _, result in Store(tmp_path).cells())
    assert command.run(KEPT, tmp_path, quiet=True).done == 12  # now they are asked for


@pytest.mark.parametrize("keep", [-1, 3, "two", 1.5])
def test_keep_must_be_a_number_of_samples(keep):
    with pytest.raises((ValueError, TypeError), match=f"keep.*{keep}"):
        suite.read(SUITE | {"keep": keep})


def test_a_trace_is_the_error_of_the_state():
    """Against the states that sample's callback gives, stage by stage."""
    case = small_case()
    trace = Trace(case)
    outcome, errors = trace.run(Ours(), 5)
    full, ours = {0: case.noise}, {0: case.noise}
    for states, budget in ((full, None), (ours, 5)):
        keep = lambda n, x, states=states: states.update({n + 1: x.clone()})  # noqa: E731
        sample(case.velocity(), case.noise, case.grid(), budget, callback=keep)
    assert len(errors) == 13 and errors[0] == 0
    asked = [n for n, error in enumerate(errors) if error is not None]
    assert asked == [*outcome.evaluated, 12]
    for n in asked:
        distance = (ours[n] - full[n]).flatten(1).norm(dim=1) / full[n].flatten(1).norm(dim=1)
        assert errors[n] == pytest.approx(float(distance.mean()), abs=2e-6)
    assert max(e for e in errors if e is not None) > 1e-4


def test_traces_of_other_methods():
    trace = Trace(small_case())
    assert trace.run(Again(), 5)[1] == [0.0] * 13
    held = trace.run(Fora(interval=3), 5)[1]
    assert None not in held and held[:2] == [0.0, 0.0] and held[-1] != 0
    short = trace.run(Direct(), 4)[1]  # every third σ of twelve is one of four
    assert [n for n, error in enumerate(short) if error is not None] == [0, 3, 6, 9, 12]


def test_damaged_samples_are_as_if_not_kept(tmp_path):
    path = tmp_path / "x.samples.safetensors"
    assert read_samples(path) is None
    put(path, b"nothing")
    assert read_samples(path) is None
    samples.write_samples(path, small_case(), [torch.rand(2, 3, 8, 8)], 1)
    assert read_samples(path) is not None
    put(path, path.read_bytes()[:-5])
    assert read_samples(path) is None


def samples_for(name):
    recipe = RECIPES[name]
    generator = torch.Generator().manual_seed(0)
    facts = {"rate": 8000, "fps": 20, "parents": [-1, 0, 1], "joint_names": ["Hips", "L", "Head"]}
    if name == "motion":
        return Samples([torch.rand(1, 8, 3, 3, generator=generator)], ["walk"], [5], facts)
    if name == "objects":
        axis = torch.linspace(-1, 1, 8)
        ball = (axis[:, None, None] ** 2 + axis[:, None] ** 2 + axis**2).sqrt() - 0.6
        return Samples([ball[None]], ["shape 0"], None, facts)
    shapes = [shape[1:] if len(shape) == 2 else shape for shape in recipe.shapes]
    if name == "fruit-latent":
        shapes = [(3, 8, 8)]
    values = [torch.rand(1, *shape, generator=generator) for shape in shapes]
    return Samples(values, ["one"], None, facts)


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_model_has_something_to_look_at(name):
    sample = samples_for(name).sample(0, RECIPES[name].modality)
    found = medium(sample, "a word")
    assert found is not None
    html = found.html()
    assert html.startswith("<img") and 'alt="a word"' in html
    assert ("data-sound" in html) == name.startswith("digits")
    assert ("data-moving" in html) == (name == "fruit-video")


def test_sound_is_what_was_given():
    levels = np.array([0, 1, -1, 12345, 32767, -32767])
    heard = np.append((levels - 0.4 * np.sign(levels)) / 32767, -1.5)
    with wave.open(io.BytesIO(encode_wave(heard, 8000))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 1, 2)
        kept = np.frombuffer(file.readframes(7), "<i2")
    assert kept.tolist() == [*levels, -32767]


# A browser: as wide as a desk and as a phone, by day and by night


ACTS = """
() => {
  const seen = {};
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const style = (found) => getComputedStyle(found);
  seen.width = window.innerWidth;
  seen.wide = document.documentElement.scrollWidth;
  seen.colours = [style(document.body).backgroundColor, style(document.body).color];
  seen.marks = all(".choosable:not(.off)").map((line) => all("path.mark", line).length);

  const chart = document.querySelector(".chart");
  const lines = () => all(".choosable", chart).map((line) => !line.classList.contains("off"));
  seen.lines = [lines()];
  chart.querySelector("input").click();
  seen.lines.push(lines());

  const stage = document.querySelector(".stage"), wipe = stage.querySelector(".wipe");
  seen.layers = all(".layer img", stage).length;
  seen.clips = [10, 50, 90].map((value) => {
    wipe.value = value;
    wipe.dispatchEvent(new Event("input"));
    return ["left", "right"].map((side) => style(stage.querySelector(`.layer.${side}`)).clipPath);
  });

  const head = document.querySelector('.sortable th[data-first="higher"]');
  const rows = () => [...head.closest("table").tBodies[0].rows];
  seen.sorted = [0, 1].map(() => {
    head.querySelector("button").click();
    return rows().map((row) => row.cells[head.cellIndex].dataset.value);
  });
  return seen;
}
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """report.html of a small run whose samples were kept."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "load", load_small)
        command.run(KEPT, folder, quiet=True)
    written = write(load([folder]), folder)[-1]
    assert written.name == "report.html"
    return written


def light_of(colour):
    """From 0 to 255, of "rgb(…)"."""
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


@in_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_the_report_in_a_browser(page, width, dark):
    """Nothing is wider than the window; plots have marks; the slider wipes; tables are sorted."""
    scheme = "dark" if dark else "light"
    viewport = {"width": width, "height": 900}
    with opened(page, viewport=viewport, color_scheme=scheme) as window:
        window.wait_for_selector(".stage .layer.right img")
        seen = window.evaluate(ACTS)
    assert seen["width"] == width >= seen["wide"]
    back, ink = map(light_of, seen["colours"])
    assert (back < 60 and ink > 180) if dark else (back > 220 and ink < 90)
    assert seen["marks"] and min(seen["marks"]) > 0
    before, after = seen["lines"]
    assert before[0] and not after[0] and before[1:] == after[1:]
    assert seen["layers"] == 2
    assert seen["clips"] == [
        [f"inset(0px {100 - at}% 0px 0px)", f"inset(0px 0px 0px {at}%)"] for at in (10, 50, 90)
    ]
    first, second = ([float(value) for value in values] for values in seen["sorted"])
    assert len(set(first)) > 1 and first == sorted(first, reverse=True)
    assert second == sorted(first)


SWITCH = """
() => {
  const seen = {};
  const [chart, other] = document.querySelectorAll(".chart");
  const labels = () => [...chart.querySelectorAll(".axes text")].map((t) => t.textContent).join();
  const off = (one) => one.querySelectorAll(".choosable.off").length;
  seen.axes = [labels()];
  seen.off = [off(chart), off(other)];
  chart.querySelector(".more input").click();
  seen.axes.push(labels());
  seen.off.push(off(chart), off(other));
  const table = document.querySelector(".sortable");
  table.querySelectorAll("th button")[1].click();
  seen.sorted = [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
  seen.listen = document.querySelectorAll(".listen button").length;
  return seen;
}
"""


@in_browser
def test_what_switches_in_a_browser(tmp_path):
    """The axes follow a line that is switched on, in all charts of a fold; what failed is sorted
    last; sound has its buttons.
    """
    lines = [Series("a", [1, 2], [3, 4]), Series("far", [1, 2], [1000, -2000])]
    charts = [Choice(title, lines, "x", "y", chosen=["a"]) for title in "12"]
    numbers = [("b", Shown(1, "1 ± 1")), ("c", Shown(math.nan, "failed")), ("a", Shown(2, "2"))]
    table = Table("t", [Column("name"), Column("PSNR", better="higher")], numbers)
    tone = Sound(b"\x89PNG\r\n\x1a\n", "a tone", b"RIFF")
    look = Comparison("l", ["s"], ["full", "m"], {("s", "full"): tone, ("s", "m"): tone})
    html = Page("t", "", [Folded("f", [*charts, table, look], open=True)]).html()
    path = tmp_path / "page.html"
    path.write_text(html, encoding="utf-8")
    with opened(path) as window:
        seen = window.evaluate(SWITCH)
    assert seen["axes"][0].startswith("3.0,3.2") and "−2000" in seen["axes"][1]
    assert seen["off"] == [1, 1, 0, 0]
    assert seen["sorted"] == ["a", "b", "c"] and seen["listen"] == 2


def test_a_drawing_is_a_whole_svg_file_with_its_legend():
    hostile = "<script>alert(1)</script>\"'&"
    series = [Series(label, [1, 2], [3, 4]) for label in ("ours", hostile, "left out")]
    svg = drawing(Choice("dB by calls", series, "calls", "dB", chosen=["ours", hostile]))
    root = ElementTree.fromstring(svg)
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ours", hostile, "calls", "dB"} <= set(words) and "left out" not in words
    style = next(root.iter("{http://www.w3.org/2000/svg}style")).text or ""
    assert ".line {" in style and "--series-0" in style and "prefers-color-scheme: dark" in style
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
