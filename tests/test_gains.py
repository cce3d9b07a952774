"""The gains of planning, part by part: which stages, how large a perturbation, the fitted curve."""

import numpy as np
import pytest
import torch

from geoshrink import Grid
from geoshrink.planning.gains import (
    check_stages,
    falling,
    fitted_gains,
    gain_stages,
    heard,
    hold_cell,
    perturbation,
    remainder,
)

UNIFORM = Grid.of([1 - i / 30 for i in range(31)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_small_error_is_raised_to_16_roundings_of_the_state(dtype):
    x = torch.full((3, 4), 2.0, dtype=dtype)
    error = torch.zeros(3, 4)
    error[1, 0], error[2] = 1e-30, 1.0
    made = heard(error, x)
    least = 16 * torch.finfo(dtype).eps * 4.0  # ‖x‖ = 4
    assert made.norm(dim=1).tolist() == pytest.approx([0.0, least, max(2.0, least)], rel=1e-6)
    assert torch.equal(made[2] / made[2, 0], torch.ones(4))


def test_the_stages_to_perturb():
    assert gain_stages(UNIFORM, 1) == (2,) and gain_stages(UNIFORM, 4) == (2, 5, 12, 29)
    regimes = Grid.of([1 - i / 30 for i in range(31)], regimes=(10,))
    assert gain_stages(regimes, 4) == (2, 5, 12, 29)
    assert gain_stages(Grid.of([1 - i / 30 for i in range(31)], regimes=(11,)), 4) == (2, 5, 13, 29)
    assert gain_stages(Grid.of([1.0, 0.5, 0.0])) == ()
    assert gain_stages(Grid.of([1.0, 0.6, 0.3, 0.0])) == (2,)
    assert gain_stages(Grid.of([1.0, 0.6, 0.3, 0.0], regimes=(1, 2))) == ()
    for bad in (0, 51):
        with pytest.raises(ValueError, match=f"1 to 50, got {bad}"):
            check_stages(bad)
    for good in (1, 50):
        check_stages(good)


def test_a_typical_cell_is_a_third_of_the_way_from_the_regime_s_start():
    assert hold_cell(UNIFORM, 29) == range(19, 29) and hold_cell(UNIFORM, 2) == range(0, 2)
    regimes = Grid.of([1 - i / 30 for i in range(31)], regimes=(10,))
    assert hold_cell(regimes, 22) == range(18, 22) and hold_cell(regimes, 9) == range(6, 9)


def test_a_perturbation_is_what_holding_leaves():
    v = [torch.tensor([[float(n), 1.0]]) for n in range(30)]
    (found,) = perturbation(UNIFORM, 12, lambda m: [v[m]])
    assert found.tolist() == [[pytest.approx((1 + 2 + 3) / 30), 0.0]]


def test_the_fitted_gains_fall_and_are_1_without_a_measurement():
    stages = (2, 10, 20)
    assert fitted_gains(UNIFORM, stages, np.full((3, 2), np.nan), 0).tolist() == [1.0] * 31
    gains = np.array([[4.0, 1.0], [np.nan, 1.0], [0.0, 0.25]])
    curve = fitted_gains(UNIFORM, stages, gains, 0)
    assert curve[[2, 10, 20]] == pytest.approx([2.0, 1.0, 0.25])
    assert curve[0] == pytest.approx(2.0) and curve[30] == pytest.approx(0.25)
    early = fitted_gains(UNIFORM, stages, gains, 0, early=True)
    assert early[2] == pytest.approx(np.sqrt(8.5))


def test_the_rest_of_a_grid():
    grid = Grid.of([1 - i / 30 for i in range(31)], regimes=(5, 10, 20))
    rest = remainder(grid, 10)
    assert rest.steps == rest.given == 20 and rest.regimes == (10,)
    assert rest.tracks[0].sigmas == grid.tracks[0].sigmas[10:]


def test_neighbours_that_rise_are_averaged_until_none_does():
    assert falling([3.0, 1.0, 2.0, 0.0]) == [3.0, 1.5, 1.5, 0.0]
    assert falling([2.0, 1.0, 4.0]) == pytest.approx([7 / 3] * 3)  # the pool of two rises above 2
    assert falling([1.0, 1.0]) == [1.0, 1.0] and falling([]) == []
