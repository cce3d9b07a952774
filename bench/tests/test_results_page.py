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
from geoshrink_bench.store import Store, name_of

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
    assert "every rival that ran, with as many calls, 5 % more at most, in 1 of 2" in said
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
    assert "`geoshrink` in 1 of 2, by 1.5 dB at most" in maker.methods.against_the_best(results)
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
    assert "in 1 of 1 contests in which some rival has run" in maker.losses(found)
    assert "In 1 more no rival has run yet: fruit 1." in maker.losses(found)
    said = " ".join(maker.conclusion(found).split())
    assert "than every rival that ran, with as many calls, 5 % more at most, in 0 of 1" in said
    assert "`geoshrink` in 1 of 1, by 1.5 dB" in maker.methods.against_the_best(found.ours)
    told = maker.in_all(found.ours)
    assert "ahead of direct in 2 of 2 contests. It is behind some rival" in told
    assert "counted, in at least 1 of the 1 contests in which some rival has run." in told
    assert "Of 10 measurements that the suite asks for, 2 are not made yet and 0 failed" in told
    assert "Of our own 4, none are by today" in told


def test_a_loss_counts_where_no_rival_has_run(maker, folder):
    without(folder, 4, "MeanCache")
    store = Store(folder)
    for spec, result in list(store.cells()):
        if spec["method"] == "GeoShrink (corrected)" and spec["budget"] == 4:
            store.write(spec, result | {"scores": {"PSNR": {"full": [31.0, 31.0]}}})
    assert "in 2 of 2 contests in which some rival has run" in maker.losses(maker.gather([folder]))


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


@pytest.fixture
def several(maker, monkeypatch):
    """Leads over direct of our default, of three rivals and of a nearer variant of each."""
    a, b, c, d = (("setting " + name, "PSNR") for name in "abcd")
    leads = {
        "geoshrink": {7: {a: 3.0, b: 9.0}, 10: {c: 20.0, d: 30.0}},
        "ZEUS": {7: {a: 2.0, b: 6.0}},  # 2.0 behind, +4.0 over direct
        "FORA": {7: {a: 0.0}, 10: {c: 15.0}},  # 4.0 behind, +7.5
        "VDE": {7: {a: 2.5}},  # nearest, but in one contest of four
        "FORA (tuned)": {10: {c: 19.0}},
        "ZEUS (tuned)": {7: {b: 8.5}},
    }
    monkeypatch.setattr(maker.methods, "leads_of", lambda given: leads)
    cells = [SimpleNamespace(label=name, method=name.partition(" ")[0]) for name in leads]
    return SimpleNamespace(cells=cells, ours={"geoshrink"}, settings=[])


def test_rivals_are_ranked_by_the_contests_that_both_ran(maker, several):
    ranked = [label for label, _ in maker.methods.ranked(several)]
    assert ranked == ["geoshrink", "ZEUS", "FORA", "VDE"]


def test_variants_that_ran_in_part_come_by_how_near_they_are(maker, several):
    rows = maker.methods.in_part(several)
    assert [row[0] for row in rows] == ["ZEUS (tuned)", "FORA (tuned)"]
    assert [row[1:3] for row in rows] == [["1", "+8.5"], ["1", "+19.0"]]
    several.ours = set()
    maker.methods.leads_of(several).pop("geoshrink")
    assert maker.methods.in_part(several) == []  # nothing to be near to


def test_the_least_lead_is_told(maker, folder, monkeypatch):
    a, b, c = (("setting " + name, "PSNR") for name in "abc")
    leads = {"geoshrink": {3: {a: 1.0, b: 3.0, c: 8.0}}}
    monkeypatch.setattr(maker.methods, "leads_of", lambda given: leads)
    rows = maker.methods.rows(maker.gather([folder]).ours, (3,))
    assert rows[0][-1] == "**+4.0** (+1.0)"


def test_the_front_page_has_the_same_rows(maker, folder, monkeypatch):
    store = Store(folder)
    for spec, result in list(store.cells()):
        if spec["method"] == "MeanCache" and spec["budget"] == 4:
            store.write(spec, result | {"evaluations": 3})
    results = maker.gather([folder]).ours
    monkeypatch.setattr(maker.front_page, "BUDGETS", (3, 4))
    monkeypatch.setattr(maker.front_page, "SHOWN", 0)
    table = maker.others_in_front(results).splitlines()
    assert table[0] == "|  | needs | contests | 3 calls | 4 calls |"
    assert table[3] == "| **geoshrink** | nothing | 2 | +10.0 | **+8.0** |"
    mean = "| MeanCache | calibration | 2 | **+11.5** | +1.0 |"
    assert table[4] == mean and table[5] == ""  # FORA is neither near nor asked for
    first = (
        "3 of 4 methods. The worst contest of `geoshrink`: +8.0 dB. Behind the best rival of each"
    )
    assert table[6].startswith(first)
    assert "For `geoshrink`, some rival is nearer in 1 of 1 with 3 calls: with 3" in table[6]
    monkeypatch.setattr(maker.front_page, "ALSO", ())
    monkeypatch.setattr(maker.front_page, "SHOWN", 2)
    assert len(maker.others_in_front(results).splitlines()) == 8
    results.settings[0].spec["model"] = "fruit"
    assert "Not run on" not in maker.front_page.not_run(results, ["MeanCache"])
    assert maker.front_page.not_run(results, ["ZEUS"]) == " Not run on fruit: ZEUS."


def test_how_much_has_run_counts_what_the_suite_asks_for(maker, folder):
    store = Store(folder)
    for spec, result in list(store.cells()):
        if spec["method"] == "direct":
            store.write(spec | {"method": "UniPC, direct grid"}, result)  # not asked for
        if spec["method"] == "FORA":
            store.write(spec | {"options": {"warm_up": 2}}, result)  # with this option neither
            next(folder.glob(f"{name_of(spec)}*")).unlink()
            store.fail(spec, "no")
    told = maker.in_all(maker.gather([folder]).ours)
    assert "Of 10 measurements that the suite asks for, 1 are not made yet and 1 failed" in told


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
