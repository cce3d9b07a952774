"""Profiles that travel: to other grids, to fewer samples, with the zoo's models; files."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

import geoshrink
from geoshrink import Grid, Plan, Profile, sample
from geoshrink.planning.gains import gain_stages
from geoshrink.planning.space import resampled
from geoshrink.planning.tournament import decibels
from geoshrink_bench import zoo
from geoshrink_bench.zoo import profiles as ship
from geoshrink_bench.zoo.carried import pooled, subset
from toy import Toy, noise, shifted

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made() -> Profile:
    return geoshrink.profile(Toy(), noise(8), shifted(24), budgets=[8], model="toy", quiet=True)


def test_resampled_to_its_own_grid_a_profile_is_itself(made):
    same = resampled(made, made.grid)
    torch.testing.assert_close(same.grams[0], made.grams[0])
    assert same.gains() == pytest.approx(made.gains()) and same.stages == made.stages
    assert same.plan(8).anchors == made.plan(8).anchors
    assert same.predict(8).how == "carried over" and "carried over" in same.plan(8).mesh
    assert "resampled from 24 stages" in str(same)


@pytest.mark.parametrize(("steps", "shift"), [(16, 3.0), (24, 1.0), (32, 2.0)])
def test_other_steps_and_shifts_without_another_profile(made, steps, shift, tmp_path):
    sigmas = shifted(steps, shift)
    carried, there = (
        made.resample(sigmas),
        geoshrink.profile(Toy(), noise(8), sigmas, budgets=[8], quiet=True),
    )
    scale = there.grams[0].diagonal(dim1=1, dim2=2).mean()
    assert float((carried.grams[0] - there.grams[0]).abs().mean() / scale) < 0.2
    x = noise(16, seed=9)
    full = sample(Toy(), x, sigmas)
    db = [
        float(decibels(sample(Toy(), x, plan=plan), full).mean())
        for plan in (carried.plan(8), there.plan(8), Plan.of(sigmas, 8))
    ]
    assert db[0] > db[2] + 3
    carried.save(tmp_path / "carried.json")
    assert Profile.load(tmp_path / "carried.json").predict(8) == carried.predict(8)


def test_what_cannot_be_resampled_is_refused(made):
    with pytest.raises(ValueError, match="cannot be resampled"):
        made.resample([0.9 * s for s in shifted(12)], prediction="epsilon", alphas="vp")
    with pytest.raises(ValueError, match="1 regimes beside the first, not 0; profile the model"):
        made.resample(Grid.of(shifted(12), regimes=(4,)))


def test_fewer_samples_and_several_models(made):
    few = subset(made, [0, 2, 5, 7])
    torch.testing.assert_close(few.grams[0], made.grams[0][[0, 2, 5, 7]])
    assert few.samples == 4 and all(len(t.db) == 4 for t in few.trials)
    both = pooled([made, made], Grid.of(shifted(16)))
    assert both.samples == 16 and both.energies == (1.0,) and not both.trials
    assert both.plan(6).budget == 6 and both.plan(6).steps == 16


def test_models_whose_gains_were_measured_elsewhere_are_pooled_at_common_stages(made):
    """Was: a profile of other stages gave its gains to the first one's stages, or did not fit."""
    step = slice(None, None, 2)
    batches = tuple(replace(b, gains=tuple(g[step] for g in b.gains)) for b in made.batches)
    other = replace(made, stages=made.stages[step], batches=batches)
    grid = Grid.of(shifted(16))
    both = pooled([made, other], grid)
    assert both.stages == gain_stages(grid) and both.plan(6).budget == 6
    alone = [pooled([each], grid).gains() for each in (made, other)]
    assert np.allclose(np.log(both.gains()), np.log(alone).mean(0), atol=0.05)


def test_a_model_of_the_zoo_is_planned_by_the_profile_beside_its_weights(monkeypatch, tmp_path):
    model = zoo.load("fruit")
    found = geoshrink.profile(
        Toy(), noise(4), model.grid(), budgets=[10], model="fruit", guidance=3.0, quiet=True
    )
    monkeypatch.setattr(ship, "place", lambda name: tmp_path / f"{name}.profile.json")
    with pytest.warns(UserWarning, match="by the default: there is no profile of it"):
        assert ship.zoo_plan(model, 10) == Plan.of(model.grid(), 10)
    found.save(tmp_path / "fruit.profile.json")
    assert ship.zoo_plan(model, 10).anchors == found.plan(10).anchors
    with pytest.warns(UserWarning, match="made at guidance 3, this run has 5"):
        ship.zoo_plan(model, 10, guidance=5.0)
    with pytest.warns(UserWarning, match="its σ-grid is another one"):
        ship.zoo_plan(model, 10, model.grid(28))


@pytest.mark.slow
def test_the_command_takes_the_profile_that_comes_with_a_model(monkeypatch, tmp_path, capsys):
    from geoshrink.cli import main

    grid = zoo.load("fruit").grid()
    found = geoshrink.profile(
        Toy(), noise(4), grid, budgets=[10], model="fruit", guidance=3.0, quiet=True
    )
    found.save(tmp_path / "fruit.profile.json")
    monkeypatch.setattr(ship, "place", lambda name: tmp_path / f"{name}.profile.json")
    assert main(["plan", "fruit", "--budget", "10"]) == 0
    said = capsys.readouterr()
    assert "the profile that comes with fruit" in said.err
    assert Plan.from_json(said.out.strip().splitlines()[-1]).anchors == found.plan(10).anchors
    assert main(["plan", "fruit", "--target", "x"]) == 2
    assert "unknown target 'x'" in capsys.readouterr().err


def test_a_small_file_gives_the_same_plans(made, tmp_path):
    whole, small = tmp_path / "whole.json", tmp_path / "small.json"
    made.save(whole)
    made.save(small, small=True)
    assert small.stat().st_size < 0.7 * whole.stat().st_size
    a, b = Profile.load(whole), Profile.load(small)
    assert torch.equal(a.grams[0], made.grams[0]) and not torch.equal(a.grams[0], b.grams[0])
    for budget in range(4, 24):
        p, q = a.plan(budget), b.plan(budget)
        assert (p.anchors, p.rules, p.space) == (q.anchors, q.rules, q.space)
        own, other = ([c or 0.0 for c in plan.coefficients or ()] for plan in (p, q))
        assert own == pytest.approx(other, rel=1e-3)


def test_a_write_that_fails_leaves_nothing_behind(made, tmp_path, monkeypatch):
    file = tmp_path / "toy.json"
    made.save(file)
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        made.save(file)
    assert [f.name for f in tmp_path.iterdir()] == ["toy.json"] and file.read_bytes() == before


def test_a_grid_of_one_stage_is_refused(made):
    with pytest.raises(ValueError, match="1 stage, and two are the fewest"):
        made.resample([1.0, 0.5])
