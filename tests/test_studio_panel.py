"""What the page shows of runs: slider, numbers, stages, a curve; and what is escaped."""

from __future__ import annotations

import asyncio
import html
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from geoshrink.page.stages import Bar, Stages
from geoshrink.studio import panel
from geoshrink.studio import studio as module
from geoshrink.studio.screen import Screen, alert, say, title_of
from geoshrink.studio.studio import Session, Studio
from geoshrink.studio.style import css, head
from studio import TOY, full, last, nothing, pixels, play, setting, toys

pytest.importorskip("PIL")
EVIL = '<img src=x onerror=alert(1)> {{7*7}} ${7*7} & "q"'


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studio:
    monkeypatch.setattr(module, "AWAKE", 0.02)
    return toys(monkeypatch, tmp_path / "out")


def kinds(drawn: str) -> list[str]:
    return re.findall(r'<g class="(\w+)">', drawn)


def heights(drawn: str) -> list[float]:
    return [float(h) for h in re.findall(r'<rect [^>]*height="([\d.]+)"', drawn)]


@pytest.mark.parametrize(
    "changes, bars, calls",
    [({}, 12, 5), ({"form": "paper"}, 12, 5), ({"form": "direct"}, 5, 5), ({"steps": 30}, 30, 5)],
)
def test_one_bar_for_each_step_a_tall_one_for_each_call(studio: Studio, changes, bars, calls):
    at = setting(**changes)
    ran = play(studio, at)[1]
    drawn = panel.stages(ran)
    tall = [n for n, kind in enumerate(kinds(drawn)) if kind == "called"]
    assert len(kinds(drawn)) == bars and tall == sorted(ran.asked) and len(tall) == calls
    found = heights(drawn)
    assert {found[n] for n in tall} == {44.0}
    assert all(found[n] <= 22 for n in range(bars) if n not in tall)
    words = f"{calls} of {bars} stages call the model: {', '.join(map(str, tall))}"
    assert words in drawn
    assert drawn.count("<title>stage ") == bars and f">{at.label}</h3>" in drawn


def test_the_full_run_s_bars_are_all_tall(studio: Studio):
    play(studio, setting())
    assert kinds(panel.stages(full(studio, setting()))) == ["called"] * 12


def test_bars_while_it_runs_show_what_lies_ahead(studio: Studio):
    lanes: list[Any] = []
    seen: list[list[str]] = []

    def look(calls: int) -> None:
        seen.extend(kinds(panel.live_stages(lane)) for lane in lanes)

    generator = studio.play(setting(), Session())
    lanes.extend(next(generator))  # type: ignore[arg-type]
    TOY.at_call = look
    list(generator)
    for found in seen:
        assert len(found) == 12
        reached = [kind != "ahead" for kind in found]
        assert reached == sorted(reached, reverse=True)  # nothing is reached behind what is ahead
        if any(reached):
            assert found[sum(reached) - 1] == "called"


def test_a_tooltip_has_the_numbers():
    bars = [Bar(0.9, "called", turning=0.25, moved=0.125), Bar(0.5, "predicted", 0.75), Bar()]
    drawn = Stages("<b>", bars).html()
    assert "stage 0: model call, σ 0.9, sin²θ 0.25, corrected by 0.125" in drawn
    assert "stage 1: predicted, σ 0.5, ω 0.75" in drawn and "stage 2: not reached yet" in drawn
    assert drawn.count("<circle") == 1 and "<b>" not in drawn and "&lt;b&gt;" in drawn


# Numbers


def test_numbers_are_those_of_the_runs(studio: Studio):
    ran = play(studio, setting())[1]
    table = panel.numbers([ran], full(studio, setting()))
    names = [column.name for column in table.columns]
    first, second = (dict(zip(names, row)) for row in table.rows)
    assert [first["method"], second["method"]] == ["full", "geoshrink, B = 5"]
    assert [first["calls"], second["calls"]] == [12, 5]
    end, other = full(studio, setting()).end, ran.end
    true = 10 * (end.square().sum() / (end - other).square().sum()).log10()
    assert second["true"] == pytest.approx(float(true), abs=1e-3) and first["true"] is None
    one, two = (pixels(each) for each in (ran, full(studio, setting())))
    psnr = -10 * (one - two).square().mean().log10()
    assert second["PSNR"] == pytest.approx(float(psnr), abs=1e-2) and first["PSNR"] is None
    assert second["speed-up"] == full(studio, setting()).seconds / ran.seconds
    assert f"{second['PSNR']:.1f} dB" in panel.summary(ran, full(studio, setting()))


