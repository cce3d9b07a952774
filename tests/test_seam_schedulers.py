"""The seam between denoiser and scheduler: full budgets, counts, noise streams, what is predicted,
effective stages, regimes, several schedulers.

A tiny Stable Diffusion makes one U-Net call per evaluation (guidance is batched), so that its
forward calls are the evaluations themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import oracle
from geoshrink import Plan, Report, accelerate
from schedulers import (
    ALL,
    FLOW,
    NO_SOLVER,
    ORDER_1,
    ORDER_2,
    PNDM,
    STOCHASTIC,
    Make,
    flow,
    replayed,
)
from tiny_pipelines import (
    EARLY,
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

STEPS, BUDGET = 12, 6


class Bench:
    """A tiny pipeline that counts its denoiser's forward calls."""

    def __init__(self, table: Any, name: str, denoiser: str):
        self.pipe, self.kwargs = table.PIPELINES[name]()
        self.denoiser, self.calls = getattr(self.pipe, denoiser), 0
        self.denoiser.register_forward_pre_hook(self.count)
        self.plain: dict[str, Tensor] = {}
        self.full: dict[str, int] = {}

    def count(self, module: Any, args: Any) -> None:
        self.calls += 1

    def run(self, **more: Any) -> Tensor:
        self.calls = 0
        torch.manual_seed(0)
        noise = torch.Generator().manual_seed(0)
        call = {**self.kwargs, "num_inference_steps": STEPS, "generator": noise, **more}
        return image.tensor(self.pipe(**call))

    def reference(self, name: str, make: Make, **more: Any) -> Tensor:
        """The run of a pipeline that was never accelerated, with a fresh scheduler."""
        key = f"{name} {sorted(more)}"
        self.pipe.scheduler = make()
        if key not in self.plain:
            self.plain[key] = self.run(**more)
            self.full[key] = self.calls
        self.calls = self.full[key]
        return self.plain[key]

    def accelerated(self, **more: Any) -> tuple[Tensor, Report, int]:
        options = {"budget": BUDGET} | {k: more.pop(k) for k in ("budget",) if k in more}
        with accelerate(self.pipe, **options) as handle:
            out = self.run(**more)
            report = handle.report
        assert report is not None
        return out, report, self.calls


@pytest.fixture(scope="module")
def sd() -> Bench:
    return Bench(image, "StableDiffusionPipeline", "unet")


@pytest.fixture(scope="module")
def flux() -> Bench:
    return Bench(image, "FluxPipeline", "transformer")


def unmarked(bench: Bench) -> bool:
    """Whether nothing of ours is left on the scheduler or on the denoiser."""
    modules = {"_call_impl", "_compiled_call_impl"} & set(vars(bench.denoiser))
    return not modules and not {"step", "set_timesteps"} & set(vars(bench.pipe.scheduler))


def paired(report: Report) -> int:
    """Two calls for a stage, one for the last."""
    return 2 * report.evaluations - (STEPS - 1 in report.queried)


def check_counts(bench: Bench, plain: Tensor, evaluations: Callable[[Report], int]) -> None:
    out, report, calls = bench.accelerated()
    assert calls == report.forwards == evaluations(report)
    assert report.steps == STEPS and report.queried[0] == 0
    assert len(report.queried) == BUDGET and not report.extra and not report.reasons
    assert len(report.predicted) == STEPS - BUDGET
    assert out.isfinite().all() and not torch.equal(out, plain)
    assert unmarked(bench)
    assert torch.equal(bench.run(), plain)


# --- a full budget is the plain run ------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_full_budget_is_the_plain_run(sd, name):
    plain = sd.reference(name, ALL[name])
    full = sd.calls
    sd.pipe.scheduler = ALL[name]()
    out, report, calls = sd.accelerated(budget=30)
    assert torch.equal(out, plain) and calls == full
    assert not report.predicted and report.forwards == full
    assert len(report.queried) == report.steps
    assert len(report.extra) == len([r for _, r in report.reasons if "zero length" in r])
    assert unmarked(sd)


