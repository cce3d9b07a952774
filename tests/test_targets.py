"""target="flow": fewer calls than the full run, closer to the exact flow, and without a profile."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import geoshrink
from geoshrink import Correction, Plan, Run, sample
from geoshrink.planning.planner import MESH
from geoshrink.planning.tournament import converged, decibels
from geoshrink.targets import FOR_FLOW
from toy import Toy, noise, shifted

T = 30
GRID = geoshrink.Grid.of(shifted(T))
pytestmark = pytest.mark.usefixtures("one_thread")


def mixture(x: torch.Tensor, sigma: float) -> torch.Tensor:
    """The flow of data that are (±1, …, ±1), half as wide as they are apart."""
    alpha, width = 1 - sigma, 0.5
    spread = alpha**2 * width**2 + sigma**2
    near = torch.tanh(alpha * x / spread)
    data = near + alpha * width**2 / spread * (x - alpha * near)
    return (x - data) / sigma


def to_flow(x: torch.Tensor, start: torch.Tensor) -> float:
    return float(decibels(x, converged(mixture, start, GRID, 16)).mean())


def test_fewer_calls_are_closer_to_the_flow_than_the_full_run_and_other_solvers():
    x = noise(16)
    full = to_flow(sample(mixture, x, GRID), x)
    for budget, gain in ((10, 0), (20, 4)):
        made, report = sample(mixture, x, GRID, budget, target="flow", with_report=True)
        found = to_flow(made, x)
        assert report.evaluations == budget and found > full + gain
        for solver in ("ab2", "dpm++2m"):
            assert found > to_flow(sample(mixture, x, shifted(budget), solver=solver), x) + 1
        assert found > to_flow(sample(mixture, x, GRID, budget, refine=8), x) + 1


def test_the_plan_says_what_it_is_and_is_made_of_options():
    plan = Plan.of(GRID, 10, target="flow")
    assert plan == Plan.of(GRID, 10, **FOR_FLOW) and plan.refine == 8
    assert str(plan) == (
        "10 of 30 stages (corrected anchors, signed time, output space, refined 8 times, "
        "corrected (half), clock: mesh)"
    )
    assert sample(Toy(), noise(), GRID, 10, target="flow", with_report=True)[1].plan == str(plan)
    own: dict[str, Any] = dict(refine=4, correct=Correction(caution=1), clock="sigma")
    plan = Plan.of(GRID, 10, target="flow", anchors="auto", **own)
    assert plan == Plan.of(GRID, 10, anchors="auto", **own) and plan.mesh == "auto"
    assert Plan.of(GRID, 10, target="flow", correct=False).correct is None
    every = Plan.of(GRID, target="flow")
    assert every.budget == T and not every.exact
    assert Plan.of(GRID, 10, target="run") == Plan.of(GRID, 10)


def test_a_loop_of_your_own_is_corrected_without_naming_the_solver():
    x, sigmas = noise(), shifted(T)
    run = Run(sigmas, 10, target="flow")
    assert run.corrects
    for n in range(run.steps):
        v = run(n, lambda x=x, n=n: mixture(x, sigmas[n]), x)
        x = x + (sigmas[n + 1] - sigmas[n]) * v
    torch.testing.assert_close(x, sample(mixture, noise(), sigmas, 10, target="flow"))
    assert not run.report.reasons and "refined 8 times, corrected" in run.report.plan


def test_what_cannot_aim_at_the_flow_says_why():
    with pytest.raises(ValueError, match="unknown target 'flows'; \"run\" is"):
        Plan.of(GRID, 10, target="flows")
    with pytest.raises(ValueError, match=r"refine=1 leaves the solver's own steps: .* 2 to 64"):
        Plan.of(GRID, 10, target="flow", refine=1)
    with pytest.raises(ValueError, match=r"target='flow' needs the noise levels .*pass data=0\.0"):
        Plan.of([i / 20 for i in range(21)], 10, target="flow")
    with pytest.raises(ValueError, match="v outputs needs the state: give space='data'"):
        Plan.of(shifted(T), 10, target="flow", prediction="v", alphas="flow")
    for solver in ("ab2", "heun", "dpm++2m"):
        words = re.escape(f"refine=8 is for Euler; with solver='{solver}' leave it out")
        with pytest.raises(ValueError, match=f"{words}, and target='flow', too"):
            sample(Toy(), noise(), GRID, 10, target="flow", solver=solver)
    with pytest.raises(ValueError, match="is for Euler; with solver='ab2'"):
        Run(GRID, 10, refine=8, solver="ab2")
    with pytest.raises(ValueError, match="a plan decides everything: leave out target"):
        sample(Toy(), noise(), plan=Plan.of(GRID, 10), target="flow")


def test_a_profile_without_runs_for_the_flow_gives_the_plan_that_needs_none():
    plain = geoshrink.profile(mixture, noise(8), GRID, budgets=[10], quiet=True)
    plan, free = plain.plan(20, target="flow"), Plan.of(GRID, 20, target="flow")
    assert plan.anchors == free.anchors and (plan.refine, plan.correct) == (8, free.correct)
    assert "corrected (not planned: no real runs for the flow) anchors" in str(plan)
    assert plain.plan(20, target="flow", refine=4).refine == 4
    x = noise(16, seed=5)
    gain = to_flow(sample(mixture, x, plan=plan), x) - to_flow(sample(mixture, x, GRID), x)
    assert gain > 4


def test_a_profile_for_the_flow_tries_the_plan_that_needs_none():
    tried = geoshrink.profile(mixture, noise(8), GRID, budgets=[12], target="flow", quiet=True)
    free = Plan.of(GRID, 12, target="flow")
    (trial,) = [t for t in tried.trials if t.recipe == MESH]
    expected = decibels(sample(mixture, noise(8), plan=free), converged(mixture, noise(8), GRID))
    assert trial.db == pytest.approx(expected.tolist(), abs=1e-6)
    best = max(t.mean for t in tried.trials if t.budget == 12)
    made = sample(mixture, noise(8), plan=tried.plan(12, target="flow"))
    found = decibels(made, converged(mixture, noise(8), GRID)).mean()
    assert float(found) == pytest.approx(best, abs=1e-6) and best >= trial.mean


# --- pipelines --------------------------------------------------------------------------------


def test_a_pipeline_aims_at_the_flow_as_sample_does(monkeypatch):
    d: Any = pytest.importorskip("diffusers")
    from corrected import Net, run, start

    monkeypatch.setattr("corrected.STEPS", T)
    pipe, report = run(d.FlowMatchEulerDiscreteScheduler, budget=10, target="flow")
    assert "refined 8 times, corrected (half), clock: mesh" in report.plan and not report.reasons
    scheduler, net = d.FlowMatchEulerDiscreteScheduler(), Net()
    scheduler.set_timesteps(T)
    sigmas = scheduler.sigmas.double().tolist()
    times = dict(zip(sigmas, scheduler.timesteps))
    expected = sample(
        lambda x, s: net(x, times[s]).detach(), start(scheduler), sigmas, 10, target="flow"
    )
    assert torch.allclose(pipe.log[-1][2], expected, atol=1e-5)


def test_a_pipeline_whose_scheduler_is_not_eulers_says_so():
    d: Any = pytest.importorskip("diffusers")
    from corrected import run

    with pytest.raises(ValueError, match=r"refine=8 is for Euler, not UniPC.* with target='run'"):
        run(d.UniPCMultistepScheduler, budget=6, target="flow")
    with pytest.raises(ValueError, match="unknown target 'flows'"):
        run(d.FlowMatchEulerDiscreteScheduler, budget=6, target="flows")


def test_every_stage_refined_is_corrected_still():
    assert Plan.of(GRID, target="flow").correct is not None
    assert Plan.of(GRID, correct=True).correct is None
