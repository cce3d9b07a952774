"""What people pass in: plans in every form, grids that match, and what is refused at once."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import geoshrink
from geoshrink import Grid, Host, Plan, Run, accelerate, register_host, sample
from geoshrink.grid import told_apart
from geoshrink.hosts import registry
from geoshrink.plan import check_plan, given_plan
from geoshrink.report import late_errors
from toy import Toy, noise, shifted

GRID = shifted(20)
PLAN = Plan.of(GRID, 8)
NO_PLANS: dict[str, tuple[Any, str]] = {
    "None": (None, "plan=None is not a plan"),
    "a name": ("x", "plan='x' is not a readable file"),
    "an empty dict": ({}, "not a geoshrink plan: '{}'"),
    "a number": (7, "plan=7 is not a plan"),
    "text": (PLAN.to_json(), "is not a readable file"),
    "a folder": ("tests", "is not a readable file"),
}


class Scheduler:
    def set_timesteps(self, steps: int) -> None: ...

    def step(self, model_output: Any, timestep: Any, sample: Any) -> Any: ...


class Pipe:
    def __init__(self):
        self.scheduler, self.transformer = Scheduler(), nn.Linear(2, 2)


def pipe() -> Any:
    return Pipe()


# --- plans ------------------------------------------------------------------------------------


@pytest.fixture(params=["Plan", "str", "Path", "dict"])
def plan(request, tmp_path) -> Any:
    file = tmp_path / "plan.json"
    file.write_text(PLAN.to_json(), encoding="utf-8")
    body = json.loads(PLAN.to_json())
    return {"Plan": PLAN, "str": str(file), "Path": file, "dict": body}[request.param]


def test_a_plan_is_taken_in_every_form(plan):
    assert given_plan(plan) == PLAN == Run(plan=plan).plan
    expected = sample(Toy(), noise(), plan=PLAN)
    assert torch.equal(sample(Toy(), noise(), plan=plan), expected)
    assert torch.equal(sample(Toy(), noise(), GRID, plan=plan), expected)
    host = pipe()
    with accelerate(host, plan=plan, denoisers=[host.transformer]) as handle:
        assert handle.report is None
    assert given_plan(plan) == PLAN  # a dict is not used up


def test_odeint_takes_a_plan_in_every_form(plan):
    pytest.importorskip("torchdiffeq")

    def field(t, y):
        return torch.cos(3 * t) * y

    times = torch.tensor(GRID, dtype=torch.float64)
    _, report = geoshrink.odeint(field, noise(), times, plan=plan, with_report=True)
    assert report.evaluations == 8


@pytest.mark.parametrize(("given", "message"), NO_PLANS.values(), ids=list(NO_PLANS))
def test_what_is_no_plan_is_refused_at_once(given, message):
    toy, host = Toy(), pipe()
    with pytest.raises((TypeError, ValueError), match=message):
        accelerate(host, plan=given, denoisers=[host.transformer])
    assert "step" not in vars(host.scheduler)
    if given is not None:
        with pytest.raises((TypeError, ValueError), match=message):
            sample(toy, noise(), plan=given)
        with pytest.raises((TypeError, ValueError), match=message):
            Run(plan=given)
    assert toy.calls == 0


def test_a_run_takes_the_path_of_a_plan_as_it_takes_a_plan(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(PLAN.to_json(), encoding="utf-8")
    assert Run(file).plan == Run(str(file)).plan == Run(PLAN).plan


def test_a_plan_leaves_no_options():
    host = pipe()
    with pytest.raises(ValueError, match="a plan decides everything: leave out rule, budget"):
        accelerate(host, 8, plan=PLAN, rule="hold", denoisers=[host.transformer])


@pytest.mark.parametrize("given", ["transformer", 5])
def test_denoisers_that_are_no_list_are_quoted(given):
    with pytest.raises(TypeError, match=repr(given)):
        accelerate(pipe(), 8, denoisers=given)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000], ids=["lists", "dicts"])
def test_json_nested_too_deep_is_no_plan(text):
    assert sys.getrecursionlimit() < 100_000
    with pytest.raises(ValueError, match="not a geoshrink plan"):
        Plan.from_json(text)


# --- grids ------------------------------------------------------------------------------------


def moved(by: float, n: int = 3) -> list[float]:
    return [s + by * (i == n) for i, s in enumerate(GRID)]


def test_a_grid_in_single_precision_matches():
    single = np.asarray(GRID, dtype=np.float32).tolist()
    assert single != GRID and Grid.of(single).matches(Grid.of(GRID))
    assert check_plan(PLAN, Grid.of(single)) is PLAN
    assert Run(single, plan=PLAN).plan is PLAN
    edm = [80 * u**7 for u in np.linspace(1, 0, 21)]
    assert Grid.of(np.asarray(edm, dtype=np.float32).tolist()).matches(Grid.of(edm))


@pytest.mark.parametrize("by", [1e-3, -1e-3, 0.01])
def test_a_grid_that_is_off_in_the_third_digit_does_not_match(by):
    other = Grid.of(moved(by))
    assert not other.matches(Grid.of(GRID)) and not Grid.of(GRID).matches(other)
    with pytest.raises(ValueError, match=r"the plan was made for σ_3 = 0\.9\d+, not 0\.9\d+: make"):
        check_plan(PLAN, other)
    with pytest.raises(ValueError, match="the plan was made for σ_3"):
        sample(Toy(), noise(), moved(by), plan=PLAN)


def test_small_sigmas_are_told_apart_too():
    low = [0.02, 0.01, 0.001, 0.0]
    assert not Grid.of(low).matches(Grid.of([0.02, 0.01, 0.0011, 0.0]))


def test_every_sigma_of_every_track_counts():
    pair = Grid.of((GRID, GRID))
    assert not pair.matches(Grid.of((GRID, moved(1e-3, 19))))
    assert pair.difference(Grid.of(GRID)) == "2 σ-grids, not 1"
    ends = Grid.of([*GRID[:-1], 1e-3])
    assert Grid.of(GRID).difference(ends) == "σ_20 = 0, not 0.001"


def test_stages_without_a_length_count():
    """A run numbers its stages as the caller does."""
    longer = Grid.of([1.0, *GRID])
    assert longer.steps == 20 and not longer.matches(Grid.of(GRID))
    assert Grid.of(GRID).difference(Grid.of(shifted(21))) == "20 stages, not 21"


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0002), (0.5, 0.50000001), (1000.0, 1000.2)])
def test_numbers_that_differ_are_shown_so(a, b):
    one, other = told_apart(a, b)
    assert one != other and float(one) == pytest.approx(a) and float(other) == pytest.approx(b)


@pytest.mark.parametrize(
    ("sigmas", "data"), [(GRID, 7.0), (GRID, -1.0), (GRID, 0.5), ([80.0, 9.0, 0.0], 1.0)]
)
def test_data_is_at_an_end(sigmas, data):
    with pytest.raises(ValueError, match=f"data={data}.*pass data=0.0"):
        Plan.of(sigmas, data=data)


@pytest.mark.parametrize(("sigmas", "data"), [([0.0, 500.0, 1000.0], 1000.0), ([1.0, 0.5, 0.1], 0)])
def test_data_may_be_an_end_of_its_own(sigmas, data):
    assert Grid.of(sigmas, data=data).tracks[0].data == data


# --- hosts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["euler", 5, object()], ids=["str", "int", "object"])
def test_a_scheduler_is_an_object_that_steps(scheduler):
    with pytest.raises(TypeError, match=r"scheduler=.* has no set_timesteps\(\) and step\(\)"):
        accelerate(pipe(), scheduler=scheduler)


def test_a_host_is_told_by_functions():
    before = registry.known()
    with pytest.raises(TypeError, match="knows must be a function of the host, got 'a'"):
        register_host(Host("mine", "a", "b"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="attach must be a function of the host, got 'b'"):
        register_host(Host("mine", bool, "b"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"takes a geoshrink\.Host, got 'mine'"):
        register_host("mine")  # type: ignore[arg-type]
    assert before == registry.known()


# --- the self-check ---------------------------------------------------------------------------


def test_the_self_check_leaves_out_the_first_two_errors_of_every_slot():
    slots = enumerate([(9.0, 5.0, 1.0, 3.0), (7.0, 7.0, 2.0)])
    errors = [(slot, error) for slot, own in slots for error in own]
    assert late_errors(errors) == 2.0
    assert late_errors(errors[:2]) is None
