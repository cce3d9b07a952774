"""accelerate() on the real loops of TangoFlux, Hunyuan3D-2, ACE-Step 1.5 and MiniMax-H3.

Tiny random networks: this proves the plumbing, not the quality. A test skips only where tangoflux
or hy3dgen is not installed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oracle
from geoshrink import Handle, Plan, Report, accelerate

pytest.importorskip("diffusers")

from hosts import upstream
from hosts.upstream import HOSTS, Host

pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]
torch.set_num_threads(1)

STEPS, BUDGET = 12, 6
EARLY = [0, 1, 2, 3, 10]


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> Host:
    return HOSTS[request.param]()


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def counted(module: nn.Module) -> list[int]:
    """Grows by one with every forward call of the module."""
    calls: list[int] = []
    module.register_forward_pre_hook(lambda module, args: calls.append(1))
    return calls


def marks(host: Host) -> list[set[str]]:
    """The names that every part of a host carries; what a scheduler counts is left out."""
    own = [{name for name in vars(s) if name in ("step", "set_timesteps")} for s in host.schedulers]
    return [set(vars(host.given)), set(vars(host.denoiser)), *own]


def reported(handle: Handle) -> Report:
    assert handle.report is not None
    return handle.report


def received(monkeypatch: pytest.MonkeyPatch, scheduler: Any) -> list[tuple[Any, Tensor]]:
    """(scheduler, model output) of every step that is really made."""
    seen: list[tuple[Any, Tensor]] = []
    plain = type(scheduler).step

    @functools.wraps(plain)
    def step(self: Any, model_output: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((self, model_output.clone()))
        return plain(self, model_output, *args, **kwargs)

    monkeypatch.setattr(type(scheduler), "step", step)
    return seen


# --- every host ----------------------------------------------------------------------------------


def test_a_budget_of_all_stages_is_the_plain_run(host: Host):
    plain, calls = host(STEPS), counted(host.denoiser)
    with accelerate(host.given, budget=STEPS) as handle:
        assert same(host(STEPS), plain) and len(calls) == STEPS
        assert not reported(handle).predicted


def test_query_counts(host: Host):
    plain, calls = host(STEPS), counted(host.denoiser)
    with accelerate(host.given, budget=BUDGET) as handle:
        made = host(STEPS)
        assert len(calls) == reported(handle).evaluations == BUDGET
        assert not reported(handle).extra and not reported(handle).reasons
    assert not same(made, plain) and all(bool(t.isfinite().all()) for t in made)


def test_two_runs_in_a_row(host: Host):
    with accelerate(host.given, budget=BUDGET) as handle:
        first = host(STEPS)
        assert same(host(STEPS), first)
        host(9)
        stages = [r.steps for r in handle.reports]
        assert [r.evaluations for r in handle.reports] == [BUDGET] * 3
        assert stages[0] == stages[1] == stages[2] + 3


def test_remove(host: Host):
    plain, before, calls = host(STEPS), marks(host), counted(host.denoiser)
    handle = accelerate(host.given, budget=BUDGET)
    host(STEPS)
    handle.remove()
    calls.clear()
    assert marks(host) == before
    assert same(host(STEPS), plain) and len(calls) == STEPS


class Stop(Exception):
    """A fault that a test raises."""


def break_denoiser(host: Host, patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The third model call fails; what is returned mends it."""
    calls: list[int] = []

    def failing(module: nn.Module, args: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Stop

    return host.denoiser.register_forward_pre_hook(failing).remove


def break_step(host: Host, patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The first step of stage 5 fails, which is a skipped one."""
    made, kind = [], type(host.schedulers[0])
    step = kind.step

    @functools.wraps(step)
    def failing(*args: Any, **kwargs: Any) -> Any:
        made.append(1)
        if len(made) == 5 * len(host.schedulers) + 1:
            raise Stop
        return step(*args, **kwargs)

    patch.setattr(kind, "step", failing)
    return patch.undo


@pytest.mark.parametrize("break_it", [break_denoiser, break_step])
def test_an_exception_in_mid_run(host: Host, break_it: Any, monkeypatch: pytest.MonkeyPatch):
    plain, before = host(STEPS), marks(host)
    with accelerate(host.given, anchors=EARLY):
        wanted = host(STEPS)
    mend = break_it(host, monkeypatch)
    handle = accelerate(host.given, anchors=EARLY)
    with pytest.raises(Stop):
        host(STEPS)
    mend()
    assert marks(host)[1] == before[1]  # the denoiser answers for itself
    assert same(host(STEPS), wanted) and reported(handle).evaluations == len(EARLY)
    handle.remove()
    assert marks(host) == before and same(host(STEPS), plain)


def test_another_signature_of_step(host: Host, monkeypatch: pytest.MonkeyPatch):
    plain, before = host(STEPS), marks(host)

    def step(self: Any, sample: Tensor, velocity: Tensor, dt: float) -> Any: ...

    with monkeypatch.context() as patch:
        patch.setattr(type(host.schedulers[0]), "step", step)
        with pytest.raises(TypeError, match=r"step\(sample, velocity, dt\).*model_output"):
            accelerate(host.given, budget=BUDGET)
    assert marks(host) == before and same(host(STEPS), plain)


def test_bad_options_leave_nothing(host: Host):
    before = marks(host)
    for options in ({"budget": 3}, {"budget": 6, "rule": "magic"}, {"budget": 6, "colour": "red"}):
        with pytest.raises((ValueError, TypeError)):
            accelerate(host.given, **options)  # type: ignore[arg-type]
    assert marks(host) == before


PREDICTED = ["tangoflux", "hunyuan3d", "minimax-h3", "minimax-h3 with keyframes"]


@pytest.mark.parametrize("name", PREDICTED)
def test_what_is_predicted(name: str, monkeypatch: pytest.MonkeyPatch):
    """The paper's formula along each scheduler's own σ, one angle for each output."""
    host = HOSTS[name]()
    seen = received(monkeypatch, host.schedulers[0])
    with accelerate(host.given, anchors=EARLY, rule="chordal"):
        host(STEPS)
    for scheduler in host.schedulers:
        sigmas = scheduler.sigmas.double().tolist()
        outputs = [v.double().numpy() for owner, v in seen if owner is scheduler]
        assert len(outputs) == STEPS
        history = [(k, outputs[k]) for k in EARLY[:-1]]
        for n in range(4, 10):
            wanted = oracle.predict(history, sigmas, n, "chordal")
            assert np.allclose(outputs[n], wanted, rtol=1e-4, atol=1e-5), n


# --- TangoFlux -----------------------------------------------------------------------------------


def test_tangoflux_by_its_inference_object():
    """What people hold has the model in it; the copy of its scheduler for training is let be."""
    from hosts import video

    host = HOSTS["tangoflux"]()
    package: Any = upstream.upstream("tangoflux", "tangoflux", "datasets")
    whole = object.__new__(package.TangoFluxInference)  # its __init__ downloads
    whole.model, whole.vae = host.given, video.oobleck(64)
    copied, calls = dict(vars(host.given.noise_scheduler_copy)), counted(host.denoiser)
    with accelerate(whole, budget=BUDGET) as handle:
        wave = whole.generate("a dog", steps=STEPS, duration=1)
        assert vars(host.given.noise_scheduler_copy).keys() == copied.keys()
        wanted = Plan.of(host.given.noise_scheduler.sigmas, BUDGET).slow  # it hardly moves
        assert reported(handle).queried == wanted and len(calls) == BUDGET
        assert handle.denoisers == (host.denoiser,) and wave.isfinite().all()


def test_tangoflux_trains_as_before():
    """forward() calls the same transformer outside a sampling loop."""
    host = HOSTS["tangoflux"]()
    latents = torch.randn(1, 6, 64)

    def loss() -> Tensor:
        torch.manual_seed(1)
        return host.given(latents, ["a dog"])[0]

    plain, calls = loss(), counted(host.denoiser)
    with accelerate(host.given, budget=BUDGET):
        host(STEPS)
        calls.clear()
        assert torch.equal(loss(), plain) and len(calls) == 1


def changed(host: Host, method: str, replacement: Callable | None) -> Any:
    """The host's object as a class of the same name would make it that defines another loop."""
    kind = type(host.given)
    body = {name: value for name, value in vars(kind).items() if name != method}
    if replacement is not None:
        body[method] = replacement
    twin = type(kind.__name__, kind.__bases__, body)
    other = object.__new__(twin)
    vars(other).update(vars(host.given))
    return other


def without_guidance(self: Any, prompt: str, num_inference_steps: int = 50) -> Any:
    return self.noise_scheduler.step(self.transformer(prompt), num_inference_steps)


def inline(self: Any, prompt, num_inference_steps=50, guidance_scale=3, duration=10) -> Any:
    self.noise_scheduler.set_timesteps(num_inference_steps)
    return prompt + guidance_scale * self.transformer(duration)


def shape_inline(self: Any, image, num_inference_steps=50, guidance_scale=3, sigmas=None) -> Any:
    self.scheduler.set_timesteps(num_inference_steps, sigmas=sigmas)
    return image + guidance_scale * self.model(image)


CHANGED = [
    ("tangoflux", "inference_flow", None, "the method inference_flow.*encode_text"),
    ("tangoflux", "inference_flow", without_guidance, "without guidance_scale, duration"),
    ("tangoflux", "inference_flow", inline, r"uses \.transformer.*without step"),
    ("hunyuan3d", "__call__", None, "the method __call__.*enable_flashvdm"),
    ("hunyuan3d", "__call__", without_guidance, "without image, guidance_scale, sigmas"),
    ("hunyuan3d", "__call__", shape_inline, r"uses \.model, \.scheduler.*without step"),
]


@pytest.mark.parametrize("name, method, replacement, message", CHANGED)
def test_a_loop_of_another_shape(name: str, method: str, replacement: Any, message: str):
    host = HOSTS[name]()
    other = changed(host, method, replacement)
    before, owned = set(vars(other)), set(vars(host.schedulers[0]))
    with pytest.raises(TypeError, match=f"{type(other).__name__}.*expected.*{message}"):
        accelerate(other, budget=BUDGET)
    assert set(vars(other)) == before and set(vars(host.schedulers[0])) == owned


@pytest.mark.parametrize("name", ["tangoflux", "hunyuan3d"])
@pytest.mark.parametrize("part", ["scheduler", "denoiser"])
def test_a_part_that_was_renamed(name: str, part: str):
    host = HOSTS[name]()
    names = {"tangoflux": ("noise_scheduler", "transformer"), "hunyuan3d": ("scheduler", "model")}
    gone = names[name][part == "denoiser"]
    delattr(host.given, gone)
    with pytest.raises(TypeError, match=rf"expected a .* in \.{gone}, found NoneType"):
        accelerate(host.given, budget=BUDGET)


def test_a_users_own_subclass():
    host = HOSTS["hunyuan3d"]()

    class Mine(type(host.given)):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return super().__call__(*args, **kwargs)

    host.given.__class__ = Mine
    with accelerate(host.given, budget=BUDGET) as handle:
        host(STEPS)
    assert reported(handle).evaluations == BUDGET


# --- Hunyuan3D-2 ---------------------------------------------------------------------------------


def test_hunyuan3d_wastes_no_query_on_the_stage_without_length():
    host = HOSTS["hunyuan3d"]()
    host(STEPS)
    sigmas = host.schedulers[0].sigmas
    assert sigmas[0] == 0 and sigmas[-2] == sigmas[-1] == 1
    calls = counted(host.denoiser)
    with accelerate(host.given, budget=BUDGET) as handle:
        host(STEPS)
        report = reported(handle)
    assert report.steps == STEPS - 1 and report.queried[-1] <= STEPS - 2
    assert len(calls) == len(report.queried) == BUDGET
    backwards = [1 - s for s in sigmas.double().tolist()]
    assert report.queried == Plan.of(backwards, BUDGET, correct=False).anchors
    assert "cells are not corrected: the grid has stages of zero length" in report.plan


def test_hunyuan3d_in_data_space():
    """With every coefficient 0 the estimate of the data, x + (1 − σ)·v, is held."""
    host = HOSTS["hunyuan3d"]()
    estimates: list[Tensor] = []

    def look(step: int, t: Any, outputs: Any) -> None:
        estimates.append(outputs.prev_sample)

    options = {"anchors": EARLY, "coefficients": [0.0] * (STEPS - 1), "space": "data"}
    with accelerate(host.given, **options) as handle:
        (data,) = host(STEPS, callback=look, callback_steps=1)
    assert len(reported(handle).predicted) == STEPS - 1 - len(EARLY)
    sigmas = host.schedulers[0].sigmas
    moved = [(estimates[n] - estimates[n - 1]) / (sigmas[n + 1] - sigmas[n]) for n in range(4, 10)]
    held = [estimates[n - 1] + (1 - sigmas[n]) * v for n, v in zip(range(4, 10), moved)]
    assert all(torch.allclose(h, held[0], atol=1e-4) for h in held) and data.isfinite().all()


def test_hunyuan3d_turbo_is_refused():
    host = upstream.hunyuan3d("ConsistencyFlowMatchEulerDiscreteScheduler", guidance_embed=True)
    plain, before = host(STEPS), marks(host)
    with pytest.raises(TypeError, match=r"ConsistencyFlowMatchEuler.* turbo"):
        accelerate(host.given, budget=BUDGET)
    assert marks(host) == before and same(host(STEPS), plain)


def test_hunyuan3d_with_embedded_guidance():
    """One branch a stage, on the plain scheduler: no turbo."""
    host = upstream.hunyuan3d(guidance_embed=True)
    plain, calls = host(STEPS), counted(host.denoiser)
    with accelerate(host.given, budget=BUDGET):
        assert not same(host(STEPS), plain) and len(calls) == BUDGET


# --- ACE-Step 1.5 --------------------------------------------------------------------------------

INTERVAL = {"cfg_interval_start": 0.2, "cfg_interval_end": 0.7}


def regimes_of(host: Host) -> list[int]:
    times = host.schedulers[0].timesteps.tolist()
    inside = [
        INTERVAL["cfg_interval_start"] <= 1 - t <= INTERVAL["cfg_interval_end"] for t in times
    ]
    return [n for n in range(1, len(inside)) if inside[n] != inside[n - 1]]


def test_acestep_plans_with_its_guidance_interval():
    """The budget is kept, both ends of the interval are queried, and the report shows them."""
    host = HOSTS["acestep"]()
    plain = host(20, **INTERVAL)
    regimes = regimes_of(host)
    assert len(regimes) == 2
    calls = counted(host.denoiser)
    with accelerate(host.given, budget=10) as handle:
        host(20, **INTERVAL)
        report = reported(handle)
    assert len(calls) == 10 and not report.extra
    wanted = Plan.of(host.schedulers[0].sigmas, 10, regimes=regimes).anchors
    assert report.queried == wanted and set(regimes) <= set(wanted)
    assert [n for n, why in report.reasons if "guidance" in why] == regimes
    with accelerate(host.given, budget=20):
        assert same(host(20, **INTERVAL), plain)


def test_acestep_detects_the_interval_where_the_anchors_are_given():
    host = HOSTS["acestep"]()
    host(20, **INTERVAL)
    regimes = regimes_of(host)
    calls = counted(host.denoiser)
    anchors = [0, 1, 2, 3, 19]
    with accelerate(host.given, anchors=anchors) as handle:
        host(20, **INTERVAL)
        report = reported(handle)
    assert report.queried == tuple(anchors) and report.extra == tuple(regimes)
    assert len(calls) == len(anchors) + len(regimes)


@pytest.mark.parametrize("start, end", [(0.03, 1.0), (0.0, 0.4), (0.9, 1.0), (2.0, 3.0)])
def test_acestep_with_any_interval(start: float, end: float):
    """The batch differs between anchor and skipped stage; guidance may never act at all."""
    host = HOSTS["acestep"]()
    more = {"cfg_interval_start": start, "cfg_interval_end": end}
    if start > 1:
        more = {"guidance_scale": 1.0}
    calls = counted(host.denoiser)
    with accelerate(host.given, budget=8) as handle:
        (made,) = host(20, **more)
    assert len(calls) == reported(handle).evaluations == 8 and made.isfinite().all()


def test_acestep_covers():
    """A cover blends in a second call; both are skipped together."""
    host = HOSTS["acestep"]()
    cover = {"task_type": "cover", "audio_cover_strength": 0.5}
    plain, calls = host(STEPS, **cover), counted(host.denoiser)
    with accelerate(host.given, budget=BUDGET) as handle:
        assert not same(host(STEPS, **cover), plain)
        assert len(calls) == 2 * BUDGET and reported(handle).evaluations == BUDGET
    with accelerate(host.given, budget=STEPS):
        assert same(host(STEPS, **cover), plain)


def test_acestep_momentum_catches_up(monkeypatch: pytest.MonkeyPatch):
    """At an anchor the momentum is first fed, for each missed stage, a difference in between."""
    module: Any = importlib.import_module("diffusers.pipelines.ace_step.pipeline_ace_step")
    plain, seen = module.normalized_guidance, []

    def watched(**given: Any) -> Tensor:
        guided = plain(**given)
        average = given["momentum_buffer"].running_average
        seen.append((given["pred_cond"] - given["pred_uncond"], average))
        return guided

    monkeypatch.setattr(module, "normalized_guidance", watched)
    host = HOSTS["acestep"]()
    with accelerate(host.given, anchors=EARLY) as handle:
        host(STEPS)
    assert len(seen) == STEPS and reported(handle).queried == tuple(EARLY)
    average: Any = 0
    for before, n in zip([-1, *EARLY], EARLY):
        difference, got = seen[n]
        for k in range(before + 1, n + 1):
            fed = torch.lerp(seen[before][0], difference, (k - before) / (n - before))
            average = fed - 0.75 * average
        assert torch.allclose(got, average, rtol=1e-4, atol=1e-5), n
    held = sum(v.nbytes for v in host(STEPS)) * 2  # v¹ and Δv
    assert reported(handle).bytes_held == held + seen[0][0].nbytes


# --- MiniMax-H3 ----------------------------------------------------------------------------------


def test_minimax_h3_has_one_evaluation_less_than_steps():
    host = HOSTS["minimax-h3"]()
    calls = counted(host.denoiser)
    with accelerate(host.given, budget=10) as handle:
        host(29)  # 30 steps
    assert len(calls) == 10 and reported(handle).steps == 29
    wanted = Plan.of(host.schedulers[0].sigmas, 10).anchors
    assert reported(handle).queried == wanted


def test_minimax_h3_ignores_its_conditioning_rows():
    """What the network says of them changes nothing, exact or predicted."""
    host = HOSTS["minimax-h3 with keyframes"]()
    noise, rows = torch.Generator().manual_seed(1), 2

    def disturb(module: nn.Module, args: Any, outputs: tuple) -> tuple:
        video = outputs[0].clone()
        video[:, :rows] += torch.randn(video[:, :rows].shape, generator=noise)
        return video, *outputs[1:]

    with accelerate(host.given, budget=BUDGET):
        plain = host(STEPS)
        hook = host.denoiser.register_forward_hook(disturb)
        assert same(host(STEPS), plain)
        rows += 1  # the first row that is generated
        assert not same(host(STEPS), plain)
    hook.remove()


def test_signatures_are_kept():
    """MiniMax-H3 asks its transformer which arguments it takes, hy3dgen its scheduler."""
    for name in ("hunyuan3d", "minimax-h3"):
        host = HOSTS[name]()
        methods = [host.denoiser.forward, host.schedulers[0].step, host.schedulers[0].set_timesteps]
        before = [inspect.signature(method) for method in methods]
        with accelerate(host.given, budget=BUDGET):
            host(STEPS)
            now = [host.denoiser.forward, host.schedulers[0].step, host.schedulers[0].set_timesteps]
            assert [inspect.signature(method) for method in now] == before
