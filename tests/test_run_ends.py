"""Where one run ends and the next begins, and what the report is read again for."""

import pytest
import torch
from torch import Tensor

from geoshrink import Run
from toy import shifted

STEPS = 24
SIGMAS = shifted(STEPS)
ANCHORS = (0, 1, 2, 3, 5, 8, 11, 15, 19, 23)


def outputs(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(STEPS, 2, 5, generator=generator, dtype=torch.float64)


def follow(run: Run, values: Tensor, stages=range(STEPS)) -> list[Tensor]:
    return [run(n, lambda n=n: values[n]) for n in stages]


def finished() -> Run:
    run = Run(SIGMAS, anchors=ANCHORS)
    follow(run, outputs())
    return run


# --- a run after a run ----------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 1, STEPS - 2])
def test_any_stage_but_the_last_begins_a_new_run_after_a_finished_one(stage):
    run = finished()
    run(stage, lambda: outputs()[stage])
    assert run.report.evaluations == 1


@pytest.mark.parametrize("stage", [-1, STEPS - 1, STEPS])
def test_the_last_stage_and_stages_off_the_grid_belong_to_the_finished_run(stage):
    run = finished()
    run(stage, lambda: outputs()[0])
    assert run.report.queried == ANCHORS and run.report.extra == (stage,)


def test_a_finished_run_has_nothing_to_predict_from():
    with pytest.raises(RuntimeError, match="nothing was observed before it"):
        finished().predict(4)


def test_a_stage_of_zero_length_holds_the_latest_exact_output():
    for stage in (1, 7, 20):  # at an anchor, and inside cells
        sigmas = [*SIGMAS[: stage + 1], *SIGMAS[stage:]]
        values = torch.cat([outputs()[: stage + 1], outputs()[stage:]])
        run = Run(sigmas, anchors=ANCHORS, rule="linear")
        made = follow(run, values, range(stage + 2))
        latest = max(a for a in ANCHORS if a < stage)
        assert torch.equal(made[stage], outputs()[latest])


# --- the report, read again -----------------------------------------------------------------------


def test_the_report_of_the_same_run_is_made_once():
    run = finished()
    assert run.report is run.report


def test_a_later_run_of_the_same_plan_has_a_report_of_its_own():
    run = finished()
    first = run.report
    follow(run, outputs(1))
    assert run.report.self_check != first.self_check


def test_the_report_is_made_again_when_the_run_has_gone_on():
    run = Run(SIGMAS, anchors=ANCHORS)
    follow(run, outputs(), range(9))
    assert run.report.evaluations == 6
    follow(run, outputs(), range(9, STEPS))
    assert run.report.evaluations == 10


def test_the_self_check_of_a_run_is_that_of_its_report():
    run = finished()
    assert run.self_check == run.report.self_check and (run.self_check or 0) > 0


# --- what a call is given and gives -------------------------------------------------------------


def test_a_stage_off_the_grid_that_is_observed_unasked_is_not_called_one_of_zero_length():
    run = Run(SIGMAS, anchors=ANCHORS)
    for stage in (-1, STEPS):
        run.observe(stage, outputs()[0])
    assert run.report.extra == (-1, STEPS) and run.report.reasons == ()


def test_the_first_output_of_a_refined_run_is_the_model_s_own_object():
    pair = tuple(outputs()[0])
    assert Run(SIGMAS, 8, refine=4)(0, lambda: pair) is pair


def test_an_unknown_option_is_told_those_there_are():
    with pytest.raises(TypeError, match="unknown option 'bugdet'; the options are speedup, targ"):
        Run(SIGMAS, bugdet=8)


# --- the budget beside a reserve ------------------------------------------------------------------


def test_a_reserve_leaves_two_of_the_budget_to_be_planned():
    run = Run(SIGMAS, 4, reserve=2, anchors="uniform")
    assert run.plan.budget == 2 and run.reserve == 2
    with pytest.raises(ValueError, match="reserve=2 leaves 1 of a budget of 3 to be planned"):
        Run(SIGMAS, 3, reserve=2, anchors="uniform")


def test_a_reserve_beside_explicit_anchors_is_on_top_of_them():
    run = Run(SIGMAS, anchors=ANCHORS, reserve=2)
    follow(run, outputs())
    assert run.plan.anchors == run.report.queried == ANCHORS and len(run.report.extra) == 2
