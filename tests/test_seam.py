"""accelerate() on tiny diffusers pipelines: what is predicted, and everything a host can do to it.

Where a test needs to know what is skipped it names the anchors EARLY: of 12 stages, 4 … 10 are.
"""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import inspect
import io
import logging
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoshrink import Blocks, Grid, Handle, Plan, accelerate
from geoshrink.report import ADVICE, ASTRAY
from tiny_pipelines import (
    BUDGET,
    EARLY,
    STEPS,
    Sampler,
    Stop,
    accelerated,
    after,
    call,
    counted,
    intercepted,
    marks,
    received,
    reported,
    tiny,
)

d: Any = pytest.importorskip("diffusers")
image: Any = pytest.importorskip("hosts.image")
video: Any = pytest.importorskip("hosts.video")
pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)


def direct_call(pipe: Any, kwargs: dict[str, Any]) -> Callable[[], Tensor]:
    """Calls the transformer exactly as the pipeline's own loop does."""
    kept: list[tuple] = []
    hook = pipe.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: kept.append((args, kwargs)), with_kwargs=True
    )
    call(pipe, kwargs)
    hook.remove()
    args, named = kept[5]

    def direct() -> Tensor:
        with torch.no_grad():
            return pipe.transformer(*args, **named)[0]

    return direct


# --- more than one object ----------------------------------------------------------------------


def test_a_copy_of_the_scheduler_steps_alone():
    pipe, _ = tiny("FluxPipeline")
    handle = accelerate(pipe, budget=BUDGET)
    own = pipe.scheduler
    own.set_timesteps(STEPS)
    other = copy.deepcopy(own)
    x = torch.ones(1, 4)
    other.step(x, other.timesteps[0], x)
    assert other._step_index == 1 and own._step_index is None
    handle.remove()


def test_a_copy_of_the_scheduler_is_let_go_too():
    pipe, kwargs = tiny("FluxPipeline")
    plain, calls = call(pipe, kwargs), counted(pipe.transformer)
    handle = accelerate(pipe, budget=BUDGET)
    other = copy.deepcopy(pipe.scheduler)
    handle.remove()
    pipe.scheduler = other
    assert torch.equal(call(pipe, kwargs), plain) and len(calls) == STEPS
    assert not intercepted(pipe)


def test_a_copied_pipeline_runs_right_and_leaves_the_first_alone():
    pipe, kwargs = tiny("FluxPipeline")
    plain = call(pipe, kwargs)
    accelerate(pipe, budget=BUDGET)
    fresh, kwargs = tiny("FluxPipeline")
    with accelerated(fresh, budget=BUDGET):
        ours = call(fresh, kwargs)
    twin = copy.deepcopy(pipe)
    out = call(twin, kwargs)
    assert torch.equal(out, plain) or torch.equal(out, ours)
    assert not intercepted(pipe)


def test_signatures_are_kept():
    pipe, _ = tiny("FluxPipeline")
    before = [inspect.signature(m) for m in (pipe.scheduler.step, pipe.scheduler.set_timesteps)]
    with accelerated(pipe, budget=BUDGET):
        names = ("step", "set_timesteps")
        assert [inspect.signature(getattr(pipe.scheduler, n)) for n in names] == before
        assert pipe.scheduler.step.__doc__ == type(pipe.scheduler).step.__doc__


def test_a_step_of_the_users_own_is_kept():
    pipe, kwargs = tiny("FluxPipeline")
    made: list[int] = []
    plain = pipe.scheduler.step

    def step(model_output: Any, timestep: Any, sample: Any, **more: Any) -> Any:
        made.append(1)
        return plain(model_output, timestep, sample, **more)

    pipe.scheduler.step = step
    with accelerated(pipe, budget=BUDGET):
        call(pipe, kwargs)
    assert len(made) == STEPS
    assert pipe.scheduler.step is step


def test_from_pipe_to_another_class():
    pipe, kwargs = tiny("FluxPipeline")
    call(pipe, kwargs, 8)
    handle = accelerate(pipe, budget=BUDGET)
    call(pipe, kwargs, 8)
    other = d.FluxImg2ImgPipeline.from_pipe(pipe)
    other.set_progress_bar_config(disable=True)
    calls = counted(pipe.transformer)
    call(other, kwargs, 16, image=image.picture(), strength=0.75)
    report = reported(handle)
    assert report.steps == 12 and report.queried[-1] == 11
    assert len(calls) == report.evaluations == BUDGET
    handle.remove()
    calls.clear()
    call(other, kwargs, 16, image=image.picture(), strength=0.75)
    assert len(calls) == 12