def test_the_same_sample_has_no_distance(studio: Studio):
    ran = play(studio, setting(budget=12))[1]
    assert panel.true_db(ran, full(studio, setting())) == math.inf
    assert "the same, bit for bit" in panel.summary(ran, full(studio, setting()))
    assert "inf" in panel.entry_of(ran, full(studio, setting())).words


def test_what_is_not_finite_is_said_to_be_so(studio: Studio):
    ran = play(studio, setting())[1]
    whole, broken = full(studio, setting()), replace(ran, made=TOY.made(ran.end * float("nan")))
    assert panel.entry_of(broken, whole).words == "the picture is empty or not finite"
    assert panel.scores(broken, whole) == [None, None]
    panel.numbers([broken], whole).html()
    assert "Done" in panel.summary(broken, whole)


# Words of users


def test_prompts_are_shown_as_they_were_written(studio: Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TOY, "classes", [*TOY.classes[:3], EVIL])
    at, session = setting(prompt=EVIL), Session()
    screen = Screen(studio, session, at)
    shown = [screen.at(event) for event in studio.play(at, session)]
    for each in (*shown, screen.end(), Screen(studio, session, at).still(session.runs[0][1])):
        drawn = "".join(part or "" for part in each.parts())
        assert "<img src=x" not in drawn and "onerror=alert(1)>" not in drawn
    assert "&lt;img src=x" in (shown[0].result or shown[1].result or "")
    assert "<img src=x" not in alert(ValueError(EVIL)) + say(EVIL)
    assert 'role="alert"' in alert(ValueError(EVIL)) and 'role="status"' in say(EVIL)


def test_titles_are_short():
    assert title_of(setting(prompt="a\n  b\t" + "x" * 200)) == f"a b {'x' * 75}…, seed 3"
    assert title_of(setting(prompt=" ")) == "toy, seed 3"


# A run on the page


def shown(studio: Studio, session: Session, at: Any) -> tuple[list[Any], Any]:
    screen = Screen(studio, session, at)
    return [screen.at(event) for event in studio.play(at, session)], screen.end()


def test_the_slider_is_put_up_once_and_its_cells_change(studio: Studio):
    TOY.at_call = lambda calls: module.threading.Event().wait(0.02)
    live, end = shown(studio, Session(), setting())
    TOY.at_call = nothing
    assert sum(bool(each.result) for each in live) == 1 and live[0].result
    cells = [each.live for each in live[1:] if each.live]
    assert any("model calls …" in each for each in cells) and "…" not in (end.live or "")
    assert (end.live or "").count("data-method") == 2 and "5 model calls" in (end.live or "")
    assert "Done: 5 model calls" in (end.status or "") and "the full run 12 in" in (
        end.status or ""
    )


def test_runs_of_the_same_picture_stand_beside_each_other(studio: Studio):
    session = Session()
    for changes in ({}, {"form": "paper"}, {"seed": 9}, {"budget": 6}, {"form": "direct"}):
        shown(studio, session, setting(**changes))
    screen = Screen(studio, session, setting(budget=6))
    assert screen.labels == [
        "full", "geoshrink, B = 5", "paper, B = 5", "direct, B = 5", "geoshrink, B = 6",
    ]  # fmt: skip


def test_more_runs_than_the_slider_shows(studio: Studio):
    session = Session()
    for budget in range(4, 12):
        shown(studio, session, setting(budget=budget))
    labels = Screen(studio, session, setting(budget=12)).labels
    assert labels == ["full", *(f"geoshrink, B = {b}" for b in (8, 9, 10, 11, 12))]
    again = Screen(studio, session, setting(budget=4)).still(session.runs[0][1])
    assert "geoshrink, B = 4" in (again.result or "")


def test_back_to_a_run_whose_full_run_is_no_longer_kept(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
):
    """32 full runs are kept, but 48 runs of a page."""
    monkeypatch.setattr(module, "KEPT", 1)
    session = Session()
    shown(studio, session, setting())
    shown(studio, session, setting(seed=4))
    at, ran = session.runs[0]
    again = Screen(studio, session, at).still(ran)
    assert "5 model calls" in (again.status or "") and "geoshrink, B = 5" in (again.result or "")


def test_a_run_whose_full_run_was_stopped_can_be_looked_at(studio: Studio):
    session = Session()
    TOY.calls = 0
    TOY.at_call = lambda calls: calls == 14 and session.stop()
    list(studio.play(setting(), session))
    TOY.at_call = nothing
    assert studio.known(setting()) is None
    for at, ran in session.runs:
        Screen(studio, session, at).still(ran)


# The page itself


def test_styles_hold_within_their_class_only():
    text = css()
    assert text.startswith(".geoshrink {") and ".dark .geoshrink {" in text
    assert text.count("{") == text.count("}") and "http" not in text and "@import" not in text
    assert head().count("<script>") == 1 and "http" not in head()


