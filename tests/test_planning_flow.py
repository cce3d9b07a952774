"""Refined plans: equal to the refined grid's own run, and planned for the exact flow."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import geoshrink
from geoshrink import Grid, Plan, Profile, Run, sample
from geoshrink.history.refinement import refined_grid, refined_plan
from geoshrink.planning.cells import Cells
from geoshrink.planning.gains import gain_stages
from geoshrink.planning.planner import planner_of
from geoshrink.planning.runs import FULL
from geoshrink.planning.space import View, between, gram, weights_of
from geoshrink.planning.tournament import MOST, converged, decibels
from geoshrink.solvers import SOLVERS
from toy import SIZE, Toy, noise, shifted

T, F64 = 20, torch.float64
ANCHORS = (0, 2, 5, 6, 11, 19)


pytestmark = pytest.mark.usefixtures("one_thread")


GRIDS = {
    "flow": Grid.of(shifted(T)),
    "epsilon": Grid.of([0.99 * s for s in shifted(T)], prediction="epsilon", alphas="vp"),
    "sample": Grid.of(shifted(T), prediction="sample", alphas="flow"),
}


@pytest.fixture(scope="module")
def made() -> Profile:
    return geoshrink.profile(
        Toy(), noise(8), shifted(T), budgets=[6, 10], target="flow", quiet=True
    )


# --- a refined run ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GRIDS)
@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("rule", ["time", "signed chordal", "hold"])
def test_a_refined_plan_is_the_run_on_the_refined_grid(kind, space, rule):
    coefficients = [None if n % 3 else 0.1 * (n % 7) for n in range(8 * T)]
    for some in (None, coefficients):
        plan = Plan.of(
            GRIDS[kind], anchors=ANCHORS, rule=rule, space=space, refine=8, coefficients=some
        )
        toy = Toy()
        wanted = sample(toy, noise(), plan=refined_plan(plan), dtype=F64)
        assert refined_plan(plan).steps == 8 * T and toy.calls == len(ANCHORS)
        leaping = sample(Toy(), noise(), plan=plan, dtype=F64)
        states: dict[int, torch.Tensor] = {}
        staged = sample(Toy(), noise(), plan=plan, dtype=F64, callback=states.__setitem__)
        torch.testing.assert_close(leaping, wanted, rtol=0, atol=1e-11)
        torch.testing.assert_close(staged, wanted, rtol=0, atol=1e-11)
        assert list(states) == list(range(T))


def test_your_own_loop_receives_the_average_at_anchors_too():
    sigmas, toy, x = shifted(T), Toy(), noise()
    run = Run(sigmas, anchors=ANCHORS, rule="time", refine=8, dtype=F64)
    for n in range(run.steps):
        v = run(n, lambda x=x, n=n: toy(x, sigmas[n]), x)
        x = x + (sigmas[n + 1] - sigmas[n]) * v
    wanted = sample(Toy(), noise(), sigmas, anchors=ANCHORS, rule="time", refine=8, dtype=F64)
    torch.testing.assert_close(x, wanted, rtol=0, atol=1e-12)
    assert run.report.queried == ANCHORS and len(run.report.predicted) == T - len(ANCHORS)
    assert "refined 8 times" in run.report.plan and not run.report.reasons
    assert run.report.bytes_held == 2 * x.nbytes


def test_the_first_anchor_is_held_so_its_average_is_the_output_itself():
    run, output = Run(shifted(T), 6, refine=8), noise()
    assert run.queries(0) and run.observe(0, output) is output
    assert run.queries(1) and run.observe(1, 2 * output) is not output


def test_several_slots_regimes_and_stages_of_no_length():
    grids = (shifted(T), [1 - i / T for i in range(T + 1)])
    grids[1][8] = grids[1][7]
    first, second = Toy(0), Toy(3)

    def both(x, sigma):
        return first(x[0], sigma[0]), second(x[1], sigma[1]) + 0.1 * x[0]

    x = noise(4, 1), noise(4, 2)
    for space in ("output", "data"):
        plan = Plan.of(
            Grid.of(grids, data=0.0, regimes=(5,)), anchors=ANCHORS, space=space, refine=4
        )
        made = sample(both, x, plan=plan, dtype=F64)
        wanted = sample(both, x, plan=refined_plan(plan), dtype=F64)
        for a, b in zip(made, wanted):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_a_refined_line_through_two_outputs_tends_to_adams_bashforth():
    """And a plan that queries every stage is not the plain run any more."""
    goal, off = sample(Toy(), noise(), shifted(T), solver="ab2"), []
    for times in (16, 32):
        toy, plan = Toy(), Plan.of(shifted(T), rule="linear", refine=times)
        off.append(float((sample(toy, noise(), plan=plan) - goal).norm()))
        assert not plan.exact and toy.calls == T
    plain = float((sample(Toy(), noise(), shifted(T)) - goal).norm())
    assert off[0] < plain / 8 and off[1] == pytest.approx(off[0] / 2, rel=0.1)


def test_bad_refinement_is_quoted():
    for bad in (0, 65, 1.5, True, "8"):
        with pytest.raises(ValueError, match=f"refine is how many steps .* got {bad!r}"):
            Plan.of(shifted(T), 6, refine=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="refine=8 is for Euler; with solver='ab2'"):
        sample(Toy(), noise(), shifted(T), 6, refine=8, solver="ab2")
    with pytest.raises(ValueError, match="v outputs needs the state: give space='data'"):
        Plan.of(shifted(T), 6, refine=8, prediction="v", alphas="flow")
    with pytest.raises(ValueError, match="20 coefficients for 160 stages"):
        Plan.of(shifted(T), 6, refine=8, coefficients=[None] * T)


def test_refined_plans_travel_as_json():
    plan = Plan.of(shifted(T), 6, refine=8, coefficients=[None, 0.5] * (4 * T))
    again = Plan.from_json(plan.to_json())
    assert again == plan and again.refine == 8 and str(again).endswith("refined 8 times)")
    old = plan.to_json().replace(', "refine": 8', "").replace("[null, 0.5", "[0.5, 0.5")
    with pytest.raises(ValueError, match="160 coefficients for 20 stages"):
        Plan.from_json(old)


# --- planning for the flow --------------------------------------------------------------------


def test_interpolation_is_exact_for_cubics_and_straight_beyond_the_ends():
    points = shifted(9)[:-1]
    times = [0.97, 0.8, 0.5, 0.3]
    cubic = torch.tensor([s**3 - 2 * s for s in points], dtype=F64)
    found = between(points, times) @ cubic
    torch.testing.assert_close(found, torch.tensor([s**3 - 2 * s for s in times], dtype=F64))
    line = between(points, [0.0]) @ torch.tensor(points, dtype=F64)
    assert float(line) == pytest.approx(0.0, abs=1e-12)
    doubled = between([1.0, 0.5, 0.5, 0.2], [0.6])
    assert doubled.isfinite().all() and float(doubled.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("rule", ["time", "linear", "hold"])
def test_a_cell_costs_what_a_refined_run_is_off_from_the_flow(space, rule):
    """Outputs (or data predictions) that are a function of σ alone, so cells do not interact."""
    grid = GRIDS["flow"]
    generator = torch.Generator().manual_seed(4)
    a, b, c = torch.randn(3, 3, SIZE, generator=generator, dtype=F64)

    def z(s: float) -> torch.Tensor:
        return a + b * math.sin(3 * s) + c * s**2

    def velocity(x: torch.Tensor, s: float) -> torch.Tensor:
        return z(s) if space == "output" else (x - z(s)) / s

    x, outputs = noise(3), []

    def noting(x: torch.Tensor, s: float) -> torch.Tensor:
        outputs.append(velocity(x, s))
        return outputs[-1]

    sample(noting, x, grid)
    view = View.of(grid.tracks[0], gram([x, *outputs]), space, 0, T, parts=1)
    plan = Plan.of(grid, anchors=ANCHORS, rule=rule, space=space, refine=32)
    states = [x]
    sample(velocity, x, plan=plan, dtype=F64, callback=lambda n, x: states.append(x))
    fine, exact = refined_grid(grid, 40), [x]
    sample(velocity, x, fine, solver="ab2", callback=lambda n, x: exact.append(x))
    off = [s - e for s, e in zip(states, exact[::40])]
    sigmas = grid.tracks[0].sigmas
    ones = torch.ones(T + 1, dtype=F64)
    costs, errors = [], []
    for place, (k, end) in enumerate(pairwise(ANCHORS)):
        shrink = 1.0 if space == "output" else sigmas[end] / sigmas[k]
        errors.append(float((off[end] - shrink * off[k]).square().sum(1).mean()))
        cell = Cells([view], [ones], ANCHORS, place).costs(rule)
        costs.append(float(cell[max(place - 2, 0), max(place - 1, 0), 0]))
    for cost, error in zip(costs, errors):
        assert cost == pytest.approx(error, rel=0.1, abs=0.03 * max(errors))


def test_plans_for_the_flow_are_closer_to_it_than_the_full_run(made):
    x = noise(16, seed=9)
    goal = converged(Toy(), x, made.grid, 16)
    full = float(decibels(sample(Toy(), x, made.grid), goal).mean())
    plan = made.plan(10, target="flow")
    assert plan.refine == 8 and plan.budget == 10 and "to the exact flow" in plan.mesh
    found = float(decibels(sample(Toy(), x, plan=plan), goal).mean())
    assert found > full + 1
    assert found > float(decibels(sample(Toy(), x, plan=made.plan(10)), goal).mean()) + 1
    (whole,) = [t for t in made.trials if t.recipe == FULL]
    assert whole.mean == pytest.approx(full, abs=6)  # of eight other samples
    assert "the full run of 20 calls" in str(made.curve([6, 10], target="flow"))


def test_the_flow_has_trials_of_its_own(made, tmp_path):
    assert made.tried("flow") == {6, 10} and made.tried("run") == set()
    assert made.predict(10, "flow").how == "measured"
    assert made.predict(8, "flow").how == "interpolated"
    with pytest.raises(ValueError, match="no real runs to predict from"):
        made.predict(10)
    both = made.measure(Toy(), noise(8), [10], quiet=True)
    assert both.tried("run") == {10} and both.tried("flow") == {6, 10}
    assert both.plan(10).refine == 1 and both.plan(10, target="flow") == made.plan(
        10, target="flow"
    )
    assert made.plan(20, target="flow").budget == 20 and not made.plan(20, target="flow").exact
    both.save(tmp_path / "both.json")
    assert Profile.load(tmp_path / "both.json").trials == both.trials
    assert "10 (run); 6, 10 (flow)" in str(both)


def test_what_the_flow_costs_is_said_before(capsys):
    toy = Toy()
    geoshrink.profile(toy, noise(), shifted(T), budgets=[6], target="flow")
    calls = int(capsys.readouterr().err.removeprefix("profiling: at most ").split()[0])
    stages = sum(T - n for n in gain_stages(GRIDS["flow"]))
    assert calls == T + stages + 4 * T + 6 * MOST
    assert calls - 6 * 8 <= toy.calls <= calls  # of equal plans only one is run


def test_calibrated_cells_get_a_coefficient_for_every_refined_stage(made):
    plan = planner_of(made, 8).named("calibrated", 6)
    assert plan is not None and plan.coefficients is not None
    assert len(plan.coefficients) == 8 * T
    second = plan.anchors[1]
    assert plan.coefficients[8 * second] is None or second + 1 in plan.anchors
    assert all(c is not None for c in plan.coefficients[8 * second + 1 :])
    goal = converged(Toy(), noise(8), made.grid, 8)
    calibrated = decibels(sample(Toy(), noise(8), plan=plan), goal).mean()
    held = replace(plan, coefficients=None)
    assert calibrated > decibels(sample(Toy(), noise(8), plan=held), goal).mean()


def test_bad_targets_are_quoted(made):
    with pytest.raises(ValueError, match="unknown target 'exact'"):
        made.plan(10, target="exact")
    with pytest.raises(ValueError, match="refine=8 is for target='flow'"):
        made.plan(10, refine=8)
    with pytest.raises(ValueError, match="refine is a number from 2 to 64, got 1"):
        made.plan(10, target="flow", refine=1)
    with pytest.raises(ValueError, match="unknown target 'x'"):
        geoshrink.profile(Toy(), noise(), shifted(T), target="x", quiet=True)
    with pytest.raises(ValueError, match=r"target='flow' refines Euler; .* solver='ab2'"):
        geoshrink.profile(Toy(), noise(), shifted(T), target="flow", solver="ab2", quiet=True)


# --- other solvers ----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["euler", "ab2", "dpm++2m"])
@pytest.mark.parametrize("kind", GRIDS)
def test_the_weights_are_what_the_solver_does_with_an_error(solver, kind):
    track = GRIDS[kind].tracks[0]
    weights = weights_of(track, "output", solver)
    for n in (0, 4, 11):
        plain, moved = SOLVERS[solver](track), SOLVERS[solver](track)
        x = y = noise(1)
        for m in range(T):
            v = noise(1, seed=m)
            x, y = plain.step(m, x, v), moved.step(m, y, v + (m == n))
            change = torch.full_like(x, float(weights[m + 1, n]))
            torch.testing.assert_close(y - x, change, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("solver", ["ab2", "dpm++2m"])
def test_plans_are_made_for_the_solver_that_was_profiled(solver):
    toy = Toy()
    found = geoshrink.profile(toy, noise(8), shifted(T), solver=solver, quiet=True)
    assert toy.calls <= 10 * T and found.solver == solver and f", {solver}," in str(found)
    x = noise(16, seed=9)
    full = sample(Toy(), x, found.grid, solver=solver)
    plan = found.plan(8)
    assert f"with {solver}" in plan.mesh
    planned = decibels(sample(Toy(), x, plan=plan, solver=solver), full).mean()
    default = decibels(sample(Toy(), x, found.grid, 8, solver=solver), full).mean()
    assert planned > default
    with pytest.raises(ValueError, match="plans are made for euler, ab2, dpm"):
        geoshrink.profile(toy, noise(), shifted(T), solver="heun", quiet=True)