@pytest.mark.parametrize("name", FLOW)
def test_a_full_budget_is_the_plain_run_of_a_flow(flux, name):
    plain = flux.reference(name, FLOW[name])
    flux.pipe.scheduler = FLOW[name]()
    out, report, calls = flux.accelerated(budget=STEPS)
    assert torch.equal(out, plain) and calls == report.evaluations == STEPS


# --- with a budget, the calls that are made are those in the report ----------------------------


@pytest.mark.parametrize("name", ORDER_1)
def test_the_evaluations_are_those_in_the_report(sd, name):
    check_counts(sd, sd.reference(name, ORDER_1[name]), lambda report: report.evaluations)


@pytest.mark.parametrize("name", FLOW)
def test_the_evaluations_of_a_flow_are_those_in_the_report(flux, name):
    check_counts(flux, flux.reference(name, FLOW[name]), lambda report: report.evaluations)


@pytest.mark.parametrize("name", ORDER_2)
def test_a_pair_of_evaluations_is_one_stage(sd, name):
    plain = sd.reference(name, ORDER_2[name])
    check_counts(sd, plain, paired)


def test_a_pair_of_flow_evaluations_is_one_stage():
    bench = Bench(image, "StableDiffusion3Pipeline", "transformer")
    plain = bench.reference("Heun", d.FlowMatchHeunDiscreteScheduler)
    check_counts(bench, plain, paired)


@pytest.mark.parametrize("name", PNDM)
def test_pndm_is_accelerated(sd, name):
    sd.reference(name, PNDM[name])
    full = sd.calls
    out, report, calls = sd.accelerated(budget=8)
    assert calls == report.evaluations < full and len(report.queried) == 8
    assert out.isfinite().all()


@pytest.mark.parametrize("strength", [0.6, 0.9, 0.95])
@pytest.mark.parametrize("name", PNDM)
def test_pndm_that_begins_on_a_timestep_that_comes_twice(name, strength):
    pipe, kwargs = tiny("StableDiffusionImg2ImgPipeline")
    pipe.scheduler, calls = PNDM[name](), counted(pipe.unet)
    plain = call(pipe, kwargs, strength=strength)
    full = len(calls)
    calls.clear()
    with accelerated(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs, strength=strength)
    report = reported(handle)
    assert len(calls) == report.evaluations == len(report.queried) == BUDGET
    assert not report.reasons and BUDGET < report.steps <= full
    with accelerated(pipe, budget=full):
        assert torch.equal(call(pipe, kwargs, strength=strength), plain)


@pytest.mark.parametrize("xl", ["", "XL"])
@pytest.mark.parametrize("name", ["Euler", "PLMS"])
def test_an_adapter_that_runs_before_the_loop_is_no_denoiser(xl, name):
    pipe, kwargs = tiny(f"StableDiffusion{xl}AdapterPipeline")
    pipe.scheduler, calls = ALL[name](), counted(pipe.unet)
    with accelerated(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs)
    assert len(calls) == reported(handle).evaluations == reported(handle).forwards == BUDGET
    assert {n for n, _ in reported(handle).reasons} <= {STEPS - 1}  # PLMS has one round too many


@pytest.mark.parametrize("name", NO_SOLVER)
def test_what_is_no_solver_runs_exactly_and_says_why(sd, name):
    plain = sd.reference(name, NO_SOLVER[name])
    out, report, calls = sd.accelerated()
    assert torch.equal(out, plain) and calls == report.evaluations == STEPS
    assert any(type(sd.pipe.scheduler).__name__ in reason for _, reason in report.reasons)


@pytest.mark.parametrize("steps", [1, 2, 4, 5])
def test_few_steps_run_exactly_and_say_why(flux, steps):
    plain = flux.reference(f"few {steps}", flow(), num_inference_steps=steps)
    out, report, calls = flux.accelerated(num_inference_steps=steps)
    assert torch.equal(out, plain)
    assert calls == report.evaluations == report.steps == steps
    assert any(f"{steps} stages" in reason for _, reason in report.reasons)


def test_sigmas_that_rise():
    bench = Bench(video, "MochiPipeline", "transformer")
    assert bench.pipe.scheduler.config.invert_sigmas
    plain = bench.reference("rise", flow(invert_sigmas=True))
    check_counts(bench, plain, lambda report: report.evaluations)


