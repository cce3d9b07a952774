"""The profiles that come with the zoo: whole, of these weights, small, used without the model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from geoshrink import Plan, Profile, sample
from geoshrink.cli import main
from geoshrink.planning.choosing import budgets_of, interpolated
from geoshrink.planning.files import KIND, VERSION, digest
from geoshrink.planning.planner import BASELINES, DEFAULT, DIRECT
from geoshrink_bench import zoo
from geoshrink_bench.zoo import profiles as ship

NAMES = (
    "fruit", "motion", "digits-audio", "digits-av", "objects", "fruit-latent", "fruit-epsilon",
    "fruit-x0", "fruit-video",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def fruit() -> zoo.Model:
    return zoo.load("fruit")


def found(name: str) -> Profile:
    profile = ship.shipped(name)
    assert profile is not None
    return profile


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_is_of_the_judged_setting_and_of_these_weights(name):
    file = ship.place(name)
    assert file is not None and file.stat().st_size < 300_000
    body = json.loads(file.read_text(encoding="utf-8"))
    assert body[KIND] == VERSION and body.pop("sha256") == digest(body)
    profile, model = found(name), zoo.load(name)
    at = model.judged_at
    profile.check(model.grid(interval=at.get("interval")), at["guidance"], name)
    assert profile.complete and profile.samples >= (8 if name == "fruit-video" else 16)
    assert len(profile.tried("run")) >= 3
    assert "benchmarks/planning.py" in profile.made and model.facts["sha256"] in profile.made
    for budget in profile.tried("run"):
        expected = {t.recipe: t.mean for t in profile.trials if t.budget == budget}
        chosen = profile.predict(budget).recipe
        assert expected[chosen] > max(expected[b] for b in BASELINES if b in expected) - 1.0


@pytest.mark.parametrize(
    "name",
    [
        "objects",
        *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES if n != "objects"),
    ],
)
def test_no_budget_is_planned_worse_than_what_needs_no_profile(name):
    """The winner, or the default where that is as good; so, too, where nothing was tried."""
    profile = found(name)
    for budget in budgets_of(profile):
        expected = profile.predict(budget)
        tried = {t.recipe: t.mean for t in profile.trials if t.budget == budget}
        if tried:
            best = tried[expected.recipe] == max(tried.values())
            assert best or profile.planner.is_default(expected.recipe, budget)
            continue
        others = [interpolated(profile, b, budget) for b in (DIRECT, DEFAULT)]
        assert expected.db >= max(o.db for o in others if o is not None)
    if name == "objects":
        assert profile.plan(4).mesh.startswith("direct (no planned ones do better), 8.1 ± 3.9 dB")
        assert profile.predict(14).recipe == "signed time, corrected"


def test_the_command_plans_fruit_without_running_it(monkeypatch, capsys):
    def run(*_: object, **__: object) -> None:
        raise AssertionError("the model ran")

    monkeypatch.setattr("geoshrink_bench.zoo.network.DiT.forward", run)
    assert main(["plan", "fruit", "--budget", "10"]) == 0
    said = capsys.readouterr()
    assert "the profile that comes with fruit" in said.err and "profiling" not in said.err
    plan = Plan.from_json(said.out)
    assert plan == found("fruit").plan(10) and plan.budget == 10
    assert "measured" in plan.mesh
    with pytest.raises(AssertionError, match="the model ran"):
        main(["plan", "fruit", "--budget", "10", "--guidance", "2"])
    said = capsys.readouterr().err
    assert "not by the profile that comes with fruit: it was made at guidance 3" in said


def test_a_run_that_does_not_fit_warns_and_takes_the_default(fruit):
    assert ship.zoo_plan(fruit, 10) == found("fruit").plan(10)
    asked: dict[str, dict[str, Any]] = {
        "guidance 3, this run has 5": dict(guidance=5.0),
        "its σ-grid is another one": dict(grid=fruit.grid(28)),
    }
    for why, options in asked.items():
        with pytest.warns(UserWarning, match=f"by the default: .*{why}"):
            plan = ship.zoo_plan(fruit, 10, **options)
        assert plan == Plan.of(options.get("grid", fruit.grid()), 10)


def test_an_explicit_misfit_is_an_error(fruit):
    profile = found("fruit")
    with pytest.raises(ValueError, match="guidance 3, this run has 5; profile the model as"):
        profile.check(fruit.grid(), 5.0, "fruit")
    with pytest.raises(ValueError, match="50"):
        sample(lambda x, sigma: x, torch.ones(1, 2), fruit.sigmas(28), plan=profile.plan(10))


def test_other_weights_are_noticed(monkeypatch):
    monkeypatch.setattr(ship, "weights_of", lambda name: "0" * 64)
    with pytest.warns(UserWarning, match="made from other weights than those beside it"):
        assert ship.shipped("fruit") is None


def test_shipping_is_refused_off_the_judged_setting_and_keeps_the_plans(
    fruit, monkeypatch, tmp_path
):
    profile = found("fruit")
    monkeypatch.setattr(ship, "place", lambda name: tmp_path / f"{name}.profile.json")
    replace(profile, guidance=2.0).save(tmp_path / "other.json")
    with pytest.raises(ValueError, match="made at guidance 2, this run has 3"):
        ship.ship(fruit, tmp_path / "other.json", "x")
    profile.save(tmp_path / "whole.json")
    to = ship.ship(fruit, tmp_path / "whole.json", "a command")
    assert to.stat().st_size < 0.6 * (tmp_path / "whole.json").stat().st_size
    assert found("fruit").made.startswith("a command; weights ")
    torch.testing.assert_close(found("fruit").grams[0], profile.grams[0])  # were rounded already
    body = json.loads(to.read_text(encoding="utf-8"))
    body["batches"][0]["energies"][0]["type"] = "<f2"
    body.pop("sha256")
    body["sha256"] = digest(body)
    to.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(ValueError, match=r"is damaged .*numbers of type '<f2'"):
        Profile.load(to)
