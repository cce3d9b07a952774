"""Threads, interrupts, copies, pickles: whatever is done with an accelerated pipeline, nothing of
ours shows outside its own loop.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoshrink import Report, accelerate
from geoshrink.hosts.handle import KEPT
from interrupts import interrupted_after

d: Any = pytest.importorskip("diffusers")
image: Any = pytest.importorskip("hosts.image")
pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)

STEPS, BUDGET = 12, 6
EARLY = [0, 1, 2, 3, 11]
THREADS = 8


class Stop(Exception):
    """A fault that a test raises."""


class Net(nn.Module):
    """Not linear, so that a prediction differs from an output."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.weight, self.calls = nn.Parameter(torch.randn(4, 4) / 3), 0

    def forward(self, x: Tensor, t: Any) -> Tensor:
        self.calls += 1
        return torch.tanh(x @ self.weight) * (1 + float(t) / 1000)


class Pipe:
    """A pipeline of somebody's own: `on_step` is called between stages."""

    def __init__(self, net: Any, scheduler: Any = None):
        self.net, self.scheduler = net, scheduler or image.flow()

    def __call__(
        self, seed: int = 0, steps: int = STEPS, on_step: Callable[[int], Any] = lambda i: None
    ) -> Tensor:
        self.scheduler.set_timesteps(steps)
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            for i, t in enumerate(self.scheduler.timesteps):
                x = self.scheduler.step(self.net(x, t), t, x).prev_sample
                on_step(i)
        return x


def ddim() -> Any:
    """Its step depends on nothing that another run changes."""
    return d.DDIMScheduler(clip_sample=False)


def marks(*parts: Any) -> list[tuple[type, set[str]]]:
    return [(type(part), set(vars(part))) for part in parts]


def tiny(name: str = "FluxPipeline") -> tuple[Any, dict[str, Any]]:
    return image.PIPELINES[name]()


def call(pipe: Any, kwargs: dict[str, Any], **more: Any) -> Tensor:
    torch.manual_seed(0)
    given = {"num_inference_steps": STEPS, "generator": torch.Generator().manual_seed(0)}
    return image.tensor(pipe(**{**kwargs, **given, **more}))


def in_threads(jobs: list[Callable[[], Any]]) -> list[Any]:
    """The results, or the exceptions, of jobs that begin together."""
    gate = threading.Barrier(len(jobs), timeout=30)

    def job(work: Callable[[], Any]) -> Any:
        gate.wait()
        return work()

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(job, work) for work in jobs]
        return [f.exception() or f.result() for f in futures]


def yielding(i: int) -> None:
    time.sleep(1e-4)  # lets another thread run


def failing(i: int) -> None:
    time.sleep(1e-4)
    if i == 5:
        raise Stop


# --- threads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", ["nothing", "denoiser", "denoiser and scheduler", "pipeline"])
def test_threads_do_not_see_each_other(shared):
    """Runs of eight threads, some with faults, are those of one after the other."""
    net, scheduler = Net(), ddim()
    if shared == "pipeline":
        pipes = [Pipe(net, scheduler)] * THREADS
    elif shared == "denoiser and scheduler":
        pipes = [Pipe(net, scheduler) for _ in range(THREADS)]
    else:
        pipes = [Pipe(net if shared == "denoiser" else Net(i)) for i in range(THREADS)]
    for pipe in pipes:
        pipe()
    parts = [part for pipe in pipes for part in (pipe, pipe.net, pipe.scheduler)]
    before, plain = marks(*parts), [pipe(seed=i) for i, pipe in enumerate(pipes)]
    budgets = [BUDGET + (0 if shared == "pipeline" else i % 3) for i in range(THREADS)]
    handles = [accelerate(p, budget=b, denoisers=["net"]) for p, b in zip(pipes, budgets)]
    alone = [pipe(seed=i) for i, pipe in enumerate(pipes)]
    assert not any(torch.equal(a, b) for a, b in zip(alone, plain))
    for turn in range(6):
        acts = [failing if (i + turn) % 4 == 0 else yielding for i in range(THREADS)]
        runs = enumerate(zip(pipes, acts))
        outs = in_threads([partial(pipe, i, on_step=act) for i, (pipe, act) in runs])
        for act, out, want in zip(acts, outs, alone):
            assert isinstance(out, Stop) if act is failing else torch.equal(out, want)
    assert all(torch.equal(pipe(seed=i), alone[i]) for i, pipe in enumerate(pipes))
    pairs = list(zip(handles, budgets))[-1 if shared == "pipeline" else 0 :]  # the last replaces
    assert all({r.evaluations for r in handle.reports} == {b} for handle, b in pairs)
    for handle in handles:
        handle.remove()
    assert marks(*parts) == before
    assert all(torch.equal(pipe(seed=i), plain[i]) for i, pipe in enumerate(pipes))