def test_another_pipe_of_the_class_is_not_touched():
    one, kwargs = tiny("FluxPipeline")
    two, _ = tiny("FluxPipeline")
    plain, calls = call(two, kwargs), counted(two.transformer)
    with accelerated(one, budget=BUDGET) as handle:
        call(one, kwargs)
        assert torch.equal(call(two, kwargs), plain) and len(calls) == STEPS
        assert len(handle.reports) == 1


def test_a_scheduler_that_the_user_swaps():
    pipe, kwargs = tiny("FluxPipeline")
    handle = accelerate(pipe, budget=BUDGET)
    ours, old, calls = call(pipe, kwargs), pipe.scheduler, counted(pipe.transformer)
    pipe.scheduler = type(old).from_config(old.config)
    assert torch.equal(call(pipe, kwargs), ours) and len(calls) == BUDGET
    assert [r.evaluations for r in handle.reports] == [BUDGET] * 2
    assert not {"step", "__getstate__"} & set(vars(old))
    handle.remove()
    assert not {"step", "__getstate__"} & set(vars(pipe.scheduler))


def test_accelerating_twice_replaces():
    pipe, kwargs = tiny("FluxPipeline")
    call(pipe, kwargs)
    before, calls = marks(pipe), counted(pipe.transformer)
    first = accelerate(pipe, budget=8)
    second = accelerate(pipe, budget=BUDGET)
    call(pipe, kwargs)
    assert first.report is None and reported(second).evaluations == BUDGET == len(calls)
    first.remove()
    call(pipe, kwargs)
    assert len(calls) == 2 * BUDGET
    second.remove()
    second.remove()
    assert marks(pipe) == before


def test_two_pipes_with_one_scheduler():
    """The first pipe's handle sees no runs of the second, which has a denoiser of its own."""
    one, kwargs = tiny("FluxPipeline")
    two, _ = tiny("FluxPipeline")
    plain = call(two, kwargs)
    two.scheduler = one.scheduler
    with accelerated(one, budget=BUDGET) as handle:
        assert torch.equal(call(two, kwargs), plain) and handle.report is None
        assert not intercepted(one)
        call(one, kwargs)
        assert reported(handle).evaluations == BUDGET
    assert torch.equal(call(two, kwargs), plain)


def test_two_pipes_with_one_denoiser():
    """An accelerated run of one does not show in a plain run of the other, nor the reverse."""
    one, kwargs = tiny("FluxPipeline")
    two, _ = tiny("FluxPipeline")
    two.transformer = one.transformer
    plain = call(two, kwargs)
    with accelerated(one, budget=BUDGET) as handle:
        call(one, kwargs)
        assert torch.equal(call(two, kwargs), plain)
        assert reported(handle).evaluations == BUDGET and len(handle.reports) == 1


def test_a_run_inside_a_run():
    """A callback that runs a plain pipe over the same denoiser gets that pipe's own result."""
    one, kwargs = tiny("FluxPipeline")
    two, _ = tiny("FluxPipeline")
    two.transformer = one.transformer
    plain, inner = call(two, kwargs), []
    preview = after(3, lambda pipe: inner.append(call(two, kwargs)))
    with accelerated(one, anchors=EARLY):
        call(one, kwargs, callback_on_step_end=preview)
    assert torch.equal(inner[0], plain)


def test_the_handle():
    pipe, kwargs = tiny("FluxPipeline")
    call(pipe, kwargs)
    before = marks(pipe)
    with accelerated(pipe, budget=BUDGET) as handle:
        assert handle.report is None and handle.reports == []
        call(pipe, kwargs)
        call(pipe, kwargs, 10)
        assert [r.steps for r in handle.reports] == [12, 10] and reported(handle).steps == 10
    assert marks(pipe) == before


def test_the_reports_outlive_remove():
    pipe, kwargs = tiny("FluxPipeline")
    with accelerate(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs)
    assert reported(handle).evaluations == BUDGET


