"""Setting: what it refuses, what a link holds, and what the forms are asked with."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import pytest

from geoshrink import Plan
from geoshrink.plan import METHODS
from geoshrink.studio.setting import CHOICES, FORMS, Picture, Setting, asked, plain
from studio import setting
from toy import shifted


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(form="fast"), "unknown form 'fast'; choose one of geoshrink, paper, planned, direct"),
        (dict(rule="<b>"), "unknown rule '<b>'; choose one of auto, signed time"),
        (dict(space="latent"), "unknown space 'latent'"),
        (dict(correct="maybe"), "unknown correct 'maybe'; choose one of auto, on, off"),
        (dict(steps=1), "steps must be from 2 to 1000, got 1"),
        (dict(steps=1001), "steps must be from 2 to 1000, got 1001"),
        (dict(steps="12.5"), "steps must be a whole number, got '12.5'"),
        (dict(steps="20.0"), "steps must be a whole number, got '20.0'"),
        (dict(seed="1e3"), "seed must be a whole number, got '1e3'"),
        (dict(steps="many"), "steps must be a whole number, got 'many'"),
        (dict(steps=math.nan), "steps must be a whole number, got nan"),
        (dict(steps=[]), r"steps must be a whole number, got \[\]"),
        (dict(budget=3), "model calls must be from 4 to the 12 steps, got 3"),
        (dict(budget=13), "model calls must be from 4 to the 12 steps, got 13"),
        (dict(budget=3, steps=3, form="direct", seed=-1), "seed must be from 0 .*, got -1"),
        (dict(budget=0, form="direct"), "model calls must be from 1 to the 12 steps, got 0"),
        (dict(seed=2**53), r"seed must be from 0 to 2\*\*53 − 1, got 9007199254740992"),
        (dict(seed=None), "seed must be a whole number, got None"),
        (dict(seed=10**400), "seed must be a whole number, got 1000"),
        (dict(shift=0), "shift must be above 0, got 0"),
        (dict(shift="-1.5"), "shift must be above 0, got -1.5"),
        (dict(guidance="inf"), "guidance must be a number, got 'inf'"),
        (dict(guidance="3,5"), "guidance must be a number, got '3,5'"),
        (dict(target_db="loud"), "target_db must be a number, got 'loud'"),
        (dict(target_db=30, form="direct"), "direct step reduction cannot aim at 30 dB"),
    ],
)
def test_what_cannot_be_is_refused_and_quoted(changes: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        setting(**changes)


def test_words_of_an_address_become_numbers():
    found = setting(seed="7", steps="20", budget="6", guidance="2.50", shift="3", target_db="31")
    assert (found.seed, found.steps, found.budget) == (7, 20, 6)
    assert (found.guidance, found.shift, found.target_db) == (2.5, 3.0, 31.0)
    assert all(isinstance(getattr(found, name), int) for name in ("seed", "steps", "budget"))
    assert setting(seed=str(2**53 - 1)).seed == 2**53 - 1
    assert setting(steps=20.0, seed=1e3) == setting(steps=20, seed=1000)


def test_few_steps_need_few_calls():
    assert setting(steps=3, budget=3).budget == 3
    assert setting(steps=12, budget=1, form="direct").budget == 1
    assert setting(budget=99, target_db=30).target_db == 30.0  # then nobody asks for the budget


FULL = setting(
    prompt="a & b = 'c' “d” ?x#y\n<b>",
    negative="50 % +",
    seed=9,
    steps=30,
    guidance=2.25,
    shift=1.7,
    form="paper",
    budget=11,
    target_db=33.5,
    rule="signed time",
    space="data",
    correct="off",
)


USUAL = Setting("toy", "Apple", "", 1, 31, 4.0, 2.0, "planned", 9)
LINKED = [
    FULL,
    replace(FULL, target_db=None),
    setting(),
    setting(form="direct", budget=1),
    Setting("toy", "Apple", guidance=0.0, shift=1.0),  # steps, calls and seed as Setting has them
]


@pytest.mark.parametrize("at", LINKED)
def test_a_link_restores_a_setting_whatever_is_usual(at: Setting):
    link = at.link()
    found = asked(dict(parse_qsl(link[1:], strict_parsing=True)), USUAL)
    wanted = at if at.target_db is None else replace(at, budget=USUAL.budget)
    assert link.startswith("?model=toy&") and found == wanted
    assert found.label == at.label and found.picture == at.picture


def test_a_link_without_a_name_leaves_it_as_usual():
    usual = setting(seed=5)
    assert asked({}, usual) == usual
    assert asked({"model": "toy", "__theme": "dark", "sedd": "9"}, usual) == usual
    assert asked({"budget": "7"}, usual) == setting(seed=5, budget=7)
    with pytest.raises(ValueError, match="got 'x'"):
        asked({"budget": "x"}, usual)


@pytest.mark.parametrize(
    "form, amount",
    [(form, {"budget": 6}) for form in FORMS]
    + [(form, {"target_db": 30.0}) for form in FORMS if form != "direct"],
)
def test_options_are_the_form_s_and_make_a_plan(form: str, amount: dict[str, Any]):
    at = setting(form=form, **amount, rule="hold", space="data", correct="off")
    own = {"rule": "hold", "space": "data", "correct": False} if form == "geoshrink" else {}
    assert at.options() == {**amount, **METHODS.get(form, {}), **own}
    assert at.amount() == amount
    plan = Plan.of(shifted(12), **at.options(), data=0.0)
    assert plan.steps == 12
    if "budget" in amount:
        assert len(plan.anchors) == 6


def test_auto_leaves_it_to_geoshrink():
    assert setting().options() == {"budget": 5}
    assert setting(correct="on").options() == {"budget": 5, "correct": True}
    assert setting(rule="chordal", form="paper").chosen == {}


@pytest.mark.parametrize("rule", CHOICES["rule"])
@pytest.mark.parametrize("space", CHOICES["space"])
@pytest.mark.parametrize("correct", CHOICES["correct"])
def test_every_choice_makes_a_plan(rule: str, space: str, correct: str):
    at = setting(rule=rule, space=space, correct=correct)
    assert len(Plan.of(shifted(12), **at.options(), data=0.0).anchors) == 5


def test_a_picture_is_what_decides_the_full_run():
    picture = setting().picture
    assert picture == Picture("toy", "Pear", "", 3, 12, 2.0, 3.0)
    assert picture == setting(budget=9, form="paper", rule="hold", target_db=20).picture
    others = dict(model="b", prompt="c", negative="d", seed=4, steps=13, guidance=1, shift=1)
    assert all(setting(**{name: value}).picture != picture for name, value in others.items())


def test_labels_tell_settings_apart():
    assert setting().label == "geoshrink, B = 5"
    assert setting(target_db=30.5, rule="hold").label == "geoshrink, 30.5 dB, rule hold"
    assert setting(form="paper", rule="hold").label == "paper, B = 5"
    assert setting(target_db=30).at(7, "direct") == setting(form="direct", budget=7)


@pytest.mark.parametrize("value, words", [(3.0, "3"), (2.25, "2.25"), (5, "5"), ("a", "a")])
def test_numbers_are_written_plainly(value: Any, words: str):
    assert plain(value) == words