@pytest.mark.parametrize("name", ["StableDiffusionPipeline", "FluxPipeline"])
def test_pipelines_of_diffusers_that_share_a_denoiser(name):
    """Two in two threads, again and again, beside one that is not accelerated."""
    first, kwargs = tiny(name)
    pipes = [first] + [type(first)(**first.components) for _ in range(2)]
    for pipe in pipes:
        pipe.scheduler = copy.deepcopy(first.scheduler)
        pipe.set_progress_bar_config(disable=True)
    part = "unet" if hasattr(first, "unet") else "transformer"
    plain = call(pipes[2], kwargs)
    before = marks(getattr(first, part))
    handles = [accelerate(pipe, anchors=EARLY) for pipe in pipes[:2]]
    alone = call(first, kwargs)

    def work(pipe: Any) -> list[Tensor]:
        step = lambda pipe, i, t, tensors: (yielding(i), tensors)[1]  # noqa: E731
        return [call(pipe, kwargs, callback_on_step_end=step) for _ in range(4)]

    outs = in_threads([partial(work, pipe) for pipe in pipes])
    for pipe, found in zip(pipes, outs):
        want = plain if pipe is pipes[2] else alone
        assert all(torch.equal(out, want) for out in found)
    for handle in handles:
        assert {r.queried for r in handle.reports} == {tuple(EARLY)}
        handle.remove()
    assert marks(getattr(first, part)) == before


def test_remove_while_another_thread_runs():
    """Its run goes on: exact from its next step, and no stand-in gets out."""
    net = Net()
    pipe = Pipe(net)
    plain = pipe()
    before = marks(pipe, net, pipe.scheduler)
    for stage in range(STEPS):
        handle = accelerate(pipe, anchors=EARLY, denoisers=["net"])
        there, gone = threading.Event(), threading.Event()

        def wait(i: int, stage=stage, there=there, gone=gone) -> None:
            if i == stage:
                there.set()
                assert gone.wait(10)

        net.calls = 0
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(pipe, on_step=wait)
            assert there.wait(10)
            handle.remove()
            gone.set()
            out = run.result()
        assert (out - plain).abs().max() < 1
        assert net.calls >= len([n for n in EARLY if n <= stage]) + STEPS - 2 - stage
        assert marks(pipe, net, pipe.scheduler) == before and torch.equal(pipe(), plain)


def test_remove_in_mid_stage_of_another_thread():
    """Between a skipped call of the denoiser and the step that gets the prediction."""
    net = Net()
    pipe, there, gone = Pipe(net), threading.Event(), threading.Event()
    plain, before = pipe(), marks(pipe, net, pipe.scheduler)
    kind, seen = type(pipe.scheduler), []
    step = kind.step

    class Waiting(kind):
        def scale(self, x: Tensor) -> Tensor:
            seen.append(1)
            if len(seen) == 7:  # of a skipped stage
                there.set()
                assert gone.wait(10)
            return x

    class Late(Pipe):
        def __call__(self, *_: Any, **__: Any) -> Tensor:
            self.scheduler.set_timesteps(STEPS)
            x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
            with torch.no_grad():
                for t in self.scheduler.timesteps:
                    v = self.scheduler.scale(self.net(x, t))
                    x = self.scheduler.step(v, t, x).prev_sample
            return x

    late = Late(net, Waiting.from_config(pipe.scheduler.config))
    handle = accelerate(late, anchors=EARLY, denoisers=["net"])
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(late)
        assert there.wait(10)
        handle.remove()
        gone.set()
        out = run.result()
    assert (out - plain).abs().max() < 0.5 and step is kind.step
    assert marks(net) == before[1:2] and "step" not in vars(late.scheduler)