def test_the_models_are_freed_with_the_pipe():
    pipe, kwargs = tiny("FluxPipeline")
    handle = accelerate(pipe, budget=BUDGET)
    call(pipe, kwargs)
    freed = weakref.ref(pipe.transformer)
    del pipe, handle
    gc.collect()
    assert freed() is None


def test_one_line_in_the_log(caplog):
    pipe, kwargs = tiny("FluxPipeline")
    with caplog.at_level(logging.INFO, "geoshrink"), accelerated(pipe, budget=BUDGET):
        call(pipe, kwargs)
    lines = [r.getMessage() for r in caplog.records if "stages exact" in r.getMessage()]
    assert len(lines) == 1 and "6 of 12 stages exact" in lines[0] and "2.0×" in lines[0]


# --- faults ------------------------------------------------------------------------------------


def break_denoiser(pipe: Any, error: type[BaseException]) -> Callable[[], None]:
    calls: list[int] = []

    def hook(module: Any, args: Any) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise error

    return pipe.transformer.register_forward_pre_hook(hook).remove


def break_step(pipe: Any, error: type[BaseException], at: int = 4) -> Callable[[], None]:
    kind, calls = type(pipe.scheduler), []
    plain = kind.step

    @functools.wraps(plain)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == at + 1:
            raise error
        return plain(self, *args, **kwargs)

    kind.step = step
    return lambda: setattr(kind, "step", plain)


def break_callback(pipe: Any, error: type[BaseException]) -> Callable[[], None]:
    return lambda: None


BREAKS = {"denoiser": break_denoiser, "step": break_step, "callback": break_callback}


def faulty(pipe: Any, kwargs: dict, where: str, error: type[BaseException], **options: Any):
    """An accelerated run that fails in its fifth stage; the handle."""
    mend = BREAKS[where](pipe, error)

    def raise_it(pipe: Any) -> None:
        raise error

    more: dict[str, Any] = {}
    if where == "callback":
        more["callback_on_step_end"] = after(3, raise_it)
    try:
        handle = accelerate(pipe, **options)
        with pytest.raises(error):
            call(pipe, kwargs, **more)
    finally:
        mend()
    return handle


FAULTS = [
    pytest.param(where, error, id=f"{where}-{error.__name__}")
    for where in BREAKS
    for error in (Stop, KeyboardInterrupt)
]


@pytest.mark.parametrize("where, error", FAULTS)
def test_after_a_fault_and_remove_everything_is_as_before(where, error):
    pipe, kwargs = tiny("FluxPipeline")
    plain, before = call(pipe, kwargs), marks(pipe)
    keys = set(vars(pipe.scheduler))
    handle = faulty(pipe, kwargs, where, error, anchors=EARLY)
    handle.remove()
    assert marks(pipe) == before and set(vars(pipe.scheduler)) == keys
    assert torch.equal(call(pipe, kwargs), plain)


@pytest.mark.parametrize("where, error", FAULTS)
def test_after_a_fault_the_next_run_is_a_fresh_one(where, error):
    pipe, kwargs = tiny("FluxPipeline")
    with accelerated(pipe, anchors=EARLY):
        want = call(pipe, kwargs)
    handle = faulty(pipe, kwargs, where, error, anchors=EARLY)
    assert torch.equal(call(pipe, kwargs), want)
    assert reported(handle).evaluations == len(EARLY) and not reported(handle).extra
    assert not intercepted(pipe)


@pytest.mark.parametrize("where", BREAKS)
def test_after_a_fault_the_denoiser_answers_for_itself(where):
    pipe, kwargs = tiny("FluxPipeline")
    direct = direct_call(pipe, kwargs)
    want = direct()
    faulty(pipe, kwargs, where, Stop, anchors=EARLY)
    assert torch.equal(direct(), want)
    assert torch.equal(direct(), want)


@pytest.mark.parametrize("where", BREAKS)
def test_after_a_fault_a_swapped_scheduler_begins_afresh(where):
    pipe, kwargs = tiny("FluxPipeline")
    with accelerated(pipe, anchors=EARLY):
        want = call(pipe, kwargs)
    faulty(pipe, kwargs, where, Stop, anchors=EARLY)
    pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config)
    assert torch.equal(call(pipe, kwargs), want)


