"""docs/results.md is what benchmarks/results_page.py writes of the cells that are kept."""

from __future__ import annotations

import importlib.util
import json
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from cell_pages import without_code
from geoshrink_bench import suite
from geoshrink_bench.asked import Asked
from geoshrink_bench.store import Store

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ARCHIVE = BENCHMARKS / "cells.tar.xz"
FOLDERS = ("cells/rivals", "cells/first", "cells/foreign")


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("results_page", BENCHMARKS / "results_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks for its module
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not ARCHIVE.is_file(), reason="benchmarks/cells.tar.xz is not here")
def test_the_page_is_what_the_command_writes(maker, tmp_path, monkeypatch):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "cells", filter="data")
    monkeypatch.chdir(tmp_path)
    found = maker.gather([Path(folder) for folder in FOLDERS])
    before = maker.PAGE.read_text(encoding="utf-8")
    command = f"python benchmarks/results_page.py {' '.join(FOLDERS)} --write"
    assert command in before
    assert without_code(maker.page(before, found)) == without_code(before), f"run: {command}"
    before = maker.README.read_text(encoding="utf-8")
    made = maker.page(before, found, maker.FRONT)
    assert without_code(made) == without_code(before), f"run: {command}"
    for name, svg in maker.charts(found).items():
        assert (maker.PLOTS / name).read_text(encoding="utf-8") == svg, f"run: {command}"


QUALITY = {
    "GeoShrink (corrected)": {3: 30.0, 4: 40.0},
    "GeoShrink (published)": {3: 25.0, 4: 30.0},
    "direct": {3: 20.0, 4: 32.0},
    "MeanCache": {3: 31.5, 4: 33.0},
    "FORA": {3: 10.0},
}


@pytest.fixture
def folder(tmp_path):
    models = {"fruit": {"budgets": [3, 4], "guidance": 3.0, "shift": 3.0, "steps": 6}}
    given = {"name": "few", "samples": 2, "seeds": 1, "models": models, "methods": list(QUALITY)}
    found = suite.read(given)
    Asked("", found.source).save(tmp_path / "few")
    for cell in found.cells():
        value = QUALITY[cell["method"]].get(cell["budget"])
        if value is not None:
            more = {"kind": "fidelity", "converged": 800, "weights": "ab", "version": "1"}
            ran = {"evaluations": cell["budget"], "evaluated": [0, 1, 2], "held": 0}
            ran |= {
                "made": {"on": "CPU", "torch": "2"},
                "calibrated": cell["method"] == "MeanCache",
            }
            Store(tmp_path / "few").write(
                cell | more, {"scores": {"PSNR": {"full": [value] * 2}}} | ran
            )
    return tmp_path / "few"


def test_every_part_is_computed(maker, folder):
    found = maker.gather([folder])
    assert (
        found.others is None
        and "| few | `few` | 9 | 1 | 0 | 0 | 9 | 0 of 4 | 1 |" in maker.cells(found)
    )
    said = " ".join(maker.conclusion(found).split())
    assert "some rival is nearer in 1 of 1 with 3 calls: with 3 calls more often than not." in said
    assert "than direct step reduction in 2 of 2 contests, by 9.0 dB in the median" in said
    assert "every rival that ran, with as many calls or fewer, in 1 of 2" in said
    assert "for 30 dB it makes ≤ 50 % of the full run's calls" in said
    lost = maker.losses(found)
    assert "behind some rival in 1 of 2 contests" in lost and "MeanCache (1)" in lost
    assert "| PSNR dB ↑ | 3 | MeanCache | 30.00 | 31.50 | 1.5 |" in lost
    line = "*9 of 10 cells of `few` done, 1 missing; 0 stale, 9 by unknown code; geoshrink 1, CPU.*"
    assert line in lost
    rows = maker.pictures(found).splitlines()
    assert rows[2] == "| 3, 3 | direct | 20.0 | 32.0 |" and rows[4].endswith("| 30.0 | **40.0** |")
    assert rows[5] == "|  | best rival | **31.5** MeanCache | 33.0 MeanCache |"
    assert "| pictures, 6 steps | 35 | > 4 | > 4 | 3.5 | > 4 | — | ≥ 12 % | 42 % |" in maker.calls(
        found
    )
    assert set(maker.charts(found)) == {"calls.svg"}