# --- interrupts --------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
@pytest.mark.parametrize("name", ["StableDiffusionPipeline", "FluxPipeline", "own"])
def test_interrupts_at_any_time(name):
    """Nothing is left on the network; copies and pickles are plain; the next run is right."""
    pipe, kwargs = (Pipe(Net()), {}) if name == "own" else tiny(name)
    run = pipe if name == "own" else lambda: call(pipe, kwargs)
    part = next(n for n in ("net", "unet", "transformer") if hasattr(pipe, n))
    net = getattr(pipe, part)
    run()
    before = marks(net)
    handle = accelerate(pipe, anchors=EARLY, denoisers=[part])
    want, idle = run(), marks(pipe, pipe.scheduler)
    began = time.perf_counter()
    run()
    span, rng, hits = time.perf_counter() - began, random.Random(0), 0
    for turn in range(300 if name == "own" else 60):
        try:
            with interrupted_after(max(1e-5, rng.random() * span * 1.1)):
                run()
        except KeyboardInterrupt:
            hits += 1
        assert marks(net) == before and marks(pipe, pipe.scheduler) == idle, turn
        assert vars(handle)["_reports"].__self__.live == []
        if turn % 10 == 0:
            assert torch.equal(run(), want), turn
            torch.save(net, io.BytesIO())
    assert hits > 20
    empty = copy.deepcopy(net)
    assert marks(empty) == before
    assert torch.equal(run(), want)
    handle.remove()


def own_loop(scheduler: Any, net: nn.Module) -> Iterator[Tensor]:
    scheduler.set_timesteps(STEPS)
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(net(x, t), t, x).prev_sample
            yield x


def test_a_generator_that_is_dropped():
    net = Net()
    pipe = Pipe(net)
    plain = pipe()
    before = marks(net, pipe.scheduler)
    handle = accelerate(pipe, anchors=EARLY, denoisers=["net"])
    want = [*own_loop(pipe.scheduler, net)][-1]
    assert not torch.equal(want, plain)
    steps = own_loop(pipe.scheduler, net)
    for _ in range(6):
        next(steps)
    del steps
    twin = copy.deepcopy(net)
    nn.init.zeros_(twin.weight)
    assert not twin(torch.ones(2, 4), 0).any() and marks(twin) == before[:1]
    assert marks(pickle.loads(pickle.dumps(net))) == before[:1]
    out = net(torch.ones(2, 4), 0)
    assert torch.equal(out, net(torch.ones(2, 4), 0)) and marks(net) == before[:1]
    assert torch.equal([*own_loop(pipe.scheduler, net)][-1], want)
    handle.remove()
    assert marks(net, pipe.scheduler) == before


