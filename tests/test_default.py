"""The default where cells cannot be corrected: the auto mesh, uncorrected, and it says why."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from geoshrink import Plan, Run, sample
from geoshrink.hosts import denoised
from geoshrink.hosts import odeint as ode
from toy import Toy, noise, shifted

GRID = shifted(24)
SAID = "(cells are not corrected: "
pytestmark = pytest.mark.usefixtures("one_thread")


def check_uncorrected(plan: Plan, why: str) -> None:
    """It is the plan of correct=False, and of the auto mesh by name, but for its reason."""
    assert f"{SAID}{why}" in plan.mesh and SAID in str(plan)
    bare = replace(plan, mesh="auto")
    sigmas, budget = plan.grid, plan.budget
    assert bare == Plan.of(sigmas, budget, correct=False) == Plan.of(sigmas, budget, anchors="auto")


def test_a_run_without_a_solver_or_with_a_reserve():
    check_uncorrected(Run(GRID, 8).plan, "the solver is not known; pass solver='euler'")
    check_uncorrected(Run(GRID, 8, solver="heun").plan, "the state of a solver other than Euler")
    kept = Run(GRID, 8, reserve=2, solver="euler").plan
    check_uncorrected(kept, "queries are kept in reserve")
    both = Run(GRID, 8, reserve=2, solver="ab2").plan
    check_uncorrected(both, "the state of a solver other than Euler")
    for quiet in (Run(GRID, 8, correct=False), Run(GRID, 8, anchors="auto"), Run(GRID)):
        assert SAID not in str(quiet.plan)


@pytest.mark.parametrize("solver", [None, "ab2", "heun"])
def test_functions_that_are_wrapped_for_a_solver_whose_state_is_out_of_reach(solver):
    why = "the solver is not known" if solver is None else "the state of a solver other than Euler"
    for wrapped in (
        ode.wrap(lambda t, y: y, GRID, 8, solver=solver),
        denoised.wrap(lambda x, sigma: x, GRID, 8, solver=solver),
    ):
        run = wrapped.stages.run
        check_uncorrected(run.plan, why)
        assert not run.corrects and not run.uncorrected


def test_a_second_grid_whose_noise_is_unknown():
    grids = {"a": GRID, "b": GRID[::-1]}
    plan = Plan.of(grids, 8)
    check_uncorrected(plan, "the noise levels of another σ-grid are unknown")
    assert SAID not in Plan.of(grids, 8, correct=False).mesh


def test_target_flow_corrects_the_cells_of_a_wrapped_function():
    """It refines, which is for Euler: the solver need not be named."""
    for solver in (None, "euler"):
        run = ode.wrap(lambda t, y: y, GRID, 8, target="flow", solver=solver).stages.run
        assert run.corrects and run.plan == Plan.of(run.plan.grid, 8, target="flow")


def test_a_reserve_is_spent_although_regimes_begin():
    """A regime's first anchor has no self-check, so nothing is spent on the cell behind it."""
    toy = Toy()
    _, report = sample(toy, noise(), GRID, 8, regimes=(12,), reserve=2, with_report=True)
    assert toy.calls == report.evaluations == 8 and len(report.extra) == 2


def test_a_regimes_first_anchor_has_no_angle_and_no_overflow_of_its_own():
    """What is kept of the anchor before it is not told again."""
    large = 1e200  # its square is beyond float64

    def jumps(x: torch.Tensor, sigma: float) -> torch.Tensor:
        return torch.full_like(x, large if sigma < GRID[2] else 1.0)

    anchors = (0, 1, 3, 12, 16, 20)
    _, report = sample(
        jumps, noise(), GRID, anchors=anchors, regimes=(12,), correct=True, with_report=True
    )
    assert [n for n, why in report.reasons if "overflows" in why] == [3]
    _, report = sample(Toy(), noise(), GRID, anchors=anchors, regimes=(12,), with_report=True)
    told = {row.stage: row.turning for row in report.stages if row.exact}
    assert [n for n, angle in told.items() if angle is None] == [0, 12]


@pytest.mark.parametrize("solver", ["ab2", "dpm++2m"])
def test_a_loop_of_your_own_with_another_solver_is_the_default_without(solver):
    """Was: the mesh for corrected cells, none of which was corrected."""
    run = Run(GRID, 8, solver=solver)
    assert run.plan.anchors == Plan.of(GRID, 8, correct=False).anchors and not run.corrects
    assert "the state of a solver other than Euler is out of reach" in run.plan.mesh