def test_methods_are_ranked_by_their_lead_over_direct(maker, folder):
    results = maker.gather([folder]).ours
    assert "geoshrink in 1 of 2, by 1.5 dB at most" in maker.methods.against_the_best(results)
    rows = maker.methods.rows(results, (3, 4, 5))
    assert rows == [
        ["paper", "2", "nothing", "100 %", "+7.5", "+5.0 (+5.0)", "−2.0 (−2.0)", "—"],
        ["geoshrink", "2", "nothing", "100 %", "", "+10.0 (+10.0)", "**+8.0** (+8.0)", "—"],
        ["MeanCache", "2", "calibration", "100 %", "+2.8", "**+11.5** (+11.5)", "+1.0 (+1.0)", "—"],
        ["FORA", "1", "nothing", "100 %", "+20.0", "−10.0 (−10.0)", "—", "—"],
    ]


def test_who_makes_fewer_calls_is_told_and_who_ran_little_last(maker, folder, monkeypatch):
    store = Store(folder)
    for spec, result in list(store.cells()):
        if spec["method"] == "MeanCache" and spec["budget"] == 4:
            store.write(spec, result | {"evaluations": 3})
        if spec["method"] == "FORA":
            store.write(spec, result | {"scores": {"PSNR": {"full": [39.0, 39.0]}}})
    results = maker.gather([folder]).ours
    assert maker.methods.spent(results, "MeanCache") == "88 %"
    assert maker.methods.spent(results, "ZEUS") == "—"
    ranked = [label for label, _ in maker.methods.ranked(results)]
    assert ranked == ["paper", "geoshrink", "FORA", "MeanCache"]  # the nearer first
    monkeypatch.setattr(maker.methods, "HALF", 1.0)
    ranked = [label for label, _ in maker.methods.ranked(results)]
    assert ranked == ["paper", "geoshrink", "MeanCache", "FORA"]


def without(folder, budget, *names):
    """Takes the cells of methods at a budget away."""
    for path in folder.glob("*.cell.json"):
        spec = json.loads(path.read_text())["spec"]
        if spec["budget"] == budget and spec["method"] in names:
            path.unlink()


def test_a_contest_without_a_rival_is_not_won(maker, folder):
    without(folder, 4, "MeanCache")
    found = maker.gather([folder])
    assert "in 1 of 1 contests that one has run" in maker.losses(found)
    assert "In 1 more no rival has run yet: fruit 1." in maker.losses(found)
    said = " ".join(maker.conclusion(found).split())
    assert "than every rival that ran, with as many calls or fewer, in 0 of 1" in said
    assert "geoshrink in 1 of 1, by 1.5 dB" in maker.methods.against_the_best(found.ours)
    told = maker.in_all(found.ours)
    assert "ahead of direct in 2 of 2 contests, and behind some rival" in told
    assert "counted, in at least 1 of the 1 that one has run." in told
    assert "2 of the 10 cells that the suite asks for have not run, 0 could not" in told
    assert "of our own 4 that have run, none are" in told


def test_a_loss_counts_where_no_rival_has_run(maker, folder):
    without(folder, 4, "MeanCache")
    store = Store(folder)
    for spec, result in list(store.cells()):
        if spec["method"] == "GeoShrink (corrected)" and spec["budget"] == 4:
            store.write(spec, result | {"scores": {"PSNR": {"full": [31.0, 31.0]}}})
    assert "in 2 of 2 contests that one has run" in maker.losses(maker.gather([folder]))