@pytest.mark.parametrize("where", ["denoiser", "step"])
def test_after_a_fault_nothing_is_held(where):
    pipe, kwargs = tiny("FluxPipeline")
    outputs: list[weakref.ref] = []
    watch = pipe.transformer.register_forward_hook(
        lambda module, args, out: outputs.append(weakref.ref(out[0]))
    )
    handle = faulty(pipe, kwargs, where, Stop, anchors=EARLY)
    watch.remove()
    gc.collect()
    assert len(outputs) >= 4 and not any(ref() is not None for ref in outputs)
    assert not intercepted(pipe)
    handle.remove()


def test_after_a_run_nothing_is_held():
    pipe, kwargs = tiny("FluxPipeline")
    outputs: list[weakref.ref] = []
    pipe.transformer.register_forward_hook(
        lambda module, args, out: outputs.append(weakref.ref(out[0]))
    )
    with accelerated(pipe, anchors=EARLY):
        call(pipe, kwargs)
        gc.collect()
        assert len(outputs) == len(EARLY) and not any(ref() is not None for ref in outputs)


def interrupt(pipe: Any) -> None:
    pipe._interrupt = True


def test_an_interrupted_run():
    pipe, kwargs = tiny("FluxPipeline")
    plain = call(pipe, kwargs)
    with accelerated(pipe, anchors=EARLY) as handle:
        want = call(pipe, kwargs)
        call(pipe, kwargs, callback_on_step_end=after(3, interrupt))
        assert torch.equal(call(pipe, kwargs), want)
        assert [r.evaluations for r in handle.reports] == [5, 4, 5]
        assert [bool(r.reasons) for r in handle.reports] == [False, True, False]
        assert handle.reports[1].reasons == ((3, "the loop has come no further"),)
        call(pipe, kwargs, callback_on_step_end=after(3, interrupt))
    assert not intercepted(pipe)
    assert torch.equal(call(pipe, kwargs), plain)


def test_after_an_interrupted_run_the_denoiser_answers_for_itself():
    pipe, kwargs = tiny("FluxPipeline")
    direct = direct_call(pipe, kwargs)
    want = direct()
    accelerate(pipe, anchors=EARLY)
    call(pipe, kwargs, callback_on_step_end=after(3, interrupt))
    assert torch.equal(direct(), want)


def test_a_callback_may_call_the_denoiser():
    pipe, kwargs = tiny("FluxPipeline")
    direct, got = direct_call(pipe, kwargs), []
    want = direct()
    with accelerated(pipe, anchors=EARLY):
        result = call(pipe, kwargs)
        peek = after(3, lambda pipe: got.append(direct()))
        again = call(pipe, kwargs, callback_on_step_end=peek)
    assert torch.equal(got[0], want) and torch.equal(result, again)


def test_removed_in_mid_run():
    """From there on every stage is exact."""
    pipe, kwargs = tiny("FluxPipeline")
    call(pipe, kwargs)
    before, calls = marks(pipe), counted(pipe.transformer)
    handle = accelerate(pipe, anchors=EARLY)
    out = call(pipe, kwargs, callback_on_step_end=after(4, lambda pipe: handle.remove()))
    assert len(calls) == 4 + 7 and out.isfinite().all() and marks(pipe) == before


def test_accelerated_in_mid_run():
    pipe, kwargs = tiny("FluxPipeline")
    accelerate(pipe, anchors=EARLY)
    again = after(4, lambda pipe: accelerate(pipe, budget=8))
    with pytest.raises(RuntimeError, match=r"FluxPipeline|running"):
        call(pipe, kwargs, callback_on_step_end=again)


# --- one run after another ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["FluxPipeline", "StableDiffusionPipeline", "WanPipeline"])
def test_other_sizes_and_step_counts(name):
    pipe, kwargs = tiny(name)
    runs = [(12, {}), (16, {"height": 32}), (3, {}), (9, {"width": 48}), (12, {})]
    wanted = []
    for steps, more in runs:
        with accelerated(pipe, budget=BUDGET):
            wanted.append(call(pipe, kwargs, steps, **more))
    with accelerated(pipe, budget=BUDGET) as handle:
        for (steps, more), want in zip(runs, wanted):
            assert torch.equal(call(pipe, kwargs, steps, **more), want)
        assert [r.steps for r in handle.reports] == [12, 16, 3, 9, 12]
        assert [r.evaluations for r in handle.reports] == [6, 6, 3, 6, 6]
        assert not any(r.extra for r in handle.reports)


