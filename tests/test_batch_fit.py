"""geoshrink batch with a plan for other runs: refused, and not made thousands of times in full."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from batch import MODEL, NAME, calls, put_toy
from geoshrink.batch import run
from geoshrink.batch.jobs import Fatal
from geoshrink.batch.results import Results
from geoshrink.batch.running import check_plan, steps_of
from geoshrink.grid import Grid
from geoshrink.plan import Plan
from geoshrink.pointers import notes_of, page_of
from geoshrink.purpose import Purpose

pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")
pytest.importorskip("torchdiffeq")
STEPS = 20


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(put_toy(tmp_path)))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop(NAME, None)
    yield tmp_path
    sys.modules.pop(NAME, None)


def plan(steps: int = STEPS, **facts: Any) -> Plan:
    grid = Grid.of(torch.linspace(0, 1, steps + 1).tolist(), data=1.0)
    return replace(Plan.of(grid, 6), purpose=Purpose(steps=steps, **facts))


def made(plan: Plan, steps: int = STEPS, **settings: Any) -> int:
    file = plan.save("plan.json")
    told = {"steps": steps, **settings}
    return run(MODEL, ["a cat", "a dog"], "out", progress=False, settings=told, plan=file).calls


def test_a_plan_for_these_runs_is_followed(here):
    assert made(plan(guidance=3.0)) == 12  # nobody says another guidance


@pytest.mark.parametrize(
    ("given", "told", "words"),
    [
        (plan(40), {}, "this plan is for 40 steps; this run has 20 steps"),
        (plan(guidance=3.0), {"guidance": 5.0}, "for guidance 3; this run has guidance 5"),
    ],
)
def test_it_is_refused_before_anything_is_loaded(here, given, told, words):
    with pytest.raises(ValueError, match=words) as caught:
        made(given, **told)
    assert notes_of(caught.value) == [f"See {page_of('fit')}"]
    assert not (here / "calls.log").exists()


def test_a_scheduler_may_have_some_more_stages_than_steps(here):
    assert made(plan(STEPS + 9), STEPS + 9) == 12
    check_plan({"plan": plan(STEPS + 9)}, STEPS, None)  # PNDM: 12 steps have 13 to 21 stages
    with pytest.raises(ValueError, match="this plan is for 30 steps; this run has 20 steps"):
        check_plan({"plan": plan(STEPS + 10)}, STEPS, None)


def test_a_prompt_with_arguments_of_its_own_ends_nothing(here):
    file = plan().save("plan.json")
    prompts = [{"prompt": "a cat", "less": 10}, {"prompt": "a dog"}]
    done = run(MODEL, prompts, "out", progress=False, settings={"steps": STEPS}, plan=file)
    assert (done.made, done.failed) == (2, [])
    results = Results("out")
    reports = [results.row(key)["report"] for key in results.done()]
    assert sum("the plan was made for 20 stages, not 10" in told for told in reports) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "not a geoshrink plan"), ('{"version": 1}', "damaged"), (None, "not a readable file")],
)
def test_a_plan_file_that_is_none_is_named_with_its_page(here, content, words):
    if content is not None:
        Path("mine.json").write_text(content)
    with pytest.raises(ValueError, match=words) as caught:
        run(MODEL, ["a cat"], "out", progress=False, plan="mine.json")
    assert "mine.json" in str(caught.value)
    assert notes_of(caught.value) == [f"See {page_of('plans')}"]


def test_what_the_first_sample_shows_ends_the_batch(here):
    with pytest.raises(Fatal, match="the plan was made for 12 stages, not 20"):
        made(plan(12))
    assert len(calls(here)) == 1  # not the second


def test_as_many_steps_as_the_plan_is_for(here):
    assert steps_of(None) == steps_of({"budget": 6}) == 50
    file = plan(STEPS).save("plan.json")
    assert run(MODEL, ["a cat"], "out", progress=False, plan=file).calls == 6


@pytest.mark.parametrize(
    ("options", "out", "words"),
    [
        ({"budget": 0}, "out", "budget 0 is too small"),
        ({"budget": 2.5}, "out", "a budget must be an integer, got 2.5"),
        ({"speedup": float("nan")}, "out", "speedup is a positive number, got nan"),
        ({"target_db": float("inf")}, "out", "target_db is a number of decibels, got inf"),
        ({"budget": 6}, "/dev/null/out", "cannot be written"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(here, options, out, words):
    with pytest.raises((TypeError, ValueError), match=words):
        run(MODEL, ["a cat"], out, progress=False, **options)
    assert NAME not in sys.modules


def test_a_guidance_that_is_no_number_is_refused(here):
    with pytest.raises(ValueError, match="guidance is a finite number, got nan"):
        run(MODEL, ["a cat"], "out", settings={"guidance": float("nan")}, budget=6)