class Yielding(Pipe):
    """A pipeline whose method yields every state."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        yield from own_loop(self.scheduler, self.net)


def test_a_pipeline_that_yields():
    pipe = Yielding(Net())
    plain = [*pipe()]
    before = marks(pipe, pipe.net, pipe.scheduler)
    handle = accelerate(pipe, anchors=EARLY, denoisers=["net"])
    ours = [*pipe()]
    assert not torch.equal(ours[-1], plain[-1])
    assert [r.evaluations for r in handle.reports] == [len(EARLY)]
    for stage in range(1, STEPS):
        steps = pipe()
        for _ in range(stage):
            next(steps)
        steps.close()
        assert marks(pipe.net) == before[1:2]
        assert all(torch.equal(a, b) for a, b in zip(pipe(), ours))
    handle.remove()
    assert marks(pipe, pipe.net, pipe.scheduler) == before
    assert all(torch.equal(a, b) for a, b in zip(pipe(), plain))


def test_a_sibling_that_fails():
    """We do not see how it ends. What stays passes every call on, and goes with the next."""
    pipe, kwargs = tiny()
    sibling = d.FluxImg2ImgPipeline.from_pipe(pipe)
    sibling.set_progress_bar_config(disable=True)
    given = {**kwargs, "image": image.picture(), "strength": 1.0}
    call(pipe, kwargs)
    net, kept = pipe.transformer, []
    before = marks(net)
    hook = net.register_forward_pre_hook(lambda m, a, k: kept.append(k), with_kwargs=True)
    call(sibling, given)
    hook.remove()
    handle = accelerate(pipe, anchors=EARLY)
    ours, intercepted = call(pipe, kwargs), []

    def stop(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        intercepted.append("_call_impl" in vars(net))
        failing(i)
        return tensors

    for act in ("call", "run", "remove"):
        with pytest.raises(Stop):
            call(sibling, given, callback_on_step_end=stop)
        assert intercepted[-1]
        assert all(marks(copied(net)) == before for copied in COPIES.values())
        if act == "call":
            with torch.no_grad():
                first, second = (net(**kept[5])[0] for _ in range(2))
            assert torch.equal(first, second) and first.unique().numel() > 1
        elif act == "run":
            assert torch.equal(call(pipe, kwargs), ours)
        else:
            handle.remove()
        assert marks(net) == before


def test_a_loop_that_goes_from_thread_to_thread():
    """A generator that a server resumes in whatever thread is free: exact, and nothing is left."""
    net = Net()
    pipe = Pipe(net)
    plain, before = [*own_loop(pipe.scheduler, net)], marks(net, pipe.scheduler)
    handle = accelerate(pipe, anchors=EARLY, denoisers=["net"])
    for moved in (1, 3, 6):
        steps, found = own_loop(pipe.scheduler, net), []
        for i in range(STEPS):
            with ThreadPoolExecutor(1) as pool:
                found.append(next(steps) if i < moved else pool.submit(next, steps).result())
        assert all(torch.equal(a, b) for a, b in zip(found[:4], plain))
        assert (found[-1] - plain[-1]).abs().max() < 0.5
    handle.remove()
    assert marks(net, pipe.scheduler) == before


# --- copies ------------------------------------------------------------------------------------

COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda it: pickle.loads(pickle.dumps(it)),
    "old pickle": lambda it: pickle.loads(pickle.dumps(it, 0)),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_are_plain(how):
    pipe = Pipe(Net())
    plain = pipe()
    parts = (pipe, pipe.net, pipe.scheduler)
    before = marks(*parts)
    handle = accelerate(pipe, anchors=EARLY, denoisers=["net"])
    pipe()
    with contextlib.suppress(Stop):
        pipe(on_step=failing)
    assert marks(*map(COPIES[how], parts)) == before
    twin = COPIES[how](pipe)
    if how == "copy":  # it has the same scheduler, which is accelerated
        twin.scheduler = copy.copy(pipe.scheduler)
    calls = twin.net.calls
    assert torch.equal(twin(), plain) and twin.net.calls - calls == STEPS
    assert type(pipe) is not Pipe and type(twin) is Pipe
    handle.remove()
    assert marks(*parts) == before


@pytest.mark.parametrize("how", COPIES)
def test_copies_in_mid_run_are_plain(how):
    pipe, made = Pipe(Net()), []
    pipe()
    before = marks(pipe.net, pipe.scheduler)
    with accelerate(pipe, anchors=EARLY, denoisers=["net"]):
        want = pipe()
        pick = lambda i: made.append(COPIES[how](pipe.net)) if i == 5 else None  # noqa: E731
        assert torch.equal(pipe(on_step=pick), want)
    assert marks(*made) == before[:1]
    nn.init.zeros_(made[0].weight)
    assert not made[0](torch.ones(2, 4), 0).any()


def test_a_pipeline_of_diffusers_is_saved_and_moved_as_before(tmp_path):
    pipe, kwargs = tiny()
    plain, before = call(pipe, kwargs), marks(pipe, pipe.transformer, pipe.scheduler)
    keys = pipe.transformer.state_dict().keys()
    handle = accelerate(pipe, anchors=EARLY)
    ours = call(pipe, kwargs)
    pipe.save_pretrained(tmp_path / "accelerated")
    assert (
        '"_class_name": "FluxPipeline"'
        in (tmp_path / "accelerated" / "model_index.json").read_text()
    )
    assert pipe.transformer.state_dict().keys() == keys
    twins = [copy.deepcopy(pipe), pickle.loads(pickle.dumps(pipe))]
    for twin in twins:
        assert marks(twin, twin.transformer, twin.scheduler) == before
        assert torch.equal(call(twin, kwargs), plain)
    assert pipe.to(torch.float32) is pipe and torch.equal(call(pipe, kwargs), ours)
    handle.remove()
    assert torch.equal(call(pipe, kwargs), plain)


# --- whose run it is ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("scheduler", ["one", "two"])
def test_handles_are_removed_in_any_order(order, scheduler):
    net = Net()
    first = Pipe(net, ddim())
    second = Pipe(net, first.scheduler if scheduler == "one" else ddim())
    pipes = [first, second]
    plain = [pipe() for pipe in pipes]
    parts = (*pipes, net, first.scheduler, second.scheduler)
    before = marks(*parts)
    handles = [accelerate(p, budget=b, denoisers=["net"]) for p, b in zip(pipes, (6, 8))]
    ours = [pipe() for pipe in pipes]
    assert [[r.evaluations for r in h.reports] for h in handles] == [[6], [8]]
    gone, stays = order
    handles[gone].remove()
    assert torch.equal(pipes[stays](), ours[stays])
    if scheduler == "two":
        assert torch.equal(pipes[gone](), plain[gone])
    handles[stays].remove()
    assert marks(*parts) == before and [torch.equal(p(), w) for p, w in zip(pipes, plain)]


def test_an_accelerated_run_inside_an_accelerated_run():
    net, inner = Net(), []
    one, two = Pipe(net), Pipe(net)
    outside = accelerate(one, anchors=EARLY, denoisers=["net"])
    inside = accelerate(two, budget=8, denoisers=["net"])
    want = one(), two()
    preview = lambda i: inner.append(two()) if i in (2, 6) else None  # noqa: E731
    assert torch.equal(one(on_step=preview), want[0])
    assert all(torch.equal(out, want[1]) for out in inner) and len(inner) == 2
    assert [r.evaluations for r in outside.reports] == [5, 5]
    assert [r.evaluations for r in inside.reports] == [8, 8, 8]
    fault = lambda i: two(on_step=failing) if i == 4 else None  # noqa: E731
    with pytest.raises(Stop):
        one(on_step=fault)
    assert torch.equal(one(), want[0]) and torch.equal(two(), want[1])


def test_a_pipeline_that_runs_itself():
    """Its scheduler keeps no count of steps, so that this is right without us too."""
    pipe, inner = Pipe(Net(), ddim()), []
    with accelerate(pipe, anchors=EARLY, denoisers=["net"]) as handle:
        want = pipe()
        again = lambda i: inner.append(pipe()) if i == 6 else None  # noqa: E731
        assert torch.equal(pipe(on_step=again), want) and torch.equal(inner[0], want)
        assert [r.queried for r in handle.reports] == [tuple(EARLY)] * 3


def test_accelerating_again_after_the_scheduler_was_swapped():
    pipe = Pipe(Net())
    first, old = accelerate(pipe, budget=8, denoisers=["net"]), pipe.scheduler
    pipe.scheduler = image.flow()
    second = accelerate(pipe, budget=BUDGET, denoisers=["net"])
    pipe()
    assert not first.reports and [r.evaluations for r in second.reports] == [BUDGET]
    assert "step" not in vars(old)
    first.remove()
    pipe()
    assert len(second.reports) == 2
    second.remove()
    assert type(pipe) is Pipe and "step" not in vars(pipe.scheduler)


def test_a_compiled_denoiser():
    pipe = Pipe(Net())
    plain = pipe()
    pipe.net.compile(backend="eager")
    before = marks(pipe.net)
    with accelerate(pipe, anchors=EARLY, denoisers=["net"]) as handle:
        want = pipe()
        pipe.net, inner = torch.compile(pipe.net, backend="eager"), pipe.net
        assert torch.equal(pipe(), want)
        with pytest.raises(Stop):
            pipe(on_step=failing)
        assert [r.evaluations for r in handle.reports] == [len(EARLY)] * 2
    pipe.net = inner
    assert torch.equal(pipe(), plain)
    assert marks(pipe.net)[0][1] - before[0][1] <= {"_is_torch_compile"}  # torch's own


# --- runs that are not accelerated -------------------------------------------------------------


class Other:
    """A scheduler whose step we do not know."""

    def __init__(self) -> None:
        self.inner = image.flow()

    def set_timesteps(self, steps: int) -> None:
        self.inner.set_timesteps(steps)
        self.timesteps = self.inner.timesteps

    def step(self, velocity: Tensor, t: Any, x: Tensor) -> Any:
        return self.inner.step(velocity, t, x)


def test_a_scheduler_that_is_not_known_is_reported(caplog):
    pipe = Pipe(Net())
    plain = pipe()
    with accelerate(pipe, anchors=EARLY, denoisers=["net"]) as handle:
        pipe.scheduler = Other()
        assert torch.equal(pipe(), plain)
        assert handle.report is not None and handle.report.summary() == "not accelerated"
        assert "not accelerated: Other.step(velocity, t, x)" in handle.report.reasons[0][1]
        assert "not accelerated" in caplog.text
        pipe.scheduler = image.flow()
        pipe()
        assert handle.report.evaluations == len(EARLY)


# --- what is kept ------------------------------------------------------------------------------


def test_a_handle_keeps_the_last_reports_only():
    pipe = Pipe(Net())
    with accelerate(pipe, anchors=EARLY, denoisers=["net"]) as handle:
        for _ in range(KEPT + 3):
            pipe()
        gc.collect()
        objects = len(gc.get_objects())
        for _ in range(KEPT):
            pipe()
        gc.collect()
        assert len(gc.get_objects()) - objects < KEPT
        assert len(handle.reports) == KEPT and all(type(r) is Report for r in handle.reports)


@pytest.mark.parametrize("fault", [None, failing])
def test_everything_is_collected(fault):
    pipe = Pipe(Net())
    handle = accelerate(pipe, anchors=EARLY, denoisers=["net"])
    with contextlib.suppress(Stop):
        pipe(on_step=fault or yielding)
    handle.remove()
    freed = [weakref.ref(it) for it in (pipe, pipe.net, pipe.scheduler, handle)]
    del pipe, handle
    gc.collect()
    assert [ref() for ref in freed] == [None] * 4
