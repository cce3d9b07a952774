"""The demo and the command line, small; and, slowly, that the demo shows what the README says."""

from __future__ import annotations

import argparse
import io
import re
from typing import Any

import pytest
from PIL import Image

from geoshrink import cli
from geoshrink_bench import playground, zoo
from geoshrink_bench.commands import demo as command
from geoshrink_bench.demo import DIRECT, FRUITS, GEOSHRINK, PAPER, PLANNED, Settings, run_demo
from geoshrink_bench.page import Dial

SMALL = Settings(budgets=(4, 5), fruits=("Banana 1", "Kiwi 1"), steps=8)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run_demo(SMALL, folder / "index.html", folder / "strip.png", progress=False), folder


def test_every_method_makes_the_calls_it_is_given(demo):
    outcomes = demo[0].outcomes
    assert [o.calls for o in outcomes] == [8, 4, 4, 4, 5, 5, 5]
    assert [o.method for o in outcomes] == ["full", *[DIRECT, PAPER, GEOSHRINK] * 2]


def test_the_table_is_against_the_full_run(demo):
    table = demo[0].table()
    assert table.rows[0][5:] == [None, None]
    assert all(5 < row[5] < 80 and 0 < row[6] < 1 for row in table.rows[1:])
    assert "geoshrink" in table.text()
    assert "planned is left out: of the profile" in table.text()
    assert "another one (50 stages, not 8)" in table.text()


def test_the_verdict_says_ahead_or_behind_as_the_numbers_do(demo):
    score = {(o.budget, o.method): o.means[0] for o in demo[0].outcomes}
    for budget, line in zip(SMALL.budgets, demo[0].verdict()):
        for method, part in zip((PAPER, GEOSHRINK), line.split(";")):
            gain = score[budget, method] - score[budget, DIRECT]
            assert f"{abs(gain):.1f} dB {'ahead of' if gain > 0 else 'BEHIND'} direct" in part


