"""A quality held with a profile: the profile's plan is the first guess."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import geoshrink
from geoshrink import Plan, sample
from watched import linear

SIGMAS = linear(20)
WEIGHT = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double() * 0.7


def field(x: Tensor, sigma: Any) -> Tensor:
    return torch.tanh(x @ WEIGHT * (1 + sigma)) + sigma * x


def noise(samples: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(samples, 6, generator=torch.Generator().manual_seed(seed)).double()


@pytest.fixture(scope="module")
def profile() -> geoshrink.Profile:
    return geoshrink.profile(field, noise(), SIGMAS, budgets=(5, 8, 12), quiet=True)


def test_the_first_guess_is_the_least_budget_that_the_profile_expects_to_do(profile):
    plan = profile.plan(target_db=30, hold=True)
    assert plan.aim is not None and plan.aim.db == 30
    expected = {len(anchors): db for anchors, db in plan.aim.rungs}
    assert list(expected) == sorted(expected) and plan.budget < 20
    assert profile.predict(plan.budget).db >= 30
    assert all(profile.predict(b).db < 30 for b in range(2, plan.budget))


def test_a_higher_target_makes_no_fewer_calls_and_comes_closer(profile):
    full, calls, off = sample(field, noise(seed=2), SIGMAS), [], []
    for db in (15, 30, 45):
        plan = profile.plan(target_db=db, hold=True)
        x, report = sample(field, noise(seed=2), plan=plan, with_report=True)
        calls.append(report.evaluations)
        off.append(float((x - full).norm()))
    assert calls == sorted(calls) and calls[0] < calls[-1] and off[0] > off[-1]


def test_what_the_run_sees_counts(profile, monkeypatch):
    plan = profile.plan(target_db=30, hold=True)
    turning = lambda x, s: 3 * field(2 * x, s)  # noqa: E731  harder than what was profiled
    found = []
    for share in (0.0, 1.0):
        monkeypatch.setattr("geoshrink.quality.goal.SEEN_SHARE", share)
        found.append(sample(turning, noise(seed=3), plan=plan, with_report=True)[1].evaluations)
    assert found[1] > found[0]


def test_it_goes_to_json_and_back_and_gives_the_same(profile):
    plan = profile.plan(target_db=30, hold=True, most=9, judge="worst")
    again = Plan.from_json(plan.to_json())
    assert again == plan and again.aim is not None and again.aim.most == 9
    assert torch.equal(sample(field, noise(), plan=again), sample(field, noise(), plan=plan))


def test_a_cap_holds_and_is_told(profile):
    plan = profile.plan(target_db=200, hold=True, most=7)
    _, report = sample(field, noise(seed=4), plan=plan, with_report=True)
    assert report.evaluations <= 7
    assert any("more calls are expected" in why for _, why in report.reasons)


@pytest.mark.parametrize(
    "given",
    [
        dict(budget=8, hold=True),
        dict(target_db=30, most=9),
        dict(target_db=30, judge="worst"),
        dict(target_db=30, hold=True, target="flow"),
        dict(target_db=float("nan"), hold=True),
        dict(target_db=30, hold=True, most=2),
        dict(target_db=30, hold=True, judge="best"),
    ],
)
def test_bad_input(profile, given):
    with pytest.raises(ValueError, match=r"hold|target_db|most|judge"):
        profile.plan(**given)