@pytest.mark.parametrize("name", ["FluxPipeline", "StableDiffusionPipeline", "WanPipeline"])
def test_every_sample_of_a_batch_is_its_own_run(name):
    pipe, kwargs = tiny(name)
    prompts = [{k: v.roll(i, -1) for k, v in kwargs.items() if "embeds" in k} for i in range(2)]
    # Flux and Wan do not repeat embeddings that they are given
    more = {"num_images_per_prompt": 2} if name == "StableDiffusionPipeline" else {}
    each = prompts if more else [prompts[0], prompts[0], prompts[1], prompts[1]]
    batch = {**kwargs, **{k: torch.cat([p[k] for p in each]) for k in prompts[0]}}
    seeds = [torch.Generator().manual_seed(i) for i in range(4)]
    with accelerated(pipe, budget=BUDGET, rule="chordal") as handle:
        together = call(pipe, batch, **more, generator=seeds)
        assert len(together) == 4 and reported(handle).evaluations == BUDGET
        for i in range(4):
            noise = torch.Generator().manual_seed(i)
            alone = call(pipe, {**kwargs, **prompts[i // 2]}, generator=noise)
            assert torch.allclose(together[i], alone[0], rtol=1e-3, atol=1e-3), i
    assert (together[0] - together[3]).abs().max() > 0.1


@pytest.mark.parametrize("name", ["FluxPipeline", "StableDiffusion3Pipeline", "WanPipeline"])
def test_half_precision(monkeypatch, name):
    pipe, kwargs = tiny(name)
    pipe.transformer.to(torch.bfloat16)
    kwargs = {k: v.bfloat16() if "embeds" in k else v for k, v in kwargs.items()}
    plain = call(pipe, kwargs)
    seen = received(monkeypatch, pipe.scheduler)
    with accelerated(pipe, budget=BUDGET) as handle:
        out = call(pipe, kwargs)
    assert out.dtype == plain.dtype and out.isfinite().all()
    assert len({v.dtype for v, _ in seen}) == 1 and reported(handle).predicted
    with accelerated(pipe, budget=STEPS):
        assert torch.equal(call(pipe, kwargs), plain)


# --- bad input ---------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], str]] = [
    ({"budget": 6, "speedup": 2.0}, "speedup"),
    ({"budget": 3}, "3"),
    ({"budget": 6, "rule": "magic"}, "magic"),
    ({"budget": 6, "space": "outer"}, "outer"),
    ({"budget": 6, "anchors": "magic"}, "magic"),
    ({"budget": 6, "colour": "red"}, "colour"),
    ({"budget": 6, "denoisers": ["unet"]}, "FluxPipeline.*'unet'.*transformer"),
    ({"budget": 6, "denoisers": []}, "FluxPipeline.*denoiser"),
    ({"budget": 6, "regimes": [5]}, "regimes"),
    ({"anchors": [0, 1, -5]}, "-5"),
    ({"anchors": [0, 1, "last"]}, "last"),
    ({"anchors": [1, 2, 3]}, "0"),
    ({"anchors": [0, 3, 2]}, "3"),
    ({"plan": 10}, "plan=10 is not a plan"),
    ({"budget": 6, "refine": 1.5}, "1.5"),
]


@pytest.mark.parametrize("options, message", BAD)
def test_bad_options_are_refused_at_once(options, message):
    pipe, _ = tiny("FluxPipeline")
    before, state = marks(pipe), dict(vars(pipe.scheduler))
    with pytest.raises((ValueError, TypeError), match=message):
        accelerate(pipe, **options)
    assert marks(pipe) == before and vars(pipe.scheduler).keys() == state.keys()


class Bare:
    """An object that is no pipeline."""


@pytest.mark.parametrize("host", [Bare(), nn.Linear(2, 2), 5, None, "pipe"])
def test_hosts_without_a_scheduler(host):
    with pytest.raises(TypeError, match=f"{type(host).__name__}.*scheduler"):
        accelerate(host, budget=BUDGET)


def test_a_host_without_a_denoiser():
    host = Bare()
    host.scheduler = image.flow()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"Bare.*denoisers="):
        accelerate(host, budget=BUDGET)
    assert "step" not in vars(host.scheduler)  # type: ignore[attr-defined]


class Engine:
    """Somebody's own loop over a scheduler and a network that it keeps out of sight."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.parts = [image.flow(), nn.Linear(4, 4)]

    def __call__(self, steps: int = STEPS) -> Tensor:
        scheduler, net = self.parts
        scheduler.set_timesteps(steps)
        x = torch.ones(2, 4)
        with torch.no_grad():
            for t in scheduler.timesteps:
                x = scheduler.step(net(x), t, x).prev_sample
        return x


def test_a_host_whose_parts_are_named():
    host = Engine()
    plain, calls = host(), counted(host.parts[1])
    parts = {"scheduler": host.parts[0], "denoisers": [host.parts[1]]}
    with accelerated(host, budget=BUDGET, **parts) as handle:
        host()
        assert len(calls) == reported(handle).evaluations == BUDGET
    assert torch.equal(host(), plain)


def test_a_plan_for_this_grid():
    pipe, kwargs = tiny("FluxPipeline")
    call(pipe, kwargs)
    plan = Plan.of(Grid.of(pipe.scheduler.sigmas), BUDGET, anchors="geometric")
    with accelerated(pipe, plan=plan) as handle:
        call(pipe, kwargs)
    assert reported(handle).queried == plan.anchors


def check_exact(handle: Handle, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every stage was queried, and the report and the log say why."""
    report = reported(handle)
    assert report.evaluations == report.steps == STEPS and not report.predicted
    assert [n for n, reason in report.reasons if re.search(why, reason)] == [0], report.reasons
    assert any("not accelerated" in r.message for r in caplog.records if r.levelname == "WARNING")


def test_a_plan_for_another_grid(caplog):
    pipe, kwargs = tiny("FluxPipeline")
    plain, before = call(pipe, kwargs), marks(pipe)
    handle = accelerate(pipe, plan=Plan.of([1 - i / 20 for i in range(21)], 8))
    assert torch.equal(call(pipe, kwargs), plain) and not intercepted(pipe)
    check_exact(handle, "made for 20 stages, not 12.*every stage is queried", caplog)
    handle.remove()
    assert marks(pipe) == before and torch.equal(call(pipe, kwargs), plain)
    with pytest.raises(ValueError, match="plan"):
        accelerate(pipe, budget=6, plan=Plan.of([1 - i / 20 for i in range(21)], 8))


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"anchors": [0, 1, 2, 3, 54]}, "54"),
    ({"anchors": list(range(STEPS + 1))}, "12"),
    ({"budget": 6, "coefficients": [0.5] * 55}, "55 coefficients for 12 stages"),
    ({"budget": 6, "blocks": Blocks(dims=(0, 7))}, "axis 7"),
    ({"budget": 6, "blocks": Blocks(dims=(0, 1), groups=(3, 4))}, r"groups \(3, 4\)"),
]


