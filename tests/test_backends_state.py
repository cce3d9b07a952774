"""The backends with loops of their own under threads, interrupts and copies."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from geoshrink import accelerate
from geoshrink.hosts.handle import KEPT
from interrupts import interrupted_after

pytest.importorskip("torchdiffeq")
odes: Any = pytest.importorskip("hosts.odes")
sparse: Any = pytest.importorskip("hosts.sparse")
music: Any = pytest.importorskip("hosts.music")
pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)

GUIDED: dict[str, Any] = dict(steps=25, rescale_t=3.0, cfg_strength=2.0, cfg_interval=(0.5, 0.95))
CONDITION = dict(cond=torch.tensor(0.3), neg_cond=torch.tensor(-0.2))


class Stop(Exception):
    """A fault that a test raises."""


class Case:
    """A host, and what of it and of its library is patched. `shared` is the model of all."""

    def __init__(self, host: Any, model: Any, touched: list[Any]):
        self.host, self.model, self.touched = host, model, touched

    def run(self, seed: int) -> Tensor:
        raise NotImplementedError


class Motion(Case):
    def __init__(self, model: Any = None):
        host = odes.MotionFlowMatching(20)
        host.motion_transformer = model or host.motion_transformer
        super().__init__(host, host.motion_transformer, [odes])

    def run(self, seed: int) -> Tensor:
        return self.host.generate([seed], 5)


class Speech(Case):
    def __init__(self, model: Any = None):
        host = odes.CFM()
        host.transformer = model or host.transformer
        super().__init__(host, host.transformer, [odes])

    def run(self, seed: int) -> Tensor:
        return self.host.sample([6 + seed % 3, 9], 3)[1]


class Mesh(Case):
    def __init__(self, model: Any = None):
        net = model or sparse.Net()
        super().__init__(sparse.FlowEulerGuidanceIntervalSampler(), net, [])

    def run(self, seed: int) -> Tensor:
        noise = torch.randn(2, 4, 3, 3, 3, generator=torch.Generator().manual_seed(seed))
        return self.host.sample(self.model, noise, **CONDITION, **GUIDED).samples


class Song(Case):
    def __init__(self, model: Any = None):
        host = music.ACEStepPipeline()
        host.ace_step_transformer = model or host.ace_step_transformer
        super().__init__(host, host.ace_step_transformer, [])

    def run(self, seed: int) -> Tensor:
        return self.host()


KINDS = {"HY-Motion": Motion, "F5-TTS": Speech, "TRELLIS": Mesh, "ACE-Step": Song}


def marks(*cases: Case) -> list[dict[str, Any]]:
    parts = [part for case in cases for part in (case.host, case.model, *case.touched)]
    return [{name: id(value) for name, value in vars(part).items()} for part in parts]


@pytest.fixture(params=KINDS)
def kind(request: Any) -> Any:
    return KINDS[request.param]


def pause(module: Any, args: Any) -> None:
    time.sleep(1e-5)
    if getattr(threading.current_thread(), "stops", False):
        raise Stop


@pytest.mark.parametrize("shared", ["nothing", "the model", "the host"])
def test_threads_do_not_see_each_other(kind, shared):
    first = kind()
    cases = [first] * 8
    if shared != "the host":
        cases = [first] + [kind(first.model if shared == "the model" else None) for _ in range(7)]
    before, plain = marks(*cases), [case.run(i) for i, case in enumerate(cases)]
    budgets = [8 + (i % 3 if shared != "the host" else 0) for i in range(8)]
    handles = [accelerate(case.host, budget=b) for case, b in zip(cases, budgets)]
    alone = [case.run(i) for i, case in enumerate(cases)]
    assert not any(torch.equal(a, b) for a, b in zip(alone, plain))
    hooks = [case.model.probe for case in cases if hasattr(case.model, "probe")] or [first.model]
    watch = [module.register_forward_pre_hook(pause) for module in {*hooks}]

    def work(case: Case, seed: int, stops: bool) -> Any:
        threading.current_thread().stops = stops  # type: ignore[attr-defined]
        return case.run(seed)

    for turn in range(3):
        with ThreadPoolExecutor(8) as pool:
            stops = [(i + turn) % 4 == 0 and hasattr(c.model, "probe") for i, c in enumerate(cases)]
            runs = [pool.submit(work, c, i, stops[i]) for i, c in enumerate(cases)]
        for i, run in enumerate(runs):
            assert (
                isinstance(run.exception(), Stop)
                if stops[i]
                else torch.equal(run.result(), alone[i])
            )
    assert all(torch.equal(case.run(i), alone[i]) for i, case in enumerate(cases))
    for handle in (w for group in (watch, handles) for w in group):
        handle.remove()
    assert marks(*cases) == before
    assert all(torch.equal(case.run(i), plain[i]) for i, case in enumerate(cases))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_interrupts_at_any_time(kind):
    case = kind()
    case.run(0)
    handle = accelerate(case.host, budget=8)
    want, idle = case.run(0), marks(case)
    began = time.perf_counter()
    case.run(0)
    span, hits = time.perf_counter() - began, 0
    for turn in range(60):
        try:
            with interrupted_after(span * (turn + 1) / 60):
                case.run(0)
        except KeyboardInterrupt:
            hits += 1
        assert marks(case) == idle
        if turn % 10 == 0:
            assert torch.equal(case.run(0), want)
    assert hits > 10 and torch.equal(case.run(0), want)
    handle.remove()


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_plain(kind, how):
    case = kind()
    plain, before = case.run(0), [set(vars(case.host))]
    handle = accelerate(case.host, budget=8)
    ours = case.run(0)
    twin = kind(case.model)
    twin.host = how(case.host)
    assert [set(vars(twin.host))] == before and type(twin.host) is type(case.host)
    assert torch.equal(twin.run(0), plain) and torch.equal(case.run(0), ours)
    assert len(handle.reports) == 2
    handle.remove()
    assert torch.equal(case.run(0), plain)


def test_handles_are_removed_in_any_order(kind):
    for order in ((0, 1), (1, 0)):
        one = kind()
        two = kind(one.model)
        before = marks(one, two)
        handles = [accelerate(one.host, budget=8), accelerate(two.host, budget=10)]
        ours = one.run(0), two.run(0)
        for n in order:
            left = [(c, want) for i, (c, want) in enumerate(zip((one, two), ours)) if i != n]
            handles[n].remove()
            if n == order[0]:
                assert all(torch.equal(case.run(0), want) for case, want in left)
        assert marks(one, two) == before


def test_a_handle_keeps_the_last_reports_only(kind):
    case = kind()
    with accelerate(case.host, budget=8) as handle:
        for _ in range(KEPT + 2):
            case.run(0)
        assert len(handle.reports) == KEPT


def test_everything_is_collected(kind):
    case = kind()
    handle = accelerate(case.host, budget=8)
    case.run(0)
    freed = [weakref.ref(it) for it in (case.host, case.model)]
    del case  # with the handle still there, and the hooks too
    gc.collect()
    if kind in (Motion, Speech):
        assert odes.odeint.__module__ and not hasattr(odes.odeint, "users")
    del handle
    gc.collect()
    assert [ref() for ref in freed] == [None, None]


def test_a_host_that_is_gone_takes_nobody_elses_calls():
    """A function that calls odeint and is no method of anything is not the host that is gone."""
    case = Motion()
    accelerate(case.host, budget=8)
    module = sys.modules[odes.__name__]
    del case
    gc.collect()
    t, calls = torch.linspace(0, 1, 21), []
    module.odeint(lambda t, y: (calls.append(1), -y)[1], torch.ones(2), t, method="euler")
    assert len(calls) == 20