def test_wan_with_unipc():
    """Two calls per evaluation, one after the other."""
    bench = Bench(video, "WanPipeline", "transformer")
    plain = bench.reference("unipc", video.unipc)
    check_counts(bench, plain, lambda report: 2 * report.evaluations)


def test_an_inversion_before_the_loop_is_not_counted():
    texts = dict(tokenizer=image.text.clip_tokenizer(), text_encoder=image.text.clip_text())
    solver = d.DPMSolverMultistepScheduler(algorithm_type="sde-dpmsolver++", solver_order=2)
    parts = dict(vae=image.vae(), unet=image.unet(), scheduler=solver, **texts)
    pipe, kwargs = image.host("LEditsPPPipelineStableDiffusion", {}, **parts)
    calls = counted(pipe.unet)
    with accelerated(pipe, budget=BUDGET) as handle:
        pipe.invert(image=image.picture(32), num_inversion_steps=8)
        assert len(calls) == 8 and not handle.reports
        for _ in range(2):
            pipe(**kwargs)
    assert len(calls) == 24 and len(handle.reports) == 2
    assert all(r.forwards == r.evaluations == r.steps == 8 for r in handle.reports)
    assert "looks into the denoiser" in str(reported(handle).reasons)


# --- the grid that is planned ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Euler", "Euler, Karras", "DPM++", "UniPC", "EDM Euler"])
def test_the_plan_is_made_in_the_schedulers_own_sigmas(sd, name):
    sd.pipe.scheduler = ORDER_1[name]()
    _, report, _ = sd.accelerated()
    sigmas = sd.pipe.scheduler.sigmas.double().tolist()
    assert [s.sigma for s in report.stages] == pytest.approx(sigmas[:-1])
    own: dict[str, Any] = {"correct": False} if name == "EDM Euler" else {}
    plan = Plan.of(sigmas, BUDGET, prediction="epsilon", alphas="ve", **own)
    assert report.queried == plan.anchors


@pytest.mark.parametrize("name", ["DDIM", "DDPM", "DDIM, trailing"])
def test_schedulers_without_sigmas_are_planned_in_tau(sd, name):
    sd.pipe.scheduler = ORDER_1[name]()
    _, report, _ = sd.accelerated()
    kept = sd.pipe.scheduler.alphas_cumprod[sd.pipe.scheduler.timesteps].double()
    tau = (1 - kept).sqrt() / (kept.sqrt() + (1 - kept).sqrt())
    assert [s.sigma for s in report.stages] == pytest.approx(tau.tolist())


@pytest.mark.parametrize("name", ["Euler", "DDIM", "DDPM", "DPM++", "UniPC", "LMS"])
def test_img2img_is_planned_over_its_own_part_of_the_grid(name):
    bench = Bench(image, "StableDiffusionImg2ImgPipeline", "unet")
    plain = bench.reference(name, ORDER_1[name], strength=0.75)
    out, report, calls = bench.accelerated(strength=0.75)
    scheduler = bench.pipe.scheduler
    assert report.steps == 9 and report.queried[0] == 0
    assert calls == report.evaluations == BUDGET
    if hasattr(scheduler, "sigmas"):
        times = scheduler.sigmas[-10:-1].double()
    else:
        kept = scheduler.alphas_cumprod[scheduler.timesteps[-9:]].double()
        times = (1 - kept).sqrt() / (kept.sqrt() + (1 - kept).sqrt())
    assert [s.sigma for s in report.stages] == pytest.approx(times.tolist())
    assert unmarked(bench)
    assert torch.equal(bench.run(strength=0.75), plain) and not torch.equal(out, plain)


@pytest.mark.parametrize("name", ORDER_2)
def test_img2img_in_pairs(name):
    bench = Bench(image, "StableDiffusionImg2ImgPipeline", "unet")
    plain = bench.reference(name, ORDER_2[name], strength=0.75)
    out, report, calls = bench.accelerated(strength=0.75)
    assert out.isfinite().all() and unmarked(bench)
    assert report.steps == 9 and report.evaluations == BUDGET
    assert calls == 2 * BUDGET - (8 in report.queried)
    assert torch.equal(bench.run(strength=0.75), plain)