@pytest.mark.parametrize("options, why", UNFIT)
def test_what_does_not_fit_this_run_makes_it_an_exact_one(options, why, caplog):
    pipe, kwargs = tiny("FluxPipeline")
    plain = call(pipe, kwargs)
    with accelerated(pipe, **options) as handle:
        assert torch.equal(call(pipe, kwargs), plain) and not intercepted(pipe)
    check_exact(handle, why, caplog)


@pytest.mark.parametrize(
    "options", [{"anchors": [0, 1, 2, 3, 54]}, {"budget": 6, "coefficients": [0.5] * 55}]
)
def test_options_for_another_number_of_steps_than_fifty(options):
    pipe, kwargs = tiny("FluxPipeline")
    with accelerated(pipe, **options) as handle:
        call(pipe, kwargs, 55)
    assert reported(handle).evaluations == len(reported(handle).queried) < 10


def test_without_options():
    pipe, kwargs = tiny("FluxPipeline")
    with accelerated(pipe) as handle:
        call(pipe, kwargs, 24)
    assert reported(handle).evaluations == 8


class Silent(Engine):
    """A loop that steps by itself."""

    def __call__(self, steps: int = STEPS) -> Tensor:
        scheduler, net = self.parts
        scheduler.set_timesteps(steps)
        x = torch.ones(2, 4)
        with torch.no_grad():
            for _ in scheduler.timesteps:
                x = x - net(x) / steps
        return x