def test_the_command_is_the_one_that_was_given(demo):
    command = "geoshrink demo --budgets 4 5 --steps 8 --guidance 3 --shift 3 --seed 0"
    assert demo[0].table().command == command
    assert command in (demo[1] / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--out", "--strip"])
def test_what_cannot_be_written_is_said_before_anything_runs(option, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(zoo, "load", lambda *_: pytest.fail("it ran"))
    assert cli.main(["demo", "--out", str(tmp_path / "page.html"), option, str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder: name a file" in capsys.readouterr().err


def test_the_page_is_whole_and_alone(demo):
    html = (demo[1] / "index.html").read_text(encoding="utf-8")
    assert html.count("data:image/png;base64,") >= 14
    assert "Where the model is asked" in html and "retention ω" in html
    assert "http://" not in html and "https://" not in html
    assert (demo[1] / "strip.png").stat().st_size > 5000


@pytest.mark.slow
def test_the_planned_method_and_the_curve_come_from_the_shipped_profile(tmp_path, monkeypatch):
    from geoshrink_bench.zoo import profiles as ship

    def calibrate(*_: object, **__: object) -> None:
        raise AssertionError("the demo calibrates nothing")

    monkeypatch.setattr(ship, "profile", calibrate)
    settings = Settings(budgets=(7,), fruits=("Kiwi 1",))
    demo = run_demo(settings, tmp_path / "index.html", tmp_path / "strip.png", progress=False)
    assert [o.method for o in demo.outcomes] == ["full", DIRECT, PAPER, GEOSHRINK, PLANNED]
    assert [o.calls for o in demo.outcomes] == [50, 7, 7, 7, 7]
    assert demo.profile is not None
    assert demo.outcomes[-1].reports[0].queried == demo.profile.plan(7).anchors
    score = {o.method: o.means[0] for o in demo.outcomes[1:]}
    gain = score[PLANNED] - score[DIRECT]
    assert gain > 0 and f"{PLANNED} is {gain:.1f} dB ahead of direct." in demo.verdict()[0]
    assert "made on 32 samples of other fruits and other noise" in demo.table().text()
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Quality to expect, by budget" in html and "corrected mesh" in html
    assert "planned, B = 7" in html


def test_the_profile_was_made_on_other_fruits_and_other_noise():
    from geoshrink_bench.zoo.profiles import shipped

    profile, classes = shipped("fruit"), zoo.load("fruit").classes
    assert profile is not None and "class i·C//samples, noise of seed 10000" in profile.made
    seen = {classes[i * len(classes) // profile.samples] for i in range(profile.samples)}
    assert not seen & set(FRUITS) and Settings().seed != 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budgets", "3"], "budget 3 is too small"),
        (["--budgets", "10", "60"], "budget 60 is not below the 50 steps"),
        (["--budgets", "50"], "budget 50 is not below the 50 steps"),
        (["--steps", "0"], "--steps 0 is too few: at least 5"),
        (["--steps", "4"], "--steps 4 is too few: at least 5"),
        (["--shift", "-1"], "shift > 0"),
    ],
)
@pytest.mark.parametrize("play", [False, True])
def test_bad_arguments_are_explained(arguments, message, play, capsys, tmp_path):
    more = ["--play", str(tmp_path / "y.html")] if play else []
    code = cli.main(["demo", "--out", str(tmp_path / "x.html"), *more, *arguments])
    assert code == 2 and message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--play", "--strip"])
def test_one_file_is_not_written_twice(option, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(zoo, "load", lambda *_: pytest.fail("it ran"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--out", str(tmp_path / "x.html"), option, "x.html"]) == 2
    assert "x.html is named twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "budgets"),
    [
        ([], (7, 10, 15)),
        (["--play", "y.html"], playground.BUDGETS),
        (["--budgets", "9", "5", "9"], (5, 9)),
        (["--steps", "8"], (7,)),
        (["--steps", "5"], (4,)),
        (["--steps", "5", "--play", "y.html"], (4,)),
    ],
)
def test_the_budgets_are_in_order_and_below_the_steps(words, budgets):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.budgets_of(parser.parse_args(words)) == budgets


@pytest.mark.slow
def test_on_the_trained_model_ours_is_ahead_of_direct(tmp_path):
    """The README's claim at guidance 3, shift 3, on the demo's eight fruits."""
    demo = run_demo(Settings(budgets=(7, 10, 15)), tmp_path / "index.html", progress=False)
    score = {(o.budget, o.method): o.means[0] for o in demo.outcomes}
    assert score[7, GEOSHRINK] > score[7, DIRECT] + 6
    assert score[10, GEOSHRINK] > score[10, DIRECT] + 3
    assert score[15, GEOSHRINK] > score[15, DIRECT] + 6
    assert score[15, PAPER] > score[15, DIRECT]
    assert score[15, GEOSHRINK] > score[10, GEOSHRINK] + 4
    for budget in (7, 10, 15):
        assert score[budget, PLANNED] > max(score[budget, GEOSHRINK], score[budget, DIRECT] + 8)


def test_the_playground_has_a_part_for_every_budget(demo):
    html = playground.page_of(demo[0]).html()
    assert html.count('class="shot"') == 1 + 3 * 2  # the full run; direct, paper, geoshrink twice
    assert html.count('calls" hidden') == 1 and 'data-reading="4 of 8 model calls">' in html
    direct = next(o for o in demo[0].outcomes if o.method == DIRECT and o.budget == 5)
    assert f"<b>direct</b> {direct.means[0]:.1f} dB" in html
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_a_row_of_the_playground_has_every_sample(demo):
    medium: Any = playground.shot(demo[0], "full", "").medium
    with Image.open(io.BytesIO(medium.data)) as strip:
        assert strip.size == (2 * 2 * 64, 2 * 64)  # two samples, twice as large


def test_the_curves_of_the_playground_are_those_of_the_table(demo):
    lines = playground.curves(demo[0])
    assert [series.label for series in lines.series] == [DIRECT, PAPER, GEOSHRINK]
    for series in lines.series:
        own = [o for o in demo[0].outcomes if o.method == series.label]
        assert list(series.x) == [4, 5] and list(series.y) == [o.means[0] for o in own]


def test_the_dial_goes_over_its_numbers_in_order(demo):
    shot = playground.shot(demo[0], "full", "")
    html = Dial("t", shot, {9: [shot], 4: [shot], 5: []}, "calls", 5).html()
    knob = re.search("<input[^>]*>", html)
    assert knob and all(word in knob[0] for word in ('min="0"', 'max="2"', 'value="1"'))
    assert re.findall('data-reading="([0-9]) calls"', html) == ["4", "5", "9"]
    assert "<output>5 calls</output>" in html


def test_the_dial_begins_at_one_of_its_numbers(demo):
    shot = playground.shot(demo[0], "full", "")
    with pytest.raises(ValueError, match="begins at 3"):
        Dial("t", shot, {4: [shot]}, "calls", 3)


def test_the_playground_is_refused_where_it_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(zoo, "load", lambda *_: pytest.fail("it ran"))
    assert cli.main(["demo", "--play", str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder: name a file" in capsys.readouterr().err
