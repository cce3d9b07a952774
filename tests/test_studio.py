"""Studio: runs, sweeps and profiles of a toy flow, one at a time, and what they leave behind."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import geoshrink
from geoshrink import Plan
from geoshrink.planning import profile
from geoshrink.studio import studio as module
from geoshrink.studio.line import Stopped
from geoshrink.studio.panel import true_db
from geoshrink.studio.setting import FORMS, Setting
from geoshrink.studio.studio import Profiled, Session, Studio, Waiting
from geoshrink.studio.sweep import Sweep, budgets, sweep
from studio import CLASSES, TOY, ended, full, last, pixels, play, same, setting, toys

pytest.importorskip("PIL")


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studio:
    monkeypatch.setattr(module, "AWAKE", 0.02)
    return toys(monkeypatch, tmp_path / "out")


def plain(at: Setting, **options: Any) -> torch.Tensor:
    """The same by geoshrink.sample alone."""
    velocity = TOY.velocity([at.prompt], at.guidance or 0.0)
    grid = None if "plan" in options else TOY.grid(at.steps, at.shift)
    return geoshrink.sample(velocity, TOY.noise(1, at.seed), grid, **options)


# Runs


def test_the_full_run_is_the_plain_solver_s_and_is_kept(studio: Studio):
    events, first = play(studio, setting())
    assert [lane.label for lane in events[-1]] == ["geoshrink, B = 5", "full"]
    assert torch.equal(full(studio, setting()).end, plain(setting()))
    assert full(studio, setting()).calls == 12 and TOY.calls == 5 + 12 + 12  # ours and one by hand
    kept, before = full(studio, setting()), TOY.calls
    events, again = play(studio, setting())
    assert [lane.label for lane in events[-1]] == ["geoshrink, B = 5"]
    assert TOY.calls == before + 5 and same(first, again) and full(studio, setting()) is kept


def test_one_call_that_is_not_counted_warms_it_up(studio: Studio):
    model: Any = studio.shelf.get("toy")
    model.warm = False
    ran = play(studio, setting())[1]
    assert TOY.calls == 1 + 5 + 12 and (ran.calls, full(studio, setting()).calls) == (5, 12)
    assert torch.equal(ran.end, plain(setting(), budget=5))
    before = TOY.calls
    play(studio, setting(seed=4))
    assert TOY.calls == before + 5 + 12


OPTIONS: list[dict[str, Any]] = [
    {},
    {"form": "paper"},
    {"form": "direct"},
    {"target_db": 25},
    {"target_db": 25, "form": "paper"},
    {"rule": "hold", "space": "data", "correct": "off"},
    {"correct": "on", "rule": "chordal"},
    {"seed": 8, "guidance": 0, "shift": 1, "steps": 20, "prompt": "Apple"},
]


@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_an_accelerated_run_is_that_of_geoshrink_sample(studio: Studio, changes: dict):
    at = setting(**changes)
    ran = play(studio, at)[1]
    if at.form == "direct":
        wanted = plain(replace(at, steps=at.budget))
    else:
        wanted = plain(at, **at.options())
    assert torch.equal(ran.end, wanted)
    assert torch.equal(pixels(ran), TOY.made(wanted).values)
    assert not torch.equal(ran.end, full(studio, at).end)
    if at.target_db is None:
        assert ran.calls == len(ran.asked) == 5 and len(set(ran.asked)) == 5
    if at.form == "direct":
        assert ran.plan is None and ran.steps == 5
    else:
        assert ran.report is not None and ran.plan is not None
        assert set(ran.asked) == {row.stage for row in ran.report.stages if row.exact}


@pytest.mark.parametrize("form", ["geoshrink", "paper", "direct"])
def test_with_every_call_it_is_the_full_run(studio: Studio, form: str):
    ran = play(studio, setting(form=form, budget=12))[1]
    assert same(ran, full(studio, setting())) and ran.calls == 12
    assert ran.asked == tuple(range(12))


def test_the_accelerated_run_is_ahead_and_both_show_something(studio: Studio):
    seen = []

    def look(calls: int) -> None:
        for lane in generator_lanes:
            if lane.preview is not None:
                seen.append((lane.label, lane.calls, lane.preview()))

    generator: Any = studio.play(setting(budget=4), Session())
    started = threading.Event()
    TOY.at_call = lambda calls: started.wait(5)
    generator_lanes = next(generator)
    assert isinstance(generator_lanes, list)
    TOY.at_call = look
    started.set()
    fast, slow = last(generator)
    assert {label for label, _, _ in seen} == {fast.label, slow.label}
    assert all(made.is_finite() for _, _, made in seen if made is not None)
    ours = [lane for lane, _, _ in seen]
    assert ours.index(fast.label) < ours.index(slow.label)
    # they take turns: when ours has made its four calls, the full run has made about as many
    assert min(calls for label, calls, _ in seen if label == slow.label) <= 2
    # what the last call says about the data is near what comes out
    near = ended(slow)
    shown: Any = slow.preview
    assert (pixels(near) - shown().values).abs().max() < 0.05


def test_previews_are_what_the_output_says_about_the_data(studio: Studio):
    """x₀ = x − σ v of a flow: computed here from the arguments of the calls."""
    calls: list[tuple[torch.Tensor, float, torch.Tensor]] = []
    plain_velocity = TOY.velocity

    def velocity(*args: Any, **kwargs: Any) -> Any:
        inner = plain_velocity(*args, **kwargs)

        def watched(x: torch.Tensor, sigma: Any) -> torch.Tensor:
            calls.append((x, float(sigma), inner(x, sigma)))
            return calls[-1][2]

        return watched

    model = studio.shelf.get("toy")
    TOY.velocity = velocity
    try:
        lane = last(studio.play(setting(form="direct"), Session()))[0]
    finally:
        del TOY.velocity
    assert ended(lane).calls == 5 and model.together
    mine = [
        call for call in calls if round(call[1], 4) == round(TOY.grid(5, 3).tracks[0].sigmas[4], 4)
    ]
    x, sigma, v = mine[-1]
    preview: Any = lane.preview
    assert torch.allclose(preview().values, TOY.made(x - sigma * v).values, atol=1e-5)


def test_one_who_only_measures_gets_the_full_run_first(studio: Studio):
    told: Any = studio.measure(setting(), Session())
    *events, (at, ran) = told
    assert at == setting() and torch.equal(ran.end, plain(at, budget=5))
    labels = [lane.label for lanes in events for lane in lanes]
    assert labels == sorted(labels) and {*labels} == {"full", "geoshrink, B = 5"}
    before = TOY.calls
    assert same(last(studio.measure(setting(), Session()))[1], ran) and TOY.calls == before + 5


def test_only_so_many_full_runs_are_kept(studio: Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "KEPT", 3)
    for seed in range(5):
        play(studio, setting(seed=seed))
    assert [picture.seed for picture in studio.full] == [2, 3, 4]
    before = TOY.calls
    play(studio, setting(seed=0))
    assert TOY.calls == before + 5 + 12 and len(studio.full) == 3


# Stops and errors


@pytest.mark.parametrize("at_call", [1, 2, 7, 14])
def test_a_run_that_is_stopped_leaves_nothing_behind(studio: Studio, at_call: int):
    other = setting(seed=99)
    before, session = play(studio, other)[1], Session()
    reached = TOY.calls + at_call

    def halt(calls: int) -> None:
        if calls == reached:
            assert session.stop()

    TOY.at_call = halt
    lanes = last(studio.play(setting(), session))
    assert all(lane.over and not lane.thread.is_alive() for lane in lanes)
    assert lanes[-1].stopped and lanes[-1].ran is None
    assert studio.known(setting()) is None and not studio.device.members and not session.stops
    assert TOY.calls <= reached + 1  # the other lane may be in the middle of a call
    TOY.at_call = lambda calls: None
    assert same(play(studio, other)[1], before)
    assert torch.equal(play(studio, setting())[1].end, plain(setting(), budget=5))
    assert not session.stop()  # nothing goes on any more


def test_a_generator_that_is_left_stops_its_lanes(studio: Studio):
    gate = threading.Event()
    TOY.at_call = lambda calls: gate.wait(5)
    generator: Any = studio.play(setting(), Session())
    lanes = next(generator)
    gate.set()
    TOY.at_call = lambda calls: gate.wait(0.02)
    generator.close()
    assert not any(lane.thread.is_alive() for lane in lanes) and not studio.device.members


@pytest.mark.parametrize("at_call", [1, 2, 6, 15])
def test_an_error_of_the_model_is_told_and_the_next_run_is_clean(studio: Studio, at_call: int):
    def fail(calls: int) -> None:
        if calls == reached:
            raise RuntimeError("out of <memory>")

    reached, TOY.at_call = TOY.calls + at_call, fail
    session = Session()
    lanes = last(studio.play(setting(), session))
    errors = [str(lane.error) for lane in lanes if lane.error is not None]
    assert errors == ["out of <memory>"] and all(lane.over for lane in lanes)
    assert studio.known(setting()) is None and not studio.device.members and not session.stops
    TOY.at_call = lambda calls: None
    assert torch.equal(play(studio, setting())[1].end, plain(setting(), budget=5))
    assert torch.equal(full(studio, setting()).end, plain(setting()))


def test_measure_raises_what_the_model_raised(studio: Studio):
    def fail(calls: int) -> None:
        raise KeyError("no")

    TOY.at_call = fail
    with pytest.raises(KeyError, match="no"):
        list(studio.measure(setting(), Session()))
    TOY.at_call, session = lambda calls: session.stop(), Session()
    with pytest.raises(Stopped):
        list(studio.measure(setting(), session))
    assert not studio.device.members


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"prompt": "Kiwi"}, "toy has no class 'Kiwi'"),
        ({"model": "../x"}, r"no model '\.\./x' here"),
    ],
)
def test_what_the_model_cannot_make_is_refused_before_it_runs(studio: Studio, changes, words):
    before = TOY.calls
    with pytest.raises(ValueError, match=words):
        list(studio.play(setting(**changes), Session()))
    assert TOY.calls == before and not studio.device.members


# Users wait for one another


def test_users_are_served_in_the_order_in_which_they_came(studio: Studio):
    gate = threading.Event()
    TOY.at_call = lambda calls: gate.wait(5)
    sessions = [Session() for _ in range(4)]
    first, second, third, fourth = (
        studio.play(setting(seed=seed), session) for seed, session in enumerate(sessions)
    )
    assert isinstance(next(first), list)
    waits = [next(each) for each in (second, third, fourth)]
    assert waits == [Waiting(1), Waiting(2), Waiting(3)]
    sessions[2].stop()  # who waits can go
    with pytest.raises(Stopped):
        list(islice(third, 20))
    assert next(fourth) == Waiting(2) and next(second) == Waiting(1)
    gate.set()
    runs = [ended(last(each)[0]) for each in (first, second, fourth)]
    for seed, ran in zip((0, 1, 3), runs):
        assert torch.equal(ran.end, plain(setting(seed=seed), budget=5))
    assert [[s.seed for s, _ in session.runs] for session in sessions] == [[0], [1], [], [3]]
    assert not studio.device.members


def test_a_session_stops_only_its_own(studio: Studio):
    gate, mine, yours = threading.Event(), Session(), Session()
    TOY.at_call = lambda calls: gate.wait(5)
    one, other = studio.play(setting(seed=0), mine), studio.play(setting(seed=1), yours)
    next(one)
    next(other)
    assert mine.stop()
    gate.set()
    assert all(lane.stopped for lane in last(one))
    assert ended(last(other)[0]).calls == 5 and not mine.runs and len(yours.runs) == 1


def test_a_model_that_is_not_loaded_says_so(studio: Studio):
    studio.shelf.models.clear()
    assert next(studio.play(setting(), Session())) == Waiting(loading="toy")


# Plans


def test_planned_without_a_profile_says_what_to_do(studio: Studio):
    with pytest.raises(ValueError, match=r"no profile of toy with 12 steps .* press “Plan it”"):
        list(studio.play(setting(form="planned"), Session()))


@pytest.mark.parametrize("amount", [{"budget": 5}, {"target_db": 25}])
def test_a_plan_is_written_and_makes_the_run_again(studio: Studio, amount: dict[str, Any]):
    at = setting(form="planned", **amount)
    told: Any = studio.plan(setting(**amount), 4, Session())
    *events, made = told
    assert isinstance(made, Profiled) and made.profile.samples == 4
    assert any(lane.calls for lanes in events for lane in lanes)
    assert made.file.parent == studio.out and not studio.device.members
    ran = play(studio, at)[1]
    plan = Plan.from_json(made.file.read_text("utf-8"))
    assert torch.equal(ran.end, plain(at, plan=plan))
    assert torch.equal(ran.end, plain(at, plan=made.file))
    for other in (dict(guidance=3), dict(shift=2), dict(steps=13)):  # it is of this setting
        with pytest.raises(ValueError, match="there is no profile"):
            list(studio.play(replace(at, **other), Session()))
    assert play(studio, replace(at, seed=77, prompt="Apple"))[1].plan == ran.plan


def test_a_profile_that_comes_with_the_model_is_used(studio: Studio):
    labels = [CLASSES[i] for i in range(4)]
    velocity, grid = TOY.velocity(labels, 2.0), TOY.grid(12, 3.0)
    made = profile(velocity, TOY.noise(4, 5), grid, model="toy", guidance=2.0, quiet=True)
    model: Any = studio.shelf.get("toy")
    model.planned.shipped = made
    at = setting(form="planned")
    assert torch.equal(play(studio, at)[1].end, plain(at, plan=made.plan(budget=5)))
    with pytest.raises(ValueError, match="there is no profile"):
        list(studio.play(replace(at, guidance=4.0), Session()))


def test_a_profile_that_is_stopped_or_fails_is_none(studio: Studio):
    session = Session()
    TOY.at_call = lambda calls: calls == 30 and session.stop()
    TOY.calls = 0
    with pytest.raises(Stopped):
        list(studio.plan(setting(), 4, session))
    assert TOY.calls == 30

    def fail(calls: int) -> None:
        raise RuntimeError("out of memory")

    TOY.at_call = fail
    with pytest.raises(RuntimeError, match="out of memory"):
        list(studio.plan(setting(), 4, session))
    assert not studio.profiles and not studio.out.exists() and not studio.device.members


def test_every_setting_has_a_file_of_its_own_in_the_folder(studio: Studio):
    profiled = last(studio.plan(setting(), 4, Session())).profile
    own = ({}, {"budget": 6}, {"guidance": 3}, {"guidance": 2.5}, {"shift": 2}, {"target_db": 20})
    plan = profiled.plan(budget=5)
    files = [studio.save(setting(**changes), plan) for changes in own]
    files += [studio.save(setting(model=name), plan) for name in ("../a/b:c d", "..", "a.b")]
    files.append(studio.save(setting(), profiled.plan(budget=6)))  # another plan, another name
    assert len({*files}) == 10 and {*files} == {*studio.out.iterdir()}
    assert all(re.fullmatch(r"[\w-][\w.-]*\.plan\.json", file.name) for file in files)


# Sweeps


def brute(studio: Studio, at: Setting) -> dict[int, float]:
    """dB at every budget, by plain calls."""
    end, found = plain(at), {}
    for budget in range(4, at.steps):
        x = plain(at, **{**at.options(), "budget": budget})
        found[budget] = float(10 * torch.log10(end.square().sum() / (x - end).square().sum()))
    return found


@pytest.mark.parametrize(
    "asked, form", [(12, "geoshrink"), (27, "geoshrink"), (20, "paper"), (90, "geoshrink")]
)
def test_a_sweep_finds_the_fewest_calls(studio: Studio, asked: float, form: str):
    at = setting(steps=24, form=form)
    found = brute(studio, at)
    told = last(sweep(studio, at, asked, Session()))
    reached = [budget for budget, db in found.items() if db >= asked]
    assert isinstance(told, Sweep) and told.total == len(told.found)
    for each, db in told.found:
        if each.form == form:
            assert db == pytest.approx(found[each.budget], abs=1e-3)
    # by bisection: the one below was tried, and does not reach it
    tried = {each.budget: db for each, db in told.found if each.form == form}
    top = max(budgets(24))
    if reached and min(reached) <= top:
        assert told.budget is not None and tried[told.budget] >= asked
        assert told.budget == 4 or tried[told.budget - 1] < asked
        assert told.budget == min(reached)
        assert f"{told.budget} model calls reach {asked} dB" in told.words()
        assert len(tried) <= len(budgets(24)) + 3
    else:
        assert told.budget is None and "No budget that was tried" in told.words()


def test_a_sweep_compares_with_direct_and_can_be_stopped(studio: Studio):
    session = Session()
    events = sweep(studio, setting(steps=20, form="direct"), 500, session)
    told: Any = last(events)
    forms = [each.form for each, _ in told.found]
    assert forms == ["geoshrink", "direct"] * len(budgets(20)) and told.budget is None
    for each, db in told.found:
        ends = [play(studio, each)[1], full(studio, each)]
        assert db == true_db(*ends)
    events = sweep(studio, setting(steps=20, seed=50), 20, session)
    for event in events:
        if isinstance(event, Sweep) and len(event.found) == 3:
            break
    session.stop()
    with pytest.raises(Stopped):
        TOY.at_call = lambda calls: session.stop()
        list(events)


@pytest.mark.parametrize("steps", [2, 3, 4, 5, 6, 7, 12, 50, 1000])
def test_the_budgets_of_a_sweep_can_be_run(steps: int):
    found = budgets(steps)
    assert found == sorted({*found}) and len(found) <= 7
    for budget in found:
        for form in FORMS:
            setting(steps=steps, budget=budget, form=form)