# --- noise -------------------------------------------------------------------------------------


class Draws(TorchFunctionMode):
    """Keeps what random draws return."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.randn, torch.randn_like, torch.rand, torch.normal, Tensor.normal_):
            self.kept.append(result.clone())
        return result


def streams(bench: Bench, make: Make, budget: int | None, **more: Any) -> tuple[Any, list[Tensor]]:
    bench.pipe.scheduler = make()
    with Draws() as draws:
        if budget is None:
            bench.run(**more)
            return None, draws.kept
        _, report, _ = bench.accelerated(budget=budget, **more)
    return report, draws.kept


@pytest.mark.parametrize("name", STOCHASTIC)
def test_the_noise_is_that_of_the_full_run(sd, name):
    make, more = STOCHASTIC[name]
    _, full = streams(sd, make, None, **more)
    report, ours = streams(sd, make, BUDGET, **more)
    assert len(ours) == len(full) >= STEPS
    assert all(torch.equal(a, b) for a, b in zip(ours, full))
    if name not in ORDER_2:
        assert report.predicted


def test_the_noise_of_a_stochastic_flow_is_that_of_the_full_run(flux):
    _, full = streams(flux, FLOW["flow, stochastic"], None)
    report, ours = streams(flux, FLOW["flow, stochastic"], BUDGET)
    assert report.predicted and len(ours) == len(full) >= STEPS
    assert all(torch.equal(a, b) for a, b in zip(ours, full))


# --- what is predicted -------------------------------------------------------------------------


PREDICTED = [
    ("FluxPipeline", {}, {}),
    ("FluxPipeline", {}, {"space": "data"}),
    ("FluxPipeline", {}, {"rule": "linear", "anchors": "geometric"}),
    ("StableDiffusion3Pipeline", {"guidance_scale": 4.5}, {}),
    ("WanPipeline", {"guidance_scale": 4.0}, {}),
    ("QwenImagePipeline", {"true_cfg_scale": 3.0}, {}),
    ("ZImagePipeline", {"guidance_scale": 3.0}, {}),
    ("FluxKontextPipeline", {}, {}),
]


@pytest.mark.parametrize("name, more, options", PREDICTED)
def test_step_receives_the_prediction_of_what_step_received(monkeypatch, name, more, options):
    pipe, kwargs = tiny(name)
    seen = received(monkeypatch, pipe.scheduler)
    with accelerated(pipe, budget=BUDGET, correct=False, **options) as handle:
        call(pipe, kwargs, **more)
        report = reported(handle)
    plan = Plan.of(pipe.scheduler.sigmas, BUDGET, correct=False, **options)
    assert report.queried == plan.anchors and len(seen) == STEPS
    expected = replayed(seen, plan)
    for n in range(STEPS):
        assert torch.allclose(seen[n][0], expected[n], rtol=1e-5, atol=1e-6), n
    moved = [(seen[n][0] - seen[n - 1][0]).abs().max() for n in range(1, STEPS)]
    assert min(moved) >= 0 and max(moved) > 1e-4  # the outputs are not all alike


def test_the_prediction_is_the_oracles(monkeypatch):
    pipe, kwargs = tiny("FluxPipeline")
    seen = received(monkeypatch, pipe.scheduler)
    with accelerated(pipe, budget=BUDGET, rule="chordal") as handle:
        call(pipe, kwargs, num_images_per_prompt=2)
        report = reported(handle)
    sigmas = pipe.scheduler.sigmas.double().tolist()
    assert report.predicted
    for n in report.predicted:
        past = [k for k in report.queried if k < n]
        for i in range(2):
            history = [(k, seen[k][0][i].double().numpy()) for k in past]
            want = oracle.predict(history, sigmas, n, "chordal")
            assert np.allclose(seen[n][0][i].numpy(), want, rtol=1e-4, atol=1e-5), (n, i)


@pytest.mark.parametrize("name", ["FluxPipeline", "StableDiffusion3Pipeline", "WanPipeline"])
def test_at_an_anchor_step_receives_the_models_output_after_guidance(monkeypatch, name):
    pipe, kwargs = tiny(name)
    seen = received(monkeypatch, pipe.scheduler)
    raw: list[Tensor] = []
    pipe.transformer.register_forward_hook(lambda m, args, out: raw.append(out[0].clone()))
    with accelerated(pipe, budget=BUDGET, correct=False) as handle:
        call(pipe, kwargs, guidance_scale=4.0)
        anchors = reported(handle).queried
    per = len(raw) // len(anchors)
    assert len(raw) == per * BUDGET and len(anchors) == BUDGET
    for i, n in enumerate(anchors):
        outputs = raw[per * i : per * (i + 1)]
        if name == "FluxPipeline":
            want = outputs[0]
        elif name == "WanPipeline":
            want = outputs[1] + 4.0 * (outputs[0] - outputs[1])
        else:
            low, high = outputs[0].chunk(2)
            want = low + 4.0 * (high - low)
        assert torch.allclose(seen[n][0], want, atol=1e-6)


def test_the_predictions_carry_the_solver_from_one_anchor_to_the_next(monkeypatch):
    """Every x is Euler's step from the one before: the scheduler itself did the stepping."""
    pipe, kwargs = tiny("FluxPipeline")
    seen = received(monkeypatch, pipe.scheduler)
    with accelerated(pipe, budget=BUDGET, correct=False):
        out = call(pipe, kwargs)
    sigmas = pipe.scheduler.sigmas
    states = [x for _, x in seen] + [out]
    for n, (v, x) in enumerate(seen):
        assert torch.allclose(states[n + 1], x + (sigmas[n + 1] - sigmas[n]) * v, atol=1e-5)


