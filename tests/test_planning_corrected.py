"""Plans with corrected cells: searched as such, tried, refused where they lose."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import geoshrink
from geoshrink import Correction, Grid, Plan, Profile, Run, sample
from geoshrink.planning.choosing import interpolated, leave_one_out
from geoshrink.planning.planner import AUTO, CORRECTED, DEFAULT, DIRECT, FEW, MESH, MESHES
from geoshrink.planning.runs import Trial
from geoshrink.planning.tournament import BEST, LEAST, MOST, RUNS, affordable, decibels, entrants
from toy import Toy, noise, shifted

pytestmark = pytest.mark.usefixtures("one_thread")
SIGMAS = shifted(20)


@pytest.fixture(scope="module")
def made() -> Profile:
    return geoshrink.profile(Toy(), noise(8), SIGMAS, budgets=[5, 8], quiet=True)


def scored(made: Profile, budget: int, **db: float) -> Profile:
    """With these means at a budget in place of the trials that were made."""
    trials = tuple(t for t in made.trials if t.budget != budget)
    ripple = np.linspace(-0.1, 0.1, 8)
    new = (Trial(n, budget, (), 20.0, tuple(x + ripple)) for n, x in db.items())
    return replace(made, trials=(*trials, *new), _planners=made._planners)


def test_corrected_recipes_are_tried_and_beat_the_default_with_correct(made):
    fresh, x = Toy(), noise(32, seed=9)
    full = sample(fresh, x, SIGMAS)
    for budget in (5, 8):
        tried = {t.recipe for t in made.trials if t.budget == budget}
        assert {*BEST, CORRECTED, MESH, "cautious", DIRECT} <= tried
        plan = made.plan(budget)
        mine, plain, corrected = (
            float(decibels(x0, full).mean())
            for x0 in (
                sample(fresh, x, plan=plan),
                sample(fresh, x, SIGMAS, budget),
                sample(fresh, x, SIGMAS, budget, correct=True),
            )
        )
        assert mine > plain - 0.3 and mine > corrected - 0.3


def test_a_corrected_plan_travels(made):
    for name in BEST:
        plan = made.planner.named(name, 8)
        assert plan is not None and plan.correct == Correction()
        assert Plan.from_json(plan.to_json()) == plan
    assert made.planner.named(BEST[1], 8).clock == "mesh"  # type: ignore[union-attr]


def test_the_default_always_enters_whatever_it_is(monkeypatch):
    grid = Grid.of(SIGMAS)
    for budget, name in ((8, FEW), (9, MESH)):
        assert name in entrants(grid, budget)[:LEAST] and DEFAULT not in entrants(grid, budget)
    monkeypatch.setitem(MESHES, DEFAULT, dict(MESHES[AUTO]))
    assert AUTO in entrants(grid, 8)[:LEAST] and DEFAULT not in entrants(grid, 8)
    monkeypatch.setitem(MESHES, DEFAULT, dict(anchors="auto", rule="time", correct=0.25))
    assert entrants(grid, 8)[1] == DEFAULT and AUTO in entrants(grid, 8)
    found = geoshrink.profile(Toy(), noise(), SIGMAS, quiet=True)
    assert all(DEFAULT in {t.recipe for t in found.trials if t.budget == b} for b in (4, 8))
    assert found.curve([8]).rows()[0]["default"] == pytest.approx(
        next(t.mean for t in found.trials if (t.recipe, t.budget) == (DEFAULT, 8))
    )


def test_the_correction_is_refused_where_it_loses(made):
    lost = scored(made, 8, **{"direct": 10, AUTO: 20, "time": 25, BEST[0]: 24, CORRECTED: 15})
    assert lost.predict(8).recipe == "time" and lost.plan(8).correct is None
    won = scored(made, 8, **{"direct": 10, AUTO: 20, "time": 25, BEST[0]: 26, CORRECTED: 15})
    assert won.plan(8).correct == Correction() and "corrected (half)" in str(won.plan(8))
    assert won.plan(8, correct=False).correct is None
    assert won.predict(8, correct=False).recipe == "time"


def test_the_default_is_the_plan_unless_another_is_better_beyond_the_noise():
    safe = Trial(AUTO, 5, (), 0.0, (20.0, 21.0, 22.0, 23.0))
    noisy = replace(safe, recipe="time", db=(30.0, 15.0, 28.0, 14.0))
    steady = replace(safe, recipe="hold", db=(20.2, 21.3, 22.2, 23.3))
    assert leave_one_out([safe, noisy], AUTO).recipe == AUTO
    assert leave_one_out([safe, noisy]).recipe == "time"
    assert leave_one_out([safe, steady], AUTO).recipe == "hold"
    assert leave_one_out([noisy, steady], AUTO).recipe == "time"  # the default was not tried


def test_where_nothing_was_tried_the_default_is_left_only_for_a_sure_gain(made):
    """Here the others are ahead at both tried budgets; then only at one of them."""
    default = next(t.recipe for t in made.trials if made.planner.is_default(t.recipe, 6))
    safe = interpolated(made, default, 6)
    assert safe is not None and made.predict(6).recipe != default
    assert made.predict(6).db >= safe.db

    def behind(at: int) -> Profile:
        trials = (
            replace(t, db=tuple(d - 60 * (t.budget == at and t.recipe != default) for d in t.db))
            for t in made.trials
        )
        return replace(made, trials=tuple(trials), _planners=made._planners)

    for at in (5, 8):
        assert behind(at).predict(at).recipe == default
        assert behind(at).predict(6).recipe == default
        assert behind(at).plan(6).mesh.startswith("default (no planned ones do better), ")


@pytest.mark.slow
def test_ten_full_runs_are_enough_whatever_enters():
    for steps in (20, 28, 50, 100):
        toy = Toy()
        found = geoshrink.profile(toy, noise(4), shifted(steps), quiet=True)
        assert toy.calls <= RUNS * steps
        assert len(found.tried("run")) >= 2
        for budget in found.tried("run"):
            tried = {t.recipe for t in found.trials if t.budget == budget}
            assert {DIRECT, *BEST} <= tried
            assert any(found.planner.is_default(name, budget) for name in tried)


def test_fewer_calls_mean_fewer_entrants_then_fewer_budgets(made):
    empty = replace(made, trials=())
    whole = affordable(empty, [4, 8, 12], None)
    assert whole[4] == entrants(made.grid, 4)[:MOST] and len(whole) == 3
    few = affordable(empty, [4, 8, 12], 24 * LEAST)
    assert [*few] == [4, 8, 12] and {len(names) for names in few.values()} == {LEAST}
    assert [*affordable(empty, [4, 8, 12], 24 * LEAST - 1)] == [4, 8]
    assert affordable(empty, [4, 8], -5) == {}


def test_a_loop_of_unknown_solver_says_that_the_plan_is_not_corrected(made):
    plan = made.planner.named(BEST[0], 8)
    assert plan is not None
    x, run, toy = noise(8), Run(plan=plan), Toy()
    for n in range(run.steps):
        step = SIGMAS[n + 1] - SIGMAS[n]
        x = x + step * run(n, lambda n=n, x=x: toy(x, SIGMAS[n]), x)
    assert "cells are not corrected: the solver is not known" in str(run.report)
    told = sample(toy, noise(8), plan=plan, with_report=True)[1]
    assert "not corrected" not in str(told)


def test_a_grid_of_unknown_noise_levels_is_planned_without_correction():
    found = geoshrink.profile(Toy(), noise(), [s + 0.1 for s in SIGMAS], quiet=True)
    assert not any(found.planner.corrects(t.recipe, t.budget) for t in found.trials)
    assert found.plan(8).correct is None and found.planner.named(BEST[0], 8) is None


def test_without_real_runs_cells_are_corrected_if_the_default_does(monkeypatch):
    found = geoshrink.profile(Toy(), noise(), SIGMAS, budgets=(), quiet=True)
    assert found.plan(6).correct == Correction()
    assert found.plan(6, correct=False).correct is None
    with pytest.raises(ValueError, match="correct is True or False, got 'half'"):
        found.plan(6, correct="half")  # type: ignore[arg-type]
    monkeypatch.setitem(MESHES, DEFAULT, dict(MESHES[AUTO]))
    assert found.plan(6).correct is None


def test_regimes_are_searched_apart_with_correction_too():
    grid = Grid.of(SIGMAS, regimes=(7,))
    found = geoshrink.profile(Toy(), noise(), grid, budgets=[8], quiet=True)
    plan = found.planner.named(BEST[0], 8)
    assert plan is not None and {0, 7} <= {*plan.anchors}
    assert found.planner.cost(plan) == pytest.approx(
        found.planner.search(BEST[0], 8).cost, rel=1e-4
    )
    x = sample(Toy(), noise(), plan=plan)
    assert torch.isfinite(x).all()


def test_without_correction_a_plan_for_the_flow_has_none_either():
    """The default of target="flow" corrects its cells, so it is no plan for a loop that cannot."""
    tried, untried = (
        geoshrink.profile(Toy(), noise(8), shifted(20), budgets=at, target="flow", quiet=True)
        for at in ((6,), ())
    )
    for found in (tried, untried):
        plan = found.plan(6, target="flow", correct=False)
        assert plan.correct is None and plan.refine == 8 and plan.budget == 6
    assert untried.plan(6, target="flow").correct is not None
