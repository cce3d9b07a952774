"""Corrected cells under diffusers' schedulers: the run equals, stage by stage, that of a plain
scheduler whose skipped stages were interpolated, whatever the scheduler stores.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from corrected import ANCHORS, STEPS, Pipe, replayed, run
from geoshrink import Plan
from geoshrink.hosts.responses import solver_of
from schedulers import FLOW, ORDER_1, ORDER_2, PNDM

d: Any = pytest.importorskip("diffusers")
pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)

CORRECTED = {
    name: make
    for name, make in (ORDER_1 | {"flow": FLOW["flow"], "flow, shift": FLOW["flow, shift"]}).items()
    if name not in ("IPNDM", "EDM Euler", "EDM DPM++")
} | {
    "UniPC, flow": lambda: d.UniPCMultistepScheduler(
        use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=3.0
    ),
    "flow, stochastic": FLOW["flow, stochastic"],
}
LEFT = {
    **{name: (make, "two outputs a stage") for name, make in ORDER_2.items()},
    **{name: (make, "") for name, make in PNDM.items()},
    "EDM Euler": (ORDER_1["EDM Euler"], "say about the data"),
    "EDM DPM++": (ORDER_1["EDM DPM++"], "say about the data"),
    "IPNDM": (ORDER_1["IPNDM"], "say about the data"),
    "clipping": (lambda: d.DDIMScheduler(clip_sample=True), "clip_sample"),
    "thresholding": (
        lambda: d.DPMSolverMultistepScheduler(thresholding=True),
        "thresholding",
    ),
}


@pytest.mark.parametrize("name", CORRECTED)
def test_a_corrected_run_is_the_run_of_interpolated_cells(name):
    """The state at every anchor and at the stages after it, which show what the scheduler stored:
    all exact stages up to the last cell, which nothing corrects.
    """
    make = CORRECTED[name]
    pipe, report = run(make, anchors=ANCHORS, correct=True)
    assert not report.reasons
    states = replayed(make, pipe, [row.sigma for row in report.stages])
    for n in (*ANCHORS, *range(ANCHORS[-1], STEPS)):
        scale = states[n].abs().max()
        torch.testing.assert_close(pipe.log[n][1] / scale, states[n] / scale, rtol=0, atol=1e-6)
    assert all(row.correction for row in report.stages if row.stage in ANCHORS[3:])
    plain, _ = run(make, anchors=ANCHORS)
    assert (plain.log[-1][2] - pipe.log[-1][2]).abs().max() > 1e-4 * states[-1].abs().max()


@pytest.mark.parametrize("name", LEFT)
def test_what_cannot_be_corrected_is_left_and_said(name):
    make, why = LEFT[name]
    plain, _ = run(make, anchors=ANCHORS)
    pipe, report = run(make, anchors=ANCHORS, correct=True)
    said = [reason for _, reason in report.reasons if "not corrected" in reason]
    assert said and why in said[0]
    pairs = zip(pipe.log, plain.log, strict=True)
    assert all(torch.equal(a, b) for one, other in pairs for a, b in zip(one, other))


@pytest.mark.parametrize("name", ["DDIM", "UniPC", "flow", "Euler ancestral"])
def test_a_full_budget_is_the_plain_run(name):
    plain = Pipe(CORRECTED[name])()
    pipe, report = run(CORRECTED[name], budget=STEPS, correct=True)
    assert not report.predicted and not report.reasons
    assert torch.equal(pipe.log[-1][2], plain)


@pytest.mark.parametrize("change", ["new", "in place"])
def test_a_cell_in_which_the_state_was_changed_is_not_corrected(change):
    """As an inpainting pipeline does, or anybody who writes to the latents."""

    def between(n: int, x: Tensor) -> Tensor:
        if n != 5:
            return x
        return x * 1.5 if change == "new" else x.mul_(1.5)

    pipe, report = run(CORRECTED["flow"], between, anchors=ANCHORS, correct=True)
    left = [(n, reason) for n, reason in report.reasons if "not corrected" in reason]
    assert left == [
        (7, "the cell before is not corrected: the state was changed between the steps")
    ]
    moved = {row.stage: row.correction for row in report.stages if row.exact}
    assert moved[7] is None and moved[4] and moved[11]
    assert torch.equal(pipe.log[7][1], pipe.log[6][2])  # the sample is what the step before made


def test_trying_a_scheduler_out_draws_from_nobodys_generator():
    """SDE steps of a run that corrects use the noise that the plain run uses."""
    pipe, _ = run(CORRECTED["flow, stochastic"], anchors=ANCHORS, correct=True)
    plain, _ = run(CORRECTED["flow, stochastic"], anchors=ANCHORS)
    assert all(torch.equal(pipe.log[n][2], plain.log[n][2]) for n in range(ANCHORS[3]))


@pytest.mark.parametrize("name", ["Euler", "DDIM", "DPM++", "UniPC", "flow, shift"])
def test_a_run_that_begins_in_the_middle_of_the_grid(name):
    """Image-to-image: the response and the noise levels are those of its own stages."""
    pipe, report = run(CORRECTED[name], anchors=ANCHORS, correct=True, first=9)
    assert not report.reasons
    states = replayed(CORRECTED[name], pipe, [row.sigma for row in report.stages])
    for n in ANCHORS:
        scale = states[n].abs().max()
        torch.testing.assert_close(pipe.log[n][1] / scale, states[n] / scale, rtol=0, atol=1e-6)
    check_moves(name, pipe, first=9)


@pytest.mark.parametrize("name", ["Euler", "Euler, v", "DDIM", "DPM++", "UniPC", "flow, shift"])
def test_the_data_prediction_moves_by_k_in_a_schedulers_own_levels(name):
    pipe, _ = run(CORRECTED[name], anchors=ANCHORS, correct=0.4)
    check_moves(name, pipe, gain=0.4)


def check_moves(name: str, pipe: Any, first: int = 0, gain: float = 0.5) -> None:
    """x̂₀ by the scheduler's formulas, before and after the correction of each anchor."""
    scheduler = CORRECTED[name]()
    scheduler.set_timesteps(STEPS + first)
    for i, n in enumerate(ANCHORS[3:], 3):
        raw, (output, x, _) = pipe.net.outputs[i], pipe.log[n]
        before = pipe.log[n - 1][2]
        alpha, sigma = levels(name, scheduler, first + n)
        d = x - before

        def data(x: Tensor, v: Tensor, a: float = alpha, s: float = sigma) -> Tensor:
            if name.startswith("flow"):
                return x - s * v
            if name.endswith(", v"):
                r = (a**2 + s**2) ** 0.5
                return a / r**2 * x - s / r * v
            return (x - s * v) / a

        change = data(x, output) - data(before, raw)
        expected = gain / (alpha + sigma) * d
        torch.testing.assert_close(change, expected, rtol=1e-3, atol=1e-6)