# --- the effective stages ----------------------------------------------------------------------

EFFECTIVE = [
    ("FluxImg2ImgPipeline", {"strength": 0.75}, 9),
    ("FluxInpaintPipeline", {"strength": 0.75}, 9),
    ("StableDiffusion3Img2ImgPipeline", {"strength": 0.75}, 9),
    ("StableDiffusionInpaintPipeline", {"strength": 0.75}, 9),
    ("StableDiffusionXLPipeline", {"denoising_end": 0.8}, None),
    ("StableDiffusionXLImg2ImgPipeline", {"denoising_start": 0.2}, None),
    ("StableDiffusionXLImg2ImgPipeline", {"denoising_start": 0.1, "denoising_end": 0.9}, None),
    ("FluxPipeline", {"sigmas": np.linspace(1.0, 0.1, 9)}, 9),
    ("WanVideoToVideoPipeline", {"strength": 0.75}, 9),
    ("StableDiffusionXLPipeline", {"timesteps": [990, 900, 800, 600, 500, 400, 200, 100, 10]}, 9),
]


@pytest.mark.parametrize("name, more, stages", EFFECTIVE)
def test_the_stages_are_those_that_are_run(monkeypatch, name, more, stages):
    pipe, kwargs = tiny(name)
    plain, before = call(pipe, kwargs, **more), marks(pipe)
    denoiser = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    calls = counted(denoiser)
    call(pipe, kwargs, **more)
    per = 2 if name.startswith("Wan") else 1
    full = len(calls) // per
    assert stages in (None, full) and full >= 8
    calls.clear()
    seen = received(monkeypatch, pipe.scheduler)
    handle = accelerate(pipe, budget=BUDGET)
    out = call(pipe, kwargs, **more)
    report = reported(handle)
    assert not intercepted(pipe)
    assert report.steps == len(seen) == full
    assert report.queried[0] == 0 and len(report.queried) == BUDGET
    assert len(calls) == per * report.evaluations == per * BUDGET
    assert out.isfinite().all()
    handle.remove()
    assert marks(pipe) == before
    assert torch.equal(call(pipe, kwargs, **more), plain)


def test_a_grid_that_turns_runs_exactly_and_says_why():
    pipe, kwargs = tiny("FluxPipeline")
    sigmas = [1.0, 0.9, 0.8, 0.85, 0.7, 0.6, 0.5, 0.3, 0.1]
    plain = call(pipe, kwargs, sigmas=sigmas)
    with accelerated(pipe, budget=BUDGET) as handle:
        out = call(pipe, kwargs, sigmas=sigmas)
        assert reported(handle).evaluations == 9 and reported(handle).reasons
    assert torch.equal(out, plain)