def test_a_loop_that_never_steps():
    host = Silent()
    plain = host()
    parts = {"scheduler": host.parts[0], "denoisers": [host.parts[1]]}
    with accelerated(host, budget=BUDGET, **parts) as handle:
        assert torch.equal(host(), plain) and torch.equal(host(), plain)
        assert handle.report is None or not handle.report.predicted
    assert "_call_impl" not in vars(host.parts[1])


def test_a_scheduler_that_is_an_optional_argument():
    pipe, kwargs = tiny("LongCatAudioDiTPipeline")
    assert "scheduler" not in pipe.components and hasattr(pipe.scheduler, "step")
    plain = call(pipe, kwargs)
    with accelerated(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs)
        assert not reported(handle).predicted or reported(handle).evaluations == BUDGET
    assert torch.equal(call(pipe, kwargs), plain)


def test_a_denoiser_that_is_named_is_accelerated():
    host = Sampler()
    plain, calls = host(), counted(host.net)
    with accelerated(host, budget=BUDGET, denoisers=["net"]) as handle:
        host()
        assert len(calls) == reported(handle).evaluations == BUDGET
    assert torch.equal(host(), plain)


def test_a_denoiser_of_the_users_own_class_is_accelerated():
    pipe, kwargs = tiny("FluxPipeline")
    kind = type(pipe.transformer)
    pipe.transformer.__class__ = type("Mine", (kind,), {"__module__": "mine"})
    calls = counted(pipe.transformer)
    with accelerated(pipe, budget=BUDGET, denoisers=["transformer"]) as handle:
        call(pipe, kwargs)
        assert len(calls) == reported(handle).evaluations == BUDGET


def test_a_script_that_leaves_one_loop_and_begins_another():
    """Both loops are in one frame; the second has a scheduler that was never accelerated."""
    # No stack tells the two apart: the first call is lost, and the second one says so.
    torch.manual_seed(0)
    host, scheduler, net = Bare(), image.flow(), nn.Linear(4, 4)
    accelerate(host, anchors=EARLY, scheduler=scheduler, denoisers=[net])
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"not stepped.*handle\.remove\(\)"):
        for solver, last in ((scheduler, 3), (image.flow(), STEPS)):
            solver.set_timesteps(STEPS)
            x = torch.ones(2, 4)
            for i, t in enumerate(solver.timesteps):
                x = solver.step(net(x), t, x).prev_sample
                if i == last:
                    break
    assert "_call_impl" not in vars(net)


def test_a_loop_of_ones_own_over_a_pipes_parts():
    pipe, kwargs = tiny("FluxPipeline")
    kept: list[dict[str, Any]] = []
    hook = pipe.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: kept.append(kwargs), with_kwargs=True
    )
    call(pipe, kwargs, 8)
    hook.remove()
    calls, given, x = counted(pipe.transformer), kept[0], kept[0]["hidden_states"]
    with accelerated(pipe, budget=BUDGET) as handle, torch.no_grad():
        pipe.scheduler.set_timesteps(STEPS)
        for t in pipe.scheduler.timesteps:
            v = pipe.transformer(**{**given, "hidden_states": x})[0]
            x = pipe.scheduler.step(v, t, x).prev_sample
        assert reported(handle).steps == STEPS
    assert len(calls) == reported(handle).evaluations == BUDGET


# --- what is not run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["StableDiffusionControlNetPipeline", "FluxControlNetPipeline", "SanaControlNetPipeline"],
)
def test_controlnets_rest_at_skipped_stages(name):
    pipe, kwargs = tiny(name)
    plain = call(pipe, kwargs)
    denoiser = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    calls, control = counted(denoiser), counted(pipe.controlnet)
    with accelerated(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs)
    assert len(calls) == len(control) == reported(handle).evaluations == BUDGET
    assert torch.equal(call(pipe, kwargs), plain)


