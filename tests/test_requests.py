"""Requests in a serving engine: a Run and a scheduler each, one network, steps in any order."""

from __future__ import annotations

import copy
import importlib
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoshrink import Run

STEPS = (12, 20, 9, 16, 12, 24, 12, 10)
BUDGETS = (6, 8, 9, 7, 6, 10, 5, 6)  # the third queries every stage
WIDTHS = (16, 16, 24, 8, 16, 32, 16, 16)


class Network(nn.Module):
    """Counts what it is asked; its output buffer is used again at the next call."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)
        self.calls = 0
        self.buffers_of: dict[torch.Size, Tensor] = {}

    @torch.no_grad()
    def forward(self, x: Tensor, sigma: float) -> Tensor:
        self.calls += 1
        out = self.buffers_of.setdefault(x.shape, torch.empty_like(x))
        return out.copy_(torch.tanh(self.weight @ x) * (1 + sigma) + torch.sin(4 * sigma * x))


@dataclass
class Request:
    """One picture under way: its state, its scheduler, and what geoshrink holds of it."""

    network: Network
    number: int
    scheduler: Any = None
    n: int = 0
    path: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.number)
        self.x = torch.randn(2, 8, WIDTHS[self.number], generator=generator)
        self.scheduler = copy.deepcopy(self.scheduler)
        self.scheduler.set_timesteps(STEPS[self.number])
        self.sigmas = self.scheduler.sigmas.tolist()
        self.run = Run(self.sigmas, BUDGETS[self.number])

    @property
    def done(self) -> bool:
        return self.n == self.run.steps

    def step(self) -> None:
        v = self.run(self.n, lambda: self.network(self.x, self.sigmas[self.n]), self.x)
        time = self.scheduler.timesteps[self.n]
        self.x = self.scheduler.step(v, time, self.x, return_dict=False)[0]
        self.path.append(self.x)
        self.n += 1


@pytest.fixture
def scheduler() -> Any:
    pytest.importorskip("diffusers")
    diffusers: Any = importlib.import_module("diffusers")
    return diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0)


def alone(scheduler: Any) -> list[Request]:
    requests = [Request(Network(), i, scheduler) for i in range(len(STEPS))]
    for request in requests:
        while not request.done:
            request.step()
    return requests


@pytest.mark.parametrize("seed", range(3))
def test_eight_requests_do_not_mix(scheduler, seed):
    expected, network, draw = alone(scheduler), Network(), random.Random(seed)
    waiting = [Request(network, i, scheduler) for i in range(len(STEPS))]
    finished: list[Request] = []
    while waiting:
        request = draw.choice(waiting)
        request.step()
        if request.done:
            waiting.remove(request)
            finished.append(request)
    assert network.calls == sum(BUDGETS)
    for request in finished:
        twin = expected[request.number]
        assert all(torch.equal(a, b) for a, b in zip(request.path, twin.path))
        assert request.run.report == twin.run.report
        assert request.run.report.evaluations == BUDGETS[request.number]


def test_a_request_that_is_given_up_leaves_the_others_alone(scheduler):
    expected, network = alone(scheduler), Network()
    requests = [Request(network, i, scheduler) for i in range(len(STEPS))]
    for turn in range(max(STEPS)):
        for request in requests:
            if request.done or (request.number == 5 and turn > 7):
                continue
            if request.number == 0 and turn == 5:
                request.run.reset()  # as an engine does with a request that it starts again
                request.scheduler.set_timesteps(STEPS[0])
                request.n = 0
            request.step()
    for request in requests:
        if request.number not in (0, 5):
            assert torch.equal(request.x, expected[request.number].x)


def test_what_a_request_holds_is_let_go_at_its_end(scheduler):
    request = alone(scheduler)[0]
    assert not request.run._history.slots and request.run.report.bytes_held == 2 * request.x.nbytes