@pytest.fixture
def app(studio: Studio) -> Iterator[Any]:
    pytest.importorskip("gradio")
    from geoshrink.studio.app import App

    app = App(studio)

    async def build() -> None:
        app.blocks()

    asyncio.run(build())  # without a loop gradio makes some that it never closes
    yield app
    app.close()


def request(session: str = "a", **query: str) -> Any:
    headers = {"referer": "http://here/?old=1"}
    return SimpleNamespace(session_hash=session, query_params=query, headers=headers)


def opened(app: Any, **query: str) -> tuple[dict[str, Any], str]:
    *values, status = app.opened(request(**query))
    names = [control.elem_id for control in app.controls]
    plain = [value.get("value") if isinstance(value, dict) else value for value in values]
    return dict(zip(names, plain)), status


def usual(app: Any) -> str:
    return app.studio.shelf.get("toy").controls.usual.prompt


def test_a_link_sets_the_controls(app: Any):
    at = setting(seed=8, form="paper", budget=7, guidance=1.5)
    found, status = opened(app, **dict(p.split("=") for p in at.link()[1:].split("&")))
    assert "Press Run" in status and (found["seed"], found["form"], found["budget"]) == (
        8,
        "paper",
        7,
    )
    assert (found["class"], found["guidance"], found["ask"]) == ("Pear", 1.5, "model calls")
    found, _ = opened(app, target_db="22.5")
    assert (found["ask"], found["target"], found["class"]) == ("quality", 22.5, usual(app))


@pytest.mark.parametrize(
    "query, words",
    [
        ({"model": "../../etc"}, "no model &#x27;../../etc&#x27; here"),
        ({"model": EVIL}, "&lt;img src=x"),
        ({"steps": "x"}, "steps must be a whole number, got &#x27;x&#x27;"),
        ({"prompt": "Kiwi"}, "has no class &#x27;Kiwi&#x27;"),
        ({"budget": "99"}, "model calls must be from 4 to the 12 steps, got 99"),
    ],
)
def test_a_bad_link_says_what_is_wrong(app: Any, query: dict[str, str], words: str):
    found, status = opened(app, **query)
    status = status.replace("&#39;", "&#x27;")
    assert words in status and 'role="alert"' in status and "<img" not in status
    assert (found["model"], found["class"], found["steps"]) == ("toy", usual(app), 12)


def values(app: Any, **changes: Any) -> list[Any]:
    given = dict(
        model="toy", chosen="Pear", prompt="", negative="", seed=3, steps=12, guidance=2.0,
        shift=3.0, form="geoshrink", ask="model calls", budget=5, target=30, rule="auto",
        space="auto", correct="auto",
    )  # fmt: skip
    return list({**given, **changes}.values())


def test_controls_and_back(app: Any):
    assert app.setting(*values(app)) == setting()
    assert app.setting(*values(app, ask="quality")) == setting(target_db=30)


def test_a_session_that_is_closed_stops(app: Any):
    events = app.play(request(), *values(app))
    stop: Callable[..., Any] = app.closed
    TOY.calls = 0
    TOY.at_call = lambda calls: calls == 3 and stop(request())
    *_, end = events
    TOY.at_call = nothing
    assert "Stopped" in end[0] and not app.sessions


@pytest.mark.parametrize("form", ["geoshrink", "planned"])
def test_what_a_run_gives_to_take_along(app: Any, form: str):
    assert "press Run" in app.page(request())[1]
    if form == "planned":
        *_, end = app.profile(request(), *values(app), 4)
        assert end[2] == "planned" and Path(end[1]["value"]).name.endswith(".plan.json")
    *_, end = app.play(request(), *values(app, form=form))
    history, code, comfy, plan, link = end[6:]
    assert len(history) == 1 and "Pear, seed 3" in history[0][1]
    assert plan.startswith("{") and link == "http://here/" + setting(form=form).link()
    if form == "planned":
        (file,) = app.studio.out.iterdir()
        assert f"plan={str(file)!r}" in code and json.loads(comfy)["geoshrink"]["inputs"]["plan"]
    else:
        assert "budget=5" in code and '"budget": 5' in comfy
    text = Path(app.page(request())[0]["value"]).read_text("utf-8")
    assert all(html.escape(line) in text for line in code.splitlines())
    assert "Pear, seed 3" in text and 'src="http' not in text


def test_only_so_many_runs_are_in_the_history(app: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "HISTORY", 2)
    *_, end = (last(app.play(request(), *values(app, seed=seed))) for seed in range(4))
    assert [words.split("seed ")[1] for _, words in end[6]] == ["2", "3"]
    again = app.again(request(), SimpleNamespace(index=0))
    assert again[4] == 2 and any("seed=2&" in str(part) for part in again)