# --- regimes -----------------------------------------------------------------------------------


def check_regime(report: Report, at: int) -> None:
    """The plan did not ask for stage `at`, yet it was queried, counted apart and explained."""
    assert at in report.extra, (report.queried, report.extra, report.reasons)
    assert any(n == at for n, _ in report.reasons)
    assert f"+ {len(report.extra)}" in report.summary()


def test_two_experts_are_two_regimes(monkeypatch):
    pipe, kwargs = tiny("WanPipeline (two experts)")
    pipe.register_to_config(boundary_ratio=0.6)
    high, low = counted(pipe.transformer), counted(pipe.transformer_2)
    plain = call(pipe, kwargs)
    switch = len(high) // 2
    assert 4 <= switch <= 10
    seen = received(monkeypatch, pipe.scheduler)
    high.clear()
    low.clear()
    anchors = [0, 1, 2, 11]
    with accelerated(pipe, anchors=anchors) as handle:
        call(pipe, kwargs)
        report = reported(handle)
    check_regime(report, switch)
    assert len(high) == 6 and len(low) == 2 * (report.evaluations - 3)
    # nothing of the first expert enters what is predicted after the switch
    assert torch.equal(seen[switch + 1][0], seen[switch][0]) or switch + 1 in report.extra
    assert torch.equal(call(pipe, kwargs), plain)


def test_experts_that_switch_at_an_anchor_cost_nothing():
    pipe, kwargs = tiny("WanPipeline (two experts)")
    pipe.register_to_config(boundary_ratio=0.6)
    high = counted(pipe.transformer)
    call(pipe, kwargs)
    switch = len(high) // 2
    with accelerated(pipe, anchors=[0, 1, 2, switch, 11]) as handle:
        call(pipe, kwargs)
    assert not reported(handle).extra
    assert any(n == switch for n, _ in reported(handle).reasons)


def test_guidance_that_a_callback_cuts_off():
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    cut = d.callbacks.SDXLCFGCutoffCallback(cutoff_step_ratio=None, cutoff_step_index=6)
    more = {"callback_on_step_end": cut, "guidance_scale": 5.0}
    plain, calls = call(pipe, kwargs, **more), counted(pipe.unet)
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs, **more)
    check_regime(reported(handle), 7)
    assert len(calls) == reported(handle).evaluations
    assert torch.equal(call(pipe, kwargs, **more), plain)


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_guidance_that_a_callback_sets_to_nothing(scale):
    """Wan's two calls become one."""
    pipe, kwargs = tiny("WanPipeline")
    cut = after(6, lambda pipe: setattr(pipe, "_guidance_scale", scale))
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs, guidance_scale=5.0, callback_on_step_end=cut)
    check_regime(reported(handle), 7)


def test_guidance_that_is_truncated():
    pipe, kwargs = tiny("Lumina2Pipeline")
    calls = counted(pipe.transformer)
    call(pipe, kwargs, cfg_trunc_ratio=0.5)
    first = len(calls) - STEPS  # stages with two calls
    assert 4 <= first <= 8
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs, cfg_trunc_ratio=0.5)
    check_regime(reported(handle), first + 1)  # seen at a skipped stage: one late


def slg(start: float, stop: float) -> dict[str, Any]:
    return {
        "skip_guidance_layers": [0],
        "skip_layer_guidance_start": start,
        "skip_layer_guidance_stop": stop,
        "guidance_scale": 5.0,
    }


@pytest.mark.parametrize("start, stop, at", [(0.45, 2.0, 6), (-1.0, 0.5, 6)])
def test_skip_layer_guidance_begins_and_ends(start, stop, at):
    pipe, kwargs = tiny("StableDiffusion3Pipeline")
    calls = counted(pipe.transformer)
    call(pipe, kwargs, **slg(start, stop))
    assert len(calls) == STEPS + 6
    calls.clear()
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs, **slg(start, stop))
    check_regime(reported(handle), at + 1)  # seen at a skipped stage: one late


