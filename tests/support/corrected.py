"""A loop over a scheduler that logs its steps, and the same with interpolated cells."""

from __future__ import annotations

import functools
import inspect
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from geoshrink import Report, accelerate
from schedulers import Make

STEPS, ANCHORS = 14, [0, 1, 2, 4, 7, 11]


class Net(nn.Module):
    """Not linear, so that a prediction differs from an output."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
        self.weight, self.outputs = nn.Parameter(weight.double() / 3), []

    def forward(self, x: Tensor, t: Any) -> Tensor:
        out = torch.tanh(x @ self.weight) * (1 + float(t) / 1000) + x / (2 + x.std())
        self.outputs.append(out.detach())
        return out


class Pipe:
    """A loop over a scheduler, which logs what the scheduler's own step is given and returns."""

    def __init__(self, make: Make, between: Any = lambda n, x: x, first: int = 0):
        self.net, self.scheduler, self.between, self.first = Net(), make(), between, first
        self.log: list[tuple[Tensor, Tensor, Tensor]] = []

    def __call__(self) -> Tensor:
        times = times_of(self.scheduler, self.first)
        x = start(self.scheduler)
        more = noise_for(self.scheduler)
        with torch.no_grad():
            for n, t in enumerate(times):
                x = self.scheduler.step(self.net(x, t), t, x, **more)[0]
                x = self.between(n, x)
        return x


def times_of(scheduler: Any, first: int) -> Any:
    """All timesteps, or those from some stage on, as image-to-image has them."""
    scheduler.set_timesteps(STEPS + first)
    if first and hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(first)
    return scheduler.timesteps[first:]


def start(scheduler: Any) -> Tensor:
    noise = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)).double()
    return noise * getattr(scheduler, "init_noise_sigma", 1.0)


def noise_for(scheduler: Any) -> dict[str, Any]:
    """The generator that step takes; torch's own is seeded for one that takes none."""
    torch.manual_seed(3)
    takes = "generator" in inspect.signature(scheduler.step).parameters
    return {"generator": torch.Generator().manual_seed(5)} if takes else {}


def run(
    make: Make, between: Any = lambda n, x: x, first: int = 0, **options: Any
) -> tuple[Pipe, Report]:
    pipe = Pipe(make, between, first)
    kind = type(pipe.scheduler)
    own = kind.step

    @functools.wraps(own)
    def step(self, model_output, timestep, sample, *args, **kwargs):
        result = own(self, model_output, timestep, sample, *args, **kwargs)
        if self is pipe.scheduler:  # and not a copy that is tried out
            pipe.log.append((model_output, sample, result[0]))
        return result

    with (
        mock.patch.object(kind, "step", step),
        accelerate(pipe, denoisers=["net"], **options) as handle,
    ):
        pipe()
        assert handle.report is not None
        return pipe, handle.report


def replayed(make: Make, pipe: Pipe, times: list[float]) -> list[Tensor]:
    """x before every stage of a plain scheduler that is given interpolated outputs."""
    scheduler, log, raw = make(), pipe.log, pipe.net.outputs
    stages = times_of(scheduler, pipe.first)
    x, states, more = start(scheduler), [], noise_for(scheduler)
    for n, t in enumerate(stages):
        k = max(a for a in ANCHORS if a <= n)
        output = log[n][0]
        if n not in ANCHORS and n < ANCHORS[-1]:
            end = min(a for a in ANCHORS if a > n)
            share = (times[n] - times[k]) / (times[end] - times[k])
            output = log[k][0] + share * (raw[ANCHORS.index(end)] - log[k][0])
        states.append(x)
        x = scheduler.step(output, t, x, **more)[0]
    return [*states, x]