def test_an_error_is_an_alert_and_another_session_is_not_touched(app: Any):
    def fail(calls: int) -> None:
        raise RuntimeError("<b>no</b>")

    TOY.at_call = fail
    *_, end = app.play(request(), *values(app))
    TOY.at_call = nothing
    assert "RuntimeError: &lt;b&gt;no&lt;/b&gt;" in end[0] and 'role="alert"' in end[0]
    *_, end = app.play(request("b"), *values(app))
    assert "Done" in end[0] and len(app.session(request("b")).runs) == 1
    assert not app.session(request("a")).runs


def test_the_first_model_may_be_broken(app: Any, monkeypatch: pytest.MonkeyPatch):
    def broken() -> Any:
        raise RuntimeError("no <weights>")

    app.studio.shelf.models.clear()
    monkeypatch.setitem(app.studio.shelf.makers, "toy", broken)
    status = app.opened(request())[-1]
    assert "RuntimeError: no &lt;weights&gt;" in status and 'role="alert"' in status


def select(i: int) -> Any:
    return SimpleNamespace(index=i)


def test_history_waits_for_a_run(app: Any):
    """Else the cells of one run would be put under the title of another."""
    *_, first = app.play(request(), *values(app))
    events = app.play(request(), *values(app, seed=4))
    said = [next(events) for _ in range(3)][-1]
    count = len(app.controls)
    found = app.again(request(), select(0))
    assert "Wait until the run is done" in found[count] and found[count + 1]["__type__"] == "update"
    *_, end = events
    run = re.findall(r'data-run="([0-9]+)"', end[2])
    assert run and f'data-run="{run[0]}"' not in str(first[2]) and said[0]
    found = app.again(request(), select(0))
    assert found[4] == 3 and "Pear, seed 3" in found[count + 1]
    assert "It is gone" in app.again(request(), select(7))[count]


def test_the_page_that_is_kept_is_the_one_that_is_shown(app: Any):
    for seed in (3, 4):
        list(app.play(request(), *values(app, seed=seed)))
    app.again(request(), select(0))
    text = Path(app.page(request())[0]["value"]).read_text("utf-8")
    assert "Pear, seed 3" in text and "Pear, seed 4" not in text


def test_the_plan_of_an_earlier_run_is_its_own(app: Any):
    """Though the model was profiled again since."""
    list(app.profile(request(), *values(app), 4))
    *_, first = app.play(request(), *values(app, form="planned"))
    list(app.profile(request(), *values(app), 6))
    list(app.play(request(), *values(app, form="planned", seed=4)))
    found = app.again(request(), select(0))
    code, plan = found[-4], found[-2]
    (file,) = re.findall(r"plan='([^']+)'", code)
    assert plan == first[9] and Path(file).read_text("utf-8").strip() == plan


def test_what_was_found_is_used_with_its_form(app: Any):
    *_, end = app.sweep(request(), *values(app, form="direct"), 12)
    assert end[2] == [end[2][0], "geoshrink"] and f"Use {end[2][0]} calls" in str(end[1])


def test_a_sweep_of_what_is_not_finite_is_no_success(app: Any, monkeypatch: pytest.MonkeyPatch):
    def velocity(*_: Any, **__: Any) -> Any:
        return lambda x, sigma: x * math.nan

    monkeypatch.setattr(TOY, "velocity", velocity)
    *_, end = app.sweep(request(), *values(app, seed=77), 12)
    assert 'role="alert"' in end[0] and "not finite" in end[0] and end[2] is None


def test_stop_while_a_sweep_draws_ends_it(app: Any):
    events = app.sweep(request(), *values(app, seed=78), 12)
    for said in events:
        if "2 of" in said[0]:
            break
    app.halt(request())
    assert "Stopped" in list(events)[-1][0]


def test_stop_when_nothing_runs_says_nothing(app: Any):
    app.halt(request("nobody"))
    assert "nobody" not in app.sessions


def test_sessions_that_are_used_are_remembered(app: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("geoshrink.studio.app.SESSIONS", 3)
    mine = app.session(request("mine"))
    for i in range(9):
        app.session(request(f"stranger {i}"))
        assert app.session(request("mine")) is mine
    assert len(app.sessions) <= 4


@pytest.mark.parametrize(
    "query", [{"steps": "3", "budget": "3"}, {"steps": "8", "target_db": "70"}]
)
def test_links_with_few_steps_set_sliders_that_can_be(app: Any, query: dict[str, str]):
    found = app.opened(request(**query))[: len(app.controls)]
    budget = found[[c.elem_id for c in app.controls].index("budget")]
    assert budget["minimum"] < budget["maximum"] == int(query["steps"])
    assert budget["minimum"] <= budget["value"] <= budget["maximum"]