CONTROLLED = [
    ("StableDiffusionControlNetPipeline", {"control_guidance_end": 0.5}),
    ("StableDiffusionControlNetPipeline", {"control_guidance_start": 0.5}),
    ("FluxControlNetPipeline", {"control_guidance_end": 0.5}),
    ("StableDiffusion3ControlNetPipeline", {"control_guidance_end": 0.5}),
]


@pytest.mark.parametrize("name, window", CONTROLLED)
def test_control_begins_and_ends(name, window):
    pipe, kwargs = tiny(name)
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs, **window)
    assert set(reported(handle).extra) & {5, 6}, reported(handle).reasons
    check_regime(reported(handle), reported(handle).extra[0])


def test_guidance_that_changes_smoothly_is_no_new_regime():
    pipe, kwargs = tiny("CogVideoXPipeline")
    assert kwargs["use_dynamic_cfg"]
    with accelerated(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs)
    assert reported(handle).evaluations == BUDGET and not reported(handle).reasons


# --- several schedulers, several steps ---------------------------------------------------------


@pytest.mark.parametrize("name", ["LTX2Pipeline", "LTX2Pipeline (all guidance)"])
def test_two_modalities_have_a_history_each(monkeypatch, name):
    pipe, kwargs = tiny(name)
    plain, calls = call(pipe, kwargs), counted(pipe.transformer)
    call(pipe, kwargs)
    per = len(calls) // STEPS
    calls.clear()
    seen = received(monkeypatch, pipe.scheduler)
    with accelerated(pipe, budget=BUDGET) as handle:
        call(pipe, kwargs)
        report = reported(handle)
    assert len(calls) == per * BUDGET and report.evaluations == BUDGET
    assert len(seen) == 2 * STEPS
    usual = Plan.of(pipe.scheduler.sigmas, BUDGET)
    plan = replace(usual, anchors=report.queried, slow=())
    for part in (seen[::2], seen[1::2]):
        for n, (got, want) in enumerate(zip([v for v, _ in part], replayed(part, plan))):
            assert torch.allclose(got, want, rtol=1e-5, atol=1e-6), n
    assert torch.equal(call(pipe, kwargs), plain)


def test_a_step_that_is_made_twice():
    """Cosmos asks step for x₀ first, then steps with it; its last stage does not move."""
    pipe, kwargs = tiny("CosmosTextToWorldPipeline")
    plain, calls = call(pipe, kwargs), counted(pipe.transformer)
    call(pipe, kwargs)
    full = len(calls)
    calls.clear()
    with accelerated(pipe, budget=BUDGET) as handle:
        out = call(pipe, kwargs)
    report = reported(handle)
    assert len(calls) * STEPS < full * STEPS and report.evaluations < STEPS
    assert out.isfinite().all() and report.predicted
    assert torch.equal(call(pipe, kwargs), plain)


def test_schedulers_that_step_at_their_own_times_run_exactly_and_say_why():
    pipe, kwargs = tiny("SkyReelsV2DiffusionForcingPipeline")
    assert kwargs["ar_step"] > 0
    plain = call(pipe, kwargs)
    with accelerated(pipe, budget=BUDGET) as handle:
        out = call(pipe, kwargs)
    report = reported(handle)
    assert torch.equal(out, plain) and not report.predicted
    assert any("every stage is queried" in reason for _, reason in report.reasons)
    assert not intercepted(pipe)


def test_schedulers_that_step_together_are_accelerated():
    pipe, kwargs = tiny("SkyReelsV2DiffusionForcingPipeline")
    kwargs = {**kwargs, "ar_step": 0}
    plain, calls = call(pipe, kwargs), counted(pipe.transformer)
    call(pipe, kwargs)
    full = len(calls)
    calls.clear()
    with accelerated(pipe, budget=BUDGET) as handle:
        out = call(pipe, kwargs)
    report = reported(handle)
    assert len(calls) * STEPS == full * report.evaluations
    assert out.isfinite().all()
    assert torch.equal(call(pipe, kwargs), plain)
