"""What every host with a loop of its own must hold up to, on our doubles and on real checkouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import geoshrink


@dataclass
class Case:
    """A host that can be run.

    run       makes one sample, always the same one
    probe     a module that runs once in every call of the network
    steps     stages of the loop
    forwards  network calls of a full run
    regimes   stages at which guidance switches
    touched   objects that are hooked while the host is accelerated
    """

    host: Any
    run: Callable[[], Tensor]
    probe: nn.Module
    steps: int
    forwards: int
    regimes: tuple[int, ...] = ()
    touched: Sequence[Any] = ()
    options: dict[str, Any] = field(default_factory=dict)


class Interrupted(Exception):
    """Raised by a probe in mid-run."""


@contextmanager
def probed(probe: nn.Module, fail_at: int | None = None) -> Iterator[list[int]]:
    """Counts the calls of a module, and raises at one of them."""
    calls: list[int] = []

    def hook(*_: Any) -> None:
        calls.append(1)
        if len(calls) == fail_at:
            raise Interrupted

    handle = probe.register_forward_pre_hook(hook)
    try:
        yield calls
    finally:
        handle.remove()


def states(case: Case) -> list[dict[str, int]]:
    """What is in the objects that we hook, by identity."""
    return [{k: id(v) for k, v in vars(o).items()} for o in (case.host, *case.touched)]


def problems(case: Case, budget: int) -> list[str]:
    """What is wrong, in words; an empty list where everything holds."""
    wrong: list[str] = []

    def must(holds: bool, what: str) -> None:
        if not holds:
            wrong.append(what)

    def run(fail_at: int | None = None) -> tuple[Tensor, int]:
        with probed(case.probe, fail_at) as calls:
            return case.run(), len(calls)

    plain, forwards = run()
    must(forwards == case.forwards, f"a full run has {forwards} forwards, not {case.forwards}")
    before = states(case)

    with geoshrink.accelerate(case.host, budget=case.steps, **case.options) as handle:
        exact, forwards = run()
        must(torch.equal(exact, plain), "budget = steps is not bit-identical")
        must(forwards == case.forwards, f"budget = steps has {forwards} forwards")
        must(handle.report is not None and handle.report.evaluations == case.steps, "exact count")
    must(states(case) == before, "remove() leaves something behind")

    handle = geoshrink.accelerate(case.host, budget=budget, **case.options)
    first, forwards = run()
    report = handle.report
    assert report is not None
    must(report.steps == case.steps, f"{report.steps} stages, not {case.steps}")
    must(report.evaluations == budget and not report.extra, f"not {budget}: {report.summary()}")
    must(report.regimes == case.regimes, f"regimes {report.regimes}, not {case.regimes}")
    must(forwards < case.forwards, f"{forwards} forwards are not fewer")
    counted = report.evaluations if report.forwards is None else report.forwards
    must(counted == forwards, f"{counted} forwards reported, {forwards} made")
    must(bool(first.isfinite().all()) and not torch.equal(first, plain), "nothing was predicted")
    again, _ = run()
    must(torch.equal(again, first), "a second run differs from the first")
    must(len(handle.reports) == 2 and handle.reports[0] == handle.reports[1], "two reports")
    try:
        run(fail_at=forwards // 2)
        must(False, "the exception was swallowed")
    except Interrupted:
        pass
    after, _ = run()
    must(torch.equal(after, first), "a run after an exception differs")
    geoshrink.accelerate(case.host, budget=budget, **case.options)
    once, forwards = run()
    must(torch.equal(once, first), "accelerating twice is not accelerating once")
    handle.remove()
    geoshrink.accelerate(case.host, budget=budget, **case.options).remove()
    must(states(case) == before, "remove() leaves something behind after an exception")
    restored, _ = run()
    must(torch.equal(restored, plain), "a run after remove() is not the plain one")
    return wrong


def problems_of_an_exact_run(case: Case) -> list[str]:
    """What is wrong with a host that must run as it is, and say why."""
    plain = case.run()
    with (
        geoshrink.accelerate(case.host, budget=8, **case.options) as handle,
        probed(case.probe) as calls,
    ):
        same = torch.equal(case.run(), plain)
    report, wrong = handle.report, [] if same else ["the run differs from the plain one"]
    if len(calls) != case.forwards:
        wrong.append(f"{len(calls)} forwards, not {case.forwards}")
    if report is None or report.predicted or "every stage" not in str(report.reasons):
        wrong.append("the report does not say why every stage is queried")
    return wrong