def test_a_variant_that_ran_less_and_is_nearer_is_shown_too(maker, monkeypatch):
    cells = [SimpleNamespace(label=label, method="ZEUS") for label in ("ZEUS", "ZEUS (tuned)")]
    cells.append(SimpleNamespace(label="geoshrink", method="GeoShrink (corrected)"))
    some = SimpleNamespace(cells=cells, ours={"geoshrink"})
    a, b = ("one", "PSNR"), ("two", "PSNR")
    leads = {
        "geoshrink": {7: {a: 3.0, b: 5.0}},
        "ZEUS": {7: {a: 1.0, b: 9.0}},
        "ZEUS (tuned)": {7: {a: 2.0}},
    }
    monkeypatch.setattr(maker.methods, "leads_of", lambda given: leads)
    assert [label for label, _ in maker.methods.ranked(some)] == ["geoshrink", "ZEUS"]
    assert maker.methods.in_part(some) == [["ZEUS (tuned)", "1", "+2.0", "+1.0", "+3.0"]]
    leads["ZEUS (tuned)"][7][a] = 0.5
    assert maker.methods.in_part(some) == []
    leads["ZEUS (tuned)"][7] = {a: 2.0, b: 9.5}  # as many contests, and nearer
    assert [label for label, _ in maker.methods.ranked(some)] == ["geoshrink", "ZEUS (tuned)"]
    assert maker.methods.in_part(some) == []


def test_what_a_form_adds_to_the_default(maker, folder, monkeypatch):
    forms = maker.forms
    a, b = ("one", "PSNR"), ("two", "PSNR")
    leads = {
        "geoshrink": {7: {a: 3.0, b: 5.0}, 10: {a: 4.0}},
        "learned": {7: {a: 4.5, b: 4.0}, 10: {a: 3.5}, 15: {a: 9.0}},
    }
    monkeypatch.setattr(forms, "leads_of", lambda given: leads)
    table, where, lost = forms.over_default([("ours", None)], "learned").split("\n\n")
    assert table.splitlines()[2] == (
        "| ours | 3 | **+0.0** | −1.0 | 1 | +0.2 (−1.0) | −0.5 (−0.5) | — | — |"
    )
    assert (where, lost) == ("Where it loses:", "- two, PSNR, 7 calls: 1.0 dB behind")
    leads["learned"] = {7: {a: 3.0}}
    assert "loses" not in forms.over_default([("ours", None)], "learned")
    assert forms.over_default([("ours", None)], "planned").count("\n") == 1  # nothing has run


def test_only_what_is_between_the_marks_is_made_anew(maker, folder):
    found = maker.gather([folder])
    marks = [
        f"<!-- begin {name} -->\nold\n<!-- end {name} -->\nkept {name}\n" for name in maker.PARTS
    ]
    text = maker.page("# Mine\n" + "".join(marks), found)
    assert text.startswith("# Mine\n") and "\nold\n" not in text
    assert all(f"\nkept {name}\n" in text for name in maker.PARTS)
    assert maker.page(text, found) == text
    with pytest.raises(ValueError, match="must have <!-- begin cells --> and"):
        maker.page("# Mine", found)
    with pytest.raises(ValueError, match="nothing makes weather"):
        maker.page(text + "<!-- begin weather -->", found)


def test_folders_without_our_default_are_refused(maker, folder, capsys):
    for path in folder.glob("*.cell.json"):
        if "corrected" in path.read_text():
            path.unlink()
    with pytest.raises(SystemExit):
        maker.main([str(folder)])
    assert "no cells of geoshrink on models of the zoo" in capsys.readouterr().err


def test_a_page_that_lost_what_is_quoted_is_refused(maker, monkeypatch):
    excerpts = maker.excerpts
    with pytest.raises(ValueError, match=r"planning.md has no section 'Weather'; it has What was"):
        excerpts.section("planning.md", "Weather")
    with pytest.raises(ValueError, match="no bullet begins with 'rain'"):
        excerpts.bullets("planning.md", "Losses", "rain")
    with pytest.raises(ValueError, match="not all of paper, rain"):
        heading, first = "Against direct and the default before", "our models, against direct"
        excerpts.rows("default.md", heading, first, ("paper", "rain"))
    monkeypatch.setattr(excerpts, "read", lambda name: "# A page\n")
    with pytest.raises(ValueError, match="does not say what it was made by"):
        excerpts.made_by("planning.md")
