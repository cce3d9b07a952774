"""What every pipeline must hold up to: exact at full budget, counted, removable, repeatable."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import geoshrink
from geoshrink.hosts.diffusers import find_denoisers, find_schedulers

#: Pipelines that run a denoiser outside the loop too: they fill its cache between two loops.
OUTSIDE = ("AnyFlowFARPipeline",)
Builder = Callable[[], tuple[Any, dict[str, Any]]]


@dataclass
class Outcome:
    """What was seen of one pipeline class."""

    name: str
    summary: str
    reasons: tuple[str, ...]
    problems: list[str]


def all_pipelines() -> dict[str, Builder]:
    """Every tiny pipeline that builds offline, by the name of its class."""
    from hosts import image, video

    tables = (image.PIPELINES, image.SLOW, video.PIPELINES, video.MODULAR, video.FIXED)
    return {name: build for table in tables for name, build in table.items()}


def tensors(value: Any) -> list[Tensor]:
    """Everything in a pipeline's output that is numbers."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, np.ndarray):
        return [torch.from_numpy(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for part in value for t in tensors(part)]
    if hasattr(value, "convert"):  # a PIL image
        return [torch.from_numpy(np.asarray(value).copy())]
    return []


def run(pipe: Any, kwargs: dict[str, Any], steps: int = 8, seed: int = 0) -> list[Tensor]:
    """`kwargs` may hold a function "steps" that gives the arguments which set the step count."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    call = {"steps": lambda steps: {"num_inference_steps": steps}, **kwargs}
    counted = call.pop("steps")(steps)
    return tensors(pipe(**call, **counted, generator=torch.Generator().manual_seed(seed)))


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) > 0 and all(torch.equal(x, y) for x, y in zip(a, b))


class Counter:
    """Counts real denoiser calls, and rounds of them: calls that are parted by a step."""

    def __init__(self, pipe: Any):
        self.rounds, self.calls, self.open = 0, 0, False
        self.hooks = [m.register_forward_pre_hook(self.called) for m in find_denoisers(pipe)]
        self.kinds = {type(s) for s in find_schedulers(pipe)}
        self.saved = {kind: kind.step for kind in self.kinds}
        for kind in self.kinds:
            kind.step = self.stepping(kind.step)

    def called(self, module: nn.Module, args: Any) -> None:
        self.rounds, self.open = self.rounds + (not self.open), True
        self.calls += 1

    def stepping(self, step: Callable) -> Callable:
        @functools.wraps(step)
        def method(*args: Any, **kwargs: Any) -> Any:
            self.open = False
            return step(*args, **kwargs)

        return method

    def stop(self) -> int:
        for hook in self.hooks:
            hook.remove()
        for kind, step in self.saved.items():
            kind.step = step
        return self.rounds


def attributes(pipe: Any) -> list[set[str]]:
    watched = [pipe, *find_schedulers(pipe), *find_denoisers(pipe)]
    return [set(vars(thing)) for thing in watched]


def check(name: str, build: Builder, budget: int = 5) -> Outcome:
    """Runs a pipeline plain, at full budget, accelerated twice, at another length, and removed."""
    pipe, kwargs = build()
    plain = run(pipe, kwargs)
    outcome = Outcome(name, "", (), [])

    def expect(holds: bool, problem: str) -> None:
        if not holds:
            outcome.problems.append(problem)

    expect(same(plain, run(pipe, kwargs)), "the plain run is not repeatable")
    before = attributes(pipe)
    try:
        handle = geoshrink.accelerate(pipe, budget=1000)
    except TypeError as error:
        outcome.summary, outcome.reasons = "refused", (str(error).split(":")[0],)
        expect(attributes(pipe) == before, "refused, but attributes are left")
        return outcome
    expect(same(plain, run(pipe, kwargs)), "budget = steps is not bit-identical")
    handle.remove()
    counter = Counter(pipe)  # before us, so that it sees what really happens
    handle = geoshrink.accelerate(pipe, budget=budget)
    first = run(pipe, kwargs)
    rounds, report, reports = counter.stop(), handle.report, handle.reports
    expect(same(first, run(pipe, kwargs)), "a second accelerated run differs")
    expect(all(bool(t.isfinite().all()) for t in first if t.is_floating_point()), "not finite")
    if report is None or not report.steps:
        outcome.summary = "no scheduler.step: untouched"
        outcome.reasons = () if report is None else tuple(reason for _, reason in report.reasons)
        expect(bool(outcome.reasons), "untouched, no reason")
        expect(same(plain, first), "untouched, but different")
    else:
        outcome.summary = "; ".join(dict.fromkeys(r.summary() for r in reports))
        outcome.reasons = tuple(reason for r in reports for _, reason in r.reasons)
        order = max(getattr(s, "order", 1) for s in find_schedulers(pipe))
        counted = sum(r.evaluations for r in reports)
        expect(order > 1 or rounds == counted, f"{rounds} rounds, {outcome.summary}")
        forwards = sum(r.forwards or 0 for r in reports)
        apart = name in OUTSIDE or forwards == counter.calls
        expect(apart, f"{counter.calls} calls, {forwards} forwards reported")
        expect(bool(report.predicted) or bool(outcome.reasons), "nothing skipped, no reason")
    run(pipe, kwargs, steps=10)
    handle.remove()
    expect(same(plain, run(pipe, kwargs)), "after remove() the run differs")
    expect(attributes(pipe) == before, "after remove() attributes are left")
    return outcome
