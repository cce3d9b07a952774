"""A pipeline with several outputs, or two rounds a stage, keeps the anchors of its plan."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoshrink import Plan, accelerate

flow: Any = pytest.importorskip("diffusers").FlowMatchEulerDiscreteScheduler
STEPS, BUDGET = 50, 10


def still(x: Tensor, sigma: float, rate: float = 1e-3) -> Tensor:
    return torch.ones_like(x) + rate * torch.sin(x + 9 * sigma)


class Pipe:
    """Steps the first scheduler, then the others, with the outputs of one call."""

    def __init__(self, *schedulers: Any, rates: tuple[float, ...] = (1e-3, 1e-3)):
        self.schedulers, self.rates = schedulers, rates
        self.scheduler, self.network, self.config = schedulers[0], nn.Identity(), {}
        self.second = schedulers[-1]
        self.calls = 0
        self.network.register_forward_pre_hook(self.count)

    def count(self, *_: Any) -> None:
        self.calls += 1

    def __call__(self) -> list[Tensor]:
        for scheduler in self.schedulers:
            scheduler.set_timesteps(STEPS)
        x = [torch.ones(1, 4), torch.ones(2, 3) * 0.3][: len(self.schedulers)]
        for i in range(len(self.scheduler.timesteps)):
            sigma = float(self.scheduler.sigmas[i])
            made = self.network([still(z, sigma, r) for z, r in zip(x, self.rates)])
            x = [
                scheduler.step(v, scheduler.timesteps[i], z, return_dict=False)[0]
                for scheduler, v, z in zip(self.schedulers, made, x)
            ]
        return x


class Twice(Pipe):
    """Two outputs, which one scheduler steps one after the other."""

    def __call__(self) -> list[Tensor]:
        self.scheduler.set_timesteps(STEPS)
        x = [torch.ones(1, 4), torch.ones(2, 3) * 0.3]
        for i, t in enumerate(self.scheduler.timesteps):
            made = self.network([still(z, float(self.scheduler.sigmas[i])) for z in x])
            for j in (0, 1):
                x[j] = self.scheduler.step(made[j], t, x[j], return_dict=False)[0]
                self.scheduler._step_index -= 1 - j
        return x


def ran(pipe: Pipe, **options: Any) -> Any:
    with accelerate(pipe, budget=BUDGET, denoisers=[pipe.network], **options) as handle:
        pipe()
    return handle


def test_one_output_goes_on_with_others():
    handle = ran(pipe := Pipe(flow(shift=3.0)))
    assert pipe.calls == BUDGET
    assert handle.report.queried == handle.plan.anchors == Plan.of(handle.plan.grid, BUDGET).slow


@pytest.mark.parametrize(
    "pipe",
    [
        Pipe(flow(shift=3.0), flow(shift=1.0)),
        Pipe(flow(shift=3.0), flow(shift=3.0)),
        Pipe(flow(shift=3.0), flow(shift=3.0), rates=(1e-3, 5.0)),
        Twice(flow(shift=3.0)),
    ],
    ids=["two grids", "one grid", "the second is fast", "one scheduler"],
)
def test_of_one_of_two_outputs_nothing_is_concluded(pipe: Pipe):
    handle = ran(pipe)
    assert pipe.calls == BUDGET == handle.report.evaluations and not handle.report.extra
    assert handle.report.queried == Plan.of(handle.plan.grid, BUDGET).anchors
    assert handle.plan.slow == () and "slowly" not in handle.report.plan


def test_two_rounds_a_stage_have_no_others():
    heun: Any = pytest.importorskip("diffusers").FlowMatchHeunDiscreteScheduler()
    handle = ran(Pipe(heun), correct=True)
    assert handle.plan.slow == () and "slowly" not in handle.report.plan
