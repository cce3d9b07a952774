"""Calls needed for so many dB: between the measured budgets, never beyond."""

from __future__ import annotations

import csv
import io
import math
import random
from itertools import pairwise

import pytest

from geoshrink_bench import command, suite
from geoshrink_bench.asked import Asked
from geoshrink_bench.page import drawing
from geoshrink_bench.report import load
from geoshrink_bench.report.calls import Between, curves, decibels, median, needed
from geoshrink_bench.report.calls_tables import (
    calls_by_method,
    calls_chart,
    calls_needed,
    calls_sheet,
)
from geoshrink_bench.store import Store
from geoshrink_bench.words import Measure

PSNR = Measure("PSNR", "dB", "higher")


@pytest.mark.parametrize(
    ("points", "target", "said"),
    [
        ([(7, 20.0), (10, 26.0)], 23, "8.5"),
        ([(10, 26.0), (7, 20.0)], 26, "10.0"),
        ([(7, 20.0), (10, 26.0)], 20, "≤ 7"),
        ([(7, 20.0), (10, 26.0)], 26.01, "> 10"),
        ([(7, 20.0), (10, 18.0), (15, 30.0)], 25, "12.5"),  # from 20 dB at 10 calls, not from 18
        ([(7, 20.0), (10, 32.0), (15, 28.0)], 30, "9.5"),
        ([(7, 20.0), (10, 32.0), (15, 28.0)], 33, "> 15"),
        ([(7, 31.0), (10, 29.0)], 30, "≤ 7"),
        ([(7, 20.0), (10, math.inf)], 30, "7 to 10"),
        ([(7, math.inf), (10, math.inf)], 30, "≤ 7"),
        ([(7.4, 20.0), (10.6, 30.0)], 25, "9.0"),
    ],
)
def test_calls_are_interpolated_between_what_was_measured(points, target, said):
    assert str(needed(points, target)) == said


def test_more_decibels_never_need_fewer_calls():
    chance = random.Random(0)
    for _ in range(200):
        budgets = sorted(chance.sample(range(4, 40), chance.randint(1, 5)))
        points = [(b, chance.uniform(10, 50)) for b in budgets]
        found = [needed(points, target) for target in range(10, 51)]
        for one, other in pairwise(found):
            assert one.low <= other.low and one.high <= other.high
        for each in found:
            assert each.known or (each.low, each.high) in ((0, budgets[0]), (budgets[-1], math.inf))
            assert not each.known or budgets[0] <= each.low <= budgets[-1]


EIGHT, SIXTEEN, FEW, MANY = Between(8, 8), Between(16, 16), Between(0, 7), Between(20, math.inf)
EIGHT_OR_LESS = Between(0, 8)


@pytest.mark.parametrize(
    ("own", "other", "said"),
    [
        (EIGHT, SIXTEEN, "50 %"),
        (SIXTEEN, EIGHT, "−100 %"),
        (FEW, SIXTEEN, "≥ 56 %"),
        (EIGHT, MANY, "≥ 60 %"),
        (FEW, MANY, "≥ 65 %"),
        (MANY, SIXTEEN, "≤ −25 %"),
        (EIGHT, FEW, "≤ −14 %"),
        (Between(7, 10), Between(20, 20), "50 % to 65 %"),
    ],
)
def test_a_saving_says_what_is_known_of_it(own, other, said):
    assert str(own.saving(other)) == said and own.saving(other).known


@pytest.mark.parametrize(("own", "other"), [(FEW, EIGHT_OR_LESS), (FEW, FEW), (MANY, MANY)])
def test_a_saving_of_which_nothing_is_known_is_none(own, other):
    assert not own.saving(other).known


def test_a_median_is_no_more_certain_than_its_numbers():
    def said(*found):
        return str(median([Between(*each) for each in found]))

    assert said((3, 3), (0, 2), (9, math.inf)) == "3.0"
    assert said((3, 3), (0, 4), (9, math.inf)) == "3 to 4"
    assert said((0, 5), (0, 7), (6, 6)) == "≤ 6"
    assert said((2, math.inf), (3, math.inf), (4, 4)) == "> 3"
    assert said((1, 1), (2, 2), (3, 3), (4, 4)) == "2.0"


def test_errors_count_as_decibels_of_a_range():
    assert decibels(PSNR, 31.5) == 31.5
    assert decibels(Measure("MPJPE", "cm", "lower"), 17.0) == pytest.approx(20.0)
    assert decibels(Measure("SDF error", "‰", "lower"), 3.0) == pytest.approx(40.0)
    assert decibels(Measure("MPJPE", "cm", "lower"), 0.0) == math.inf
    assert decibels(Measure("FID", "", "lower"), 3.0) is None
    assert decibels(Measure("LPIPS", "dB", "lower"), 3.0) is None


# -- of cells

QUALITY = {
    "direct": {3: 22.0, 4: 28.0, 5: 34.0},
    "GeoShrink (corrected)": {3: 28.0, 4: 36.0, 5: 44.0},
    "GeoShrink (published)": {3: 20.0, 4: 24.0, 5: 29.0},
    "FORA": {3: 24.0, 4: 26.0, 5: 31.0},
    "TeaCache": {3: 23.0},
    "full run, again": {3: 50.0, 4: 50.0, 5: 50.0},
}


