"""What a report says of doubt, of regimes, of sizes and of devices, one fact at a time."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from torch import Tensor

from geoshrink import Report, Run
from geoshrink.report import Stage, size
from toy import shifted

STEPS = 24
SIGMAS = shifted(STEPS)
ANCHORS = (0, 1, 2, 3, 5, 8, 11, 15, 19, 23)
EMPTY = Report("", 0, (), (), (), (), 0, None, None)


def outputs(seed: int = 0) -> Tensor:
    """Outputs that are easy to predict, so that nothing else casts doubt on the run."""
    generator = torch.Generator().manual_seed(seed)
    start, way = torch.randn(2, 2, 5, generator=generator, dtype=torch.float64)
    return torch.stack([start + s * way for s in SIGMAS[:-1]])


def finished(values: Tensor, **options) -> Run:
    run = Run(SIGMAS, anchors=ANCHORS, **options)
    for n in range(STEPS):
        run(n, lambda n=n: values[n])
    return run


# --- doubt ----------------------------------------------------------------------------------------


def test_an_output_that_is_not_finite_makes_a_run_with_predictions_doubtful():
    values = outputs()
    assert finished(values).report.doubt is None
    values[8, 0, 0] = math.nan
    report = finished(values).report
    assert report.doubt == "an output was not finite: look at the model before the budget"
    assert report.doubt in str(report)


def test_a_run_without_predictions_is_not_doubtful_whatever_the_outputs():
    stage = Stage(0, 0, 1.0, True)
    bad = ((0, "the model's output was not finite: its history restarts"),)
    assert replace(EMPTY, stages=(stage,), reasons=bad).doubt is None
    assert replace(EMPTY, stages=(replace(stage, exact=False),), reasons=bad).doubtful


def test_other_reasons_cast_no_doubt():
    run = Run(SIGMAS, anchors=ANCHORS)
    for n in range(STEPS):
        run(n, lambda n=n: outputs()[n], regime=n >= 9)
    assert [n for n, _ in run.report.reasons] == [9] and not run.report.doubtful


def test_samples_behind_the_mask_make_a_run_doubtful():
    mask = torch.tensor([[True], [False]])
    report = finished(outputs(), mask=mask).report
    assert report.blind == 1 and str(report.doubt).startswith("quality unknown: do not trust")
    assert (1, "the mask hides 1 of the samples: they are held blindly") in report.reasons


def test_a_change_that_overflows_is_said_once_and_casts_no_doubt_on_the_outputs():
    values = outputs().float()
    values[8] = 3e38
    values[5] = -3e38
    report = finished(values).report
    said = [n for n, why in report.reasons if "overflows: it is not kept" in why]
    assert said == [5, 8, 11] and "not finite" not in str(report)


def test_the_outputs_after_one_that_is_not_finite_are_not_said_to_overflow():
    values = outputs()
    values[8] = math.inf
    assert [n for n, _ in finished(values).report.reasons] == [8]


def test_the_self_check_is_the_same_with_and_without_the_rest_of_the_report():
    torch.manual_seed(0)
    run = finished(torch.randn(STEPS, 2, 5, dtype=torch.float64))
    assert run.self_check == run.report.self_check and (run.self_check or 0) > 0.4


# --- words ----------------------------------------------------------------------------------------


def test_a_report_of_no_stages_says_that_nothing_was_accelerated():
    assert EMPTY.summary() == "not accelerated"


def test_forwards_are_said_where_there_are_more_than_evaluations():
    report = finished(outputs()).report
    assert "forwards" not in replace(report, forwards=10).summary()
    assert replace(report, forwards=20).summary().endswith("14 predicted; 20 forwards")


def test_regimes_are_told_from_first_to_last_stage():
    report = finished(outputs(), regimes=(8, 15)).report
    assert "regimes: stages 0–7, 8–14, 15–23" in str(report).splitlines()


def test_every_anchor_tells_how_many_stages_are_skipped_after_it():
    words = [line.split() for line in str(finished(outputs()).report).splitlines()[5:]]
    rows = {int(anchor): skipped for anchor, _, _, _, skipped, *_ in words}
    ends = (*ANCHORS[1:], STEPS)
    gaps = {a: end - a - 1 for a, end in zip(ANCHORS, ends)}
    assert rows == {a: str(gap) if gap else "–" for a, gap in gaps.items()}


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1_000_000, "1.0 MB"), (999_900, "999.9 kB"), (1_000_000_000, "1.0 GB")],
)
def test_a_thousand_of_a_unit_is_one_of_the_next(count, words):
    assert size(count) == words


def test_queries_that_the_plan_did_not_foresee_are_evaluations_too():
    run = Run(SIGMAS, anchors=ANCHORS)
    for n in (0, 1, 2, 3, 4, 40):
        run(n, lambda: torch.ones(2, 5))
    assert run.report.extra == (40,) and run.report.evaluations == 5


@pytest.mark.parametrize("made", [EMPTY, Stage(0, 0, 1.0, True)])
def test_reports_and_their_rows_cannot_be_changed(made):
    with pytest.raises(FrozenInstanceError):
        made.stage = 1
    assert hash(made) == hash(replace(made))


# --- devices --------------------------------------------------------------------------------------


def test_nothing_is_gathered_for_the_report_of_a_run_on_the_host(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("tensors were gathered")

    run = finished(outputs())
    monkeypatch.setattr(torch, "cat", refuse)
    assert run.report.evaluations == 10


@pytest.mark.parametrize("mask", [None, torch.tensor([[True], [False]])])
def test_tensors_without_values_are_reported_without_numbers(mask):
    values = torch.empty(STEPS, 2, 5, device="meta")
    mask = None if mask is None else mask.to("meta")
    report = finished(values, mask=mask).report
    assert report.predicted == tuple(n for n in range(STEPS) if n not in ANCHORS)
    assert report.self_check is None and report.reasons == () and report.blind == 0
    assert {s.error for s in report.stages} == {s.turning for s in report.stages} == {None}
