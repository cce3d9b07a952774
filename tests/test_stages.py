"""Stages of somebody else's loop: which call is which stage, by the time it is made at."""

import pytest
import torch

from geoshrink import Plan
from geoshrink.hosts.stages import Stages

TIMES = [1000.0 - 100 * i for i in range(11)]


def stages() -> Stages:
    return Stages(Plan.of([t / 1000 for t in TIMES], 5), TIMES)


@pytest.mark.parametrize("off", [0.0, 0.09, -0.09])
def test_a_time_off_by_less_than_a_thousandth_of_the_step_is_the_stage(off):
    found = stages()
    assert [found.find(t + off) for t in TIMES[:-1]] == list(range(10)) and not found.notes


@pytest.mark.parametrize("off", [0.11, -0.11, 5.0])
def test_a_time_off_by_more_is_another_solver_s_and_all_calls_are_run(off):
    found = stages()
    assert found.find(1000.0) == 0 and found.find(900.0 + off) is None
    assert found.forced and "where 900 was due: from here on every call is run" in found.notes[0][1]


def test_a_time_in_half_precision_may_be_off_by_its_rounding():
    fine = Stages(Plan.of([1 - i / 1000 for i in range(11)], 5), [1 - i / 1000 for i in range(11)])
    near = torch.tensor(0.9990, dtype=torch.bfloat16)
    assert fine.find(1.0) == 0 and float(near) == 1.0 and fine.find(near) == 1
    assert fine.find(0.9991) is None