@pytest.fixture
def folder(tmp_path):
    models = {
        "fruit": {"budgets": [3, 4, 5], "guidance": 1.0, "shift": 3.0, "steps": 10},
        "motion": {"budgets": [3, 4, 5], "guidance": 1.0, "shift": 3.0, "steps": 10},
    }
    given = {"samples": 2, "seeds": 1, "models": models, "methods": list(QUALITY)}
    found = suite.read(given)
    Asked("", found.source).save(tmp_path)
    for cell in found.cells():
        value = QUALITY[cell["method"]].get(cell["budget"])
        if value is None:
            continue
        motion = cell["setting"]["model"] == "motion"
        each = [170 / 10 ** (value / 20) if motion else value] * 2
        more = {"kind": "fidelity", "converged": 800, "weights": "ab", "version": "1"}
        extra = 0.5 if cell["method"] == "FORA" else 0.0  # it does more than it was given
        made = {"evaluations": cell["budget"] + extra, "evaluated": [0, 1, 2], "held": 0}
        scores = {"MPJPE" if motion else "PSNR": {"full": each}}
        Store(tmp_path).write(cell | more, {"scores": scores} | made)
    return tmp_path


def rows_of(table):
    names = [column.name for column in table.columns]
    return [
        dict(zip(names, (table.shown(i, j) for j in range(len(names)))))
        for i in range(len(table.rows))
    ]


@pytest.mark.parametrize("model", ["fruit", "motion"])
def test_the_table_has_every_target_with_what_is_saved(folder, model):
    table = calls_needed(load([folder]))
    rows = [row for row in rows_of(table) if row["setting"].startswith(f"{model},")]
    told = [
        (row["dB"], row["direct"], row["geoshrink"], row["best rival"], row["which"])
        for row in rows
    ]
    assert told == [
        ("25", "3.5", "≤ 3", "4.0", "FORA"),
        ("30", "4.3", "3.2", "5.3", "FORA"),
        ("35", "> 5", "3.9", "> 5.5", "—"),
    ]
    assert [row["paper"] for row in rows] == ["4.2", "> 5", "> 5"]
    assert [row["saved against direct"] for row in rows] == ["≥ 14 %", "25 %", "≥ 22 %"]
    assert [row["against the full run"] for row in rows] == ["≥ 70 %", "68 %", "61 %"]
    assert "20·log₁₀ of a person's height (170 cm) over the MPJPE: motion" in table.caption
    assert "PSNR: fruit" in table.caption and "made by unknown code" in table.caption


def test_the_methods_are_compared_where_both_ran(folder):
    rows = {row["method"]: row for row in rows_of(calls_by_method(load([folder])))}
    assert list(rows) == ["direct", "paper", "FORA", "geoshrink"]  # the strongest rivals first
    assert rows["geoshrink"]["settings"] == "2" and rows["geoshrink"]["30 dB: calls"] == "32 %"
    assert (
        rows["geoshrink"]["30 dB: saved"] == "25 %" == rows["direct"]["geoshrink against it, 30 dB"]
    )
    assert rows["FORA"]["30 dB: saved"] == "−22 %"
    assert rows["paper"]["geoshrink against it, 30 dB"] == "≥ 35 %"
    assert rows["paper"]["30 dB: saved"] == "≤ −15 %" and rows["direct"]["30 dB: saved"] == "—"


def test_the_sheet_has_every_method_with_its_bounds(folder):
    rows = list(csv.DictReader(io.StringIO(calls_sheet(load([folder])))))
    assert len(rows) == 2 * 3 * 4
    at = {(row["model"], row["method"], row["target_db"]): row for row in rows}
    ours, direct = at["fruit", "geoshrink", "30.0"], at["fruit", "direct", "35.0"]
    assert float(ours["calls_least"]) == float(ours["calls_most"]) == 3.25
    assert float(ours["saved_against_full_least"]) == 0.675
    assert (float(direct["calls_least"]), direct["calls_most"]) == (5.0, "")
    first = at["fruit", "geoshrink", "25.0"]
    assert float(first["calls_least"]) == 0 and float(first["calls_most"]) == 3


def test_the_chart_has_a_gap_where_nothing_is_known(folder):
    results = load([folder])
    chart = calls_chart(results, curves(results), "Calls")
    lines = {series.label: dict(zip(series.x, series.y)) for series in chart.series}
    assert list(lines) == ["geoshrink", "paper", "direct", "FORA"]
    assert lines["geoshrink"][30.0] == pytest.approx(32.5) and lines["geoshrink"][25.0] is None
    assert lines["direct"][35.0] is None and lines["paper"][15.0] is None
    svg = drawing(chart)
    assert svg.startswith("<svg") and "geoshrink: 32.5 at 30" in svg


def test_the_report_has_the_tables_and_the_sheet(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    command.report([folder], out, quiet=True)
    for name in ("report.md", "report.html"):
        text = (out / name).read_text("utf-8")
        assert "Calls needed" in text and "Calls needed, by method" in text
    assert (out / "calls.csv").read_text("utf-8") == calls_sheet(load([folder]))
