"""Corrected cells where they are easily wrong: refined hosts, grids that are not the scheduler's
own σ, outputs that point to the data, schedulers that were changed by hand or cannot be copied.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from corrected import ANCHORS, Net, Pipe, replayed, run, start
from geoshrink import Run, accelerate, sample
from schedulers import DDIM, vp

d: Any = pytest.importorskip("diffusers")
pytestmark = pytest.mark.filterwarnings("ignore")
SIGMAS = [1 - i / 10 for i in range(11)]


def off(make: Any) -> float:
    """How far a corrected run is from the run of interpolated cells, at the anchors."""
    pipe, report = run(make, anchors=ANCHORS, correct=True)
    if any("not corrected" in why for _, why in report.reasons):
        return 0.0
    states = replayed(make, pipe, [row.sigma for row in report.stages])
    return max(float((pipe.log[n][1] - states[n]).norm() / states[n].norm()) for n in ANCHORS)


@pytest.mark.parametrize("steps, anchors", [(14, ANCHORS), (60, [0, 1, 2, 5, 9])])
def test_a_refined_host_is_corrected_as_sample_is(steps, anchors, monkeypatch):
    monkeypatch.setattr("corrected.STEPS", steps)
    pipe, _ = run(d.FlowMatchEulerDiscreteScheduler, anchors=anchors, correct=True, refine=3)
    scheduler, net = d.FlowMatchEulerDiscreteScheduler(), Net()
    scheduler.set_timesteps(steps)
    times = dict(zip(scheduler.sigmas.double().tolist(), scheduler.timesteps))
    expected = sample(
        lambda x, s: net(x, times[s]).detach(),
        start(scheduler),
        scheduler.sigmas.double().tolist(),
        anchors=anchors,
        correct=True,
        refine=3,
    )
    assert torch.allclose(pipe.log[-1][2], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["log-linear", "cut timesteps"])
def test_euler_on_a_grid_that_is_not_its_own(name):
    """There are not as many σ as timesteps and one: the plan is made in τ, steps are in σ."""
    if name == "log-linear":
        assert off(vp("EulerDiscreteScheduler", interpolation_type="log_linear")) < 1e-5
        return

    class Cut(d.EulerDiscreteScheduler):
        def set_timesteps(self, *args: Any, **kwargs: Any) -> None:
            super().set_timesteps(20)
            self.timesteps = self.timesteps[6:]

    Cut.__name__ = "EulerDiscreteScheduler"
    assert off(Cut) < 1e-5


def test_a_velocity_that_points_to_the_data():
    """x̂₀ = x + σ·v there, and it moves by K·d all the same."""
    pipe, report = run(d.MiniMaxH3Scheduler, anchors=[0, 1, 2, 4, 7], correct=0.4)
    if any("not corrected" in why for _, why in report.reasons):
        return
    scheduler = d.MiniMaxH3Scheduler()
    scheduler.set_timesteps(14)
    output, x, _ = pipe.log[4]
    sigma, before = float(scheduler.sigmas[4]), pipe.log[3][2]
    change = (x + sigma * output) - (before + sigma * pipe.net.outputs[3])
    assert torch.allclose(change / (x - before), torch.tensor(0.4).double(), atol=1e-3)


def test_outputs_with_a_learned_variance():
    class Wide(Net):
        def forward(self, x: Tensor, t: Any) -> Tensor:
            return torch.cat([super().forward(x, t)] * 2, 1)

    pipe = Pipe(vp("DPMSolverMultistepScheduler", variance_type="learned_range"))
    pipe.net = Wide()
    with accelerate(pipe, denoisers=["net"], anchors=ANCHORS, correct=True):
        assert pipe().isfinite().all()


def test_a_scheduler_that_was_changed_by_hand_has_a_response_of_its_own():
    plain = vp("UniPCMultistepScheduler")

    def changed() -> Any:
        scheduler = plain()
        scheduler.disable_corrector = list(range(20))
        return scheduler

    assert off(plain) < 1e-6 and off(changed) < 1e-6


def test_a_scheduler_that_cannot_be_copied():
    def make() -> Any:
        scheduler = vp("DDIMScheduler", **DDIM)()
        scheduler.lock = threading.Lock()
        return scheduler

    pipe = Pipe(make)
    for budget in (6, 14):
        with accelerate(pipe, denoisers=["net"], budget=budget, correct=True):
            assert pipe().isfinite().all()


@pytest.mark.parametrize("name", ["DDIMScheduler", "DPMSolverMultistepScheduler"])
def test_trying_a_scheduler_out_does_not_run_somebodys_wrapper_of_step(name):
    """In a loop of one's own: the wrapper steps the real scheduler."""

    class Host:
        def __init__(self) -> None:
            self.scheduler, self.net = vp(name, **(DDIM if name[:4] == "DDIM" else {}))(), Net()

    host, calls = Host(), []
    own = host.scheduler.step

    @functools.wraps(own)
    def step(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return own(*args, **kwargs)

    host.scheduler.step = step
    with accelerate(host, denoisers=["net"], anchors=ANCHORS, correct=True):
        host.scheduler.set_timesteps(14)
        x = start(host.scheduler)
        with torch.no_grad():
            for t in host.scheduler.timesteps:
                x = host.scheduler.step(host.net(x, t), t, x)[0]
    assert len(calls) == 14


@pytest.mark.parametrize("gain", [0.0, {}])
def test_what_is_false_is_a_gain_too(gain):
    _, report = run(vp("DDIMScheduler", **DDIM), anchors=ANCHORS, correct=gain)
    assert not report.reasons and report.stages[4].correction


def test_in_inference_mode_another_tensor_is_seen():
    """It counts no writes, so that those in place are not seen there."""

    def between(n: int, x: Tensor) -> Tensor:
        return torch.where(torch.arange(4)[:, None] < 2, 1.0, x)

    make = d.FlowMatchEulerDiscreteScheduler
    with torch.inference_mode():
        pipe, report = run(make, between, anchors=ANCHORS, correct=True)
        same, plain = run(make, anchors=ANCHORS, correct=True)
    assert bool((pipe.log[7][1][:, :, :2] == 1).all()) and report.reasons
    assert not plain.reasons and plain.stages[4].correction
    assert torch.equal(same.log[-1][2], run(make, anchors=ANCHORS, correct=True)[0].log[-1][2])


def test_the_step_that_somebody_clips_is_not_linear():
    def make() -> Any:
        scheduler = vp("DDIMScheduler", **DDIM)()
        own = scheduler.step

        @functools.wraps(own)
        def step(*args: Any, **kwargs: Any) -> Any:
            return (own(*args, **kwargs)[0].clamp(-0.6, 0.6),)

        scheduler.step = step
        return scheduler

    pipe, report = run(make, anchors=ANCHORS, correct=True)
    assert all(x.abs().max() <= 0.6 for _, x, _ in pipe.log[1:]) and report.reasons


def test_a_state_that_does_not_mirror_the_outputs_is_an_error_that_says_so():
    run = Run(SIGMAS, anchors=[0, 1, 3], correct=True, solver="euler")
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="mirror"):
        for n in range(4):
            run.with_state(n, lambda: (x, 2 * x), x)