def test_offloaded_modules_are_not_touched_at_skipped_stages():
    hooks: Any = pytest.importorskip("accelerate.hooks")

    class Moves(hooks.ModelHook):
        count = 0

        def pre_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return args, kwargs

    pipe, kwargs = tiny("FluxPipeline")
    plain, moves = call(pipe, kwargs), Moves()
    hooks.add_hook_to_module(pipe.transformer, moves)
    with accelerated(pipe, budget=BUDGET):
        call(pipe, kwargs)
        assert moves.count == BUDGET
        hooks.remove_hook_from_module(pipe.transformer)
        hooks.add_hook_to_module(pipe.transformer, moves)  # as maybe_free_model_hooks does
        call(pipe, kwargs)
        assert moves.count == 2 * BUDGET
    assert torch.equal(call(pipe, kwargs), plain)


# --- what a user sees --------------------------------------------------------------------------


def test_the_progress_bar_and_one_line_say_what_was_done(caplog):
    pipe, kwargs = tiny("FluxPipeline")
    shown = io.StringIO()
    pipe.set_progress_bar_config(disable=False, file=shown, mininterval=0)
    with caplog.at_level("INFO", logger="geoshrink"), accelerated(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs)
    assert f"{BUDGET} exact" in shown.getvalue()
    lines = [r.getMessage() for r in caplog.records if "stages exact" in r.getMessage()]
    assert lines == [
        f"geoshrink: {BUDGET} of {STEPS} stages exact, {STEPS - BUDGET} predicted, "
        f"{STEPS / BUDGET:.1f}×; {reported(handle).estimate}"
    ]
    assert re.search(r"about \d+ dB to the full run \(\d+ to \d+\)$", lines[0])


def test_a_run_that_is_not_to_be_trusted_warns(caplog, monkeypatch):
    monkeypatch.setattr(importlib.import_module("geoshrink.quality.estimate"), "MARGIN", 1e9)
    pipe, kwargs = tiny("FluxPipeline")
    with accelerated(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs)
        call(pipe, kwargs)
    assert all(r.doubtful and ADVICE in str(r) for r in handle.reports)
    assert sum(ADVICE in r.getMessage() for r in caplog.records) == 1  # once per handle


def test_a_pipeline_is_told_at_its_very_end(caplog, monkeypatch):
    """The estimate waits for the device: nothing of the pipeline may come after it."""
    monkeypatch.setattr(importlib.import_module("geoshrink.quality.estimate"), "MARGIN", 1e9)
    pipe, kwargs = tiny("FluxPipeline")
    caplog.clear()  # what transformers says when it is imported
    ends, kind = [], type(pipe)
    plain = kind.maybe_free_model_hooks
    monkeypatch.setattr(
        kind, "maybe_free_model_hooks", lambda self: (ends.append(len(caplog.records)), plain(self))
    )
    with accelerated(pipe, budget=BUDGET):
        call(pipe, kwargs)
        assert ends == [0] and len(caplog.records) == 1


def test_a_cache_applied_by_hand_after_us_is_refused():
    hooks = pytest.importorskip("diffusers.hooks")
    pipe, kwargs = tiny("FluxPipeline")
    with accelerated(pipe, budget=BUDGET):
        config = hooks.FirstBlockCacheConfig(threshold=0.1)
        hooks.apply_first_block_cache(pipe.transformer, config)
        with pytest.raises(ValueError, match="has a cache enabled"):
            call(pipe, kwargs)
        assert not intercepted(pipe)


def test_a_skipped_output_that_is_used_by_hand_is_told():
    class ByHand(Sampler):
        def __call__(self) -> Tensor:
            self.scheduler.set_timesteps(STEPS)
            x = torch.ones(2, 4)
            with torch.no_grad():
                for i, t in enumerate(self.scheduler.timesteps):
                    output = self.net(x)
                    if i == 6:
                        return x - output
                    x = self.scheduler.step(output, t, x).prev_sample
            return x

    pipe = ByHand()
    with accelerated(pipe, denoisers=[pipe.net], scheduler=pipe.scheduler, anchors=EARLY) as handle:
        pipe()
        report = reported(handle)
    assert (6, ASTRAY) in report.reasons and report.doubtful