def levels(name: str, scheduler: Any, n: int) -> tuple[float, float]:
    """(α, σ) of x at stage n, from the scheduler's tables."""
    if name == "DDIM":
        kept = float(scheduler.alphas_cumprod[int(scheduler.timesteps[n])])
        return kept**0.5, (1 - kept) ** 0.5
    sigma = float(scheduler.sigmas[n])
    if name.startswith("flow"):
        return 1 - sigma, sigma
    if name.startswith("Euler"):
        return 1.0, sigma
    return 1 / (1 + sigma**2) ** 0.5, sigma / (1 + sigma**2) ** 0.5


def test_what_a_step_is_given_besides_may_leave_a_cell_uncorrected():
    for key, value, why in (
        ("s_churn", 5.0, "adds noise (s_churn)"),
        ("per_token_timesteps", torch.zeros(2, 4), "is given per_token_timesteps"),
    ):
        kind = "EulerDiscreteScheduler" if key == "s_churn" else "FlowMatchEulerDiscreteScheduler"
        scheduler = getattr(d, kind)()
        scheduler.set_timesteps(STEPS)
        plan = Plan.of([1 - i / STEPS for i in range(STEPS + 1)], anchors=ANCHORS, correct=True)
        if key == "s_churn":
            plan = Plan.of(
                scheduler.sigmas.double().tolist(),
                anchors=ANCHORS,
                correct=True,
                prediction="epsilon",
                alphas="ve",
            )
        with pytest.raises(ValueError, match=re.escape(why)):
            solver_of(scheduler, scheduler, plan, 0, {key: value})


def test_options_that_say_nothing_are_the_default():
    """refine=None, as in Plan.of; UniPC is tried out, which needs a copy from before its steps."""
    pipe, report = run(CORRECTED["UniPC"], budget=6)
    same, again = run(CORRECTED["UniPC"], budget=6, refine=None, correct=None, rule=None)
    assert again == report and not report.reasons and "corrected (half" in report.plan
    assert torch.equal(same.log[-1][2], pipe.log[-1][2])


@pytest.mark.parametrize("name", ["flow", "Euler", "DDIM", "UniPC"])
@pytest.mark.parametrize("budget", [4, 5, 7, 13])
def test_a_host_that_changes_the_state_behind_every_step_has_the_default_without_correction(
    name, budget
):
    """As inpainting does: nothing would be corrected, and the mesh is for corrected cells."""

    def between(n: int, x: Tensor) -> Tensor:
        return x + 0.01 * n

    before, plain = run(CORRECTED[name], between, budget=budget, correct=False)
    pipe, report = run(CORRECTED[name], between, budget=budget)
    assert "cells are not corrected: the state was changed between the steps" in report.plan
    assert report.evaluations == budget and "clock" not in report.plan
    if 1 in report.queried:
        assert report.queried == plain.queried and not report.reasons
        assert all(torch.equal(a[2], b[2]) for a, b in zip(pipe.log, before.log, strict=True))
    _, asked = run(CORRECTED[name], between, budget=budget, correct=True)
    assert asked.plan.count("corrected (half") == 1
    assert all("the cell before is not corrected" in why for _, why in asked.reasons)
