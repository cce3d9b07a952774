"""learn=… in hosts: tiny diffusers pipelines, doubles of TRELLIS, HY-Motion, F5-TTS, ACE-Step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoshrink import Blocks, Correction, Handle, Learned, Learning, Plan, accelerate
from geoshrink.hosts.seats import words_of
from geoshrink.learning import choosing
from tiny_pipelines import (
    BUDGET,
    EARLY,
    STEPS,
    Sampler,
    Stop,
    after,
    call,
    counted,
    intercepted,
    marks,
    reported,
    tiny,
)

d: Any = pytest.importorskip("diffusers")
check: Any = pytest.importorskip("hosts.check")
music: Any = pytest.importorskip("hosts.music")
sparse: Any = pytest.importorskip("hosts.sparse")
pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)

#: Euler for flows, DDIM, Euler in σ, a start between data and noise, UniPC with two experts, known
#: regions that are put back behind every step.
PIPELINES = [
    "FluxPipeline",
    "StableDiffusionPipeline",
    "StableDiffusionXLPipeline",
    "FluxImg2ImgPipeline",
    "WanPipeline (two experts)",
    "StableDiffusionInpaintPipeline",
]


def denoiser(pipe: Any) -> nn.Module:
    return getattr(pipe, "transformer", None) or pipe.unet


@contextlib.contextmanager
def taught(pipe: Any, **options: Any) -> Iterator[tuple[Handle, Callable[..., int]]]:
    """(handle, how many stages a call queries)."""
    with accelerate(pipe, **{"budget": BUDGET, "learn": True, **options}) as handle:

        def queries(kwargs: dict[str, Any], *args: Any, **more: Any) -> int:
            call(pipe, kwargs, *args, **more)
            return reported(handle).evaluations

        yield handle, queries


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is promised is taken."""
    monkeypatch.setattr(choosing, "MARGIN", -100.0)


# --- the first call, and those after it ----------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
def test_the_first_call_is_the_plain_one_and_the_second_saves_calls(name):
    pipe, kwargs = tiny(name)
    calls = counted(denoiser(pipe))
    plain, before = check.run(pipe, kwargs, STEPS), marks(pipe)
    full = len(calls)
    handle = accelerate(pipe, budget=BUDGET, learn=True)
    assert check.same(check.run(pipe, kwargs, STEPS), plain) and len(calls) == 2 * full
    first = reported(handle)
    assert first.evaluations == first.steps and "exact, to learn from it" in str(first.reasons)
    assert handle.learned is not None and handle.learned.pictures == 1
    for seed in (0, 1):
        made = check.run(pipe, kwargs, STEPS, seed=seed)
        assert reported(handle).evaluations == BUDGET and not reported(handle).extra
        assert not check.same(made, plain) and all(bool(t.isfinite().all()) for t in made)
    assert len(calls) < 4 * full
    handle.remove()
    assert check.same(check.run(pipe, kwargs, STEPS), plain) and marks(pipe) == before


def test_the_second_call_has_the_anchors_that_the_first_taught():
    """As with those anchors given, bit for bit."""
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    with accelerate(pipe, budget=BUDGET) as usual:
        call(pipe, kwargs)
    with taught(pipe) as (handle, queries):
        queries(kwargs)
        made, report = call(pipe, kwargs), reported(handle)
    assert "learned (1 exact picture, " in report.plan
    assert report.queried != reported(usual).queried and not report.reasons
    given: dict[str, Any] = dict(anchors=report.queried, clock="mesh")
    with accelerate(pipe, **given, correct=Correction(caution=0.5)):
        assert torch.equal(call(pipe, kwargs), made)


def test_where_little_is_promised_the_default_stays():
    pipe, kwargs = tiny("FluxPipeline")
    with accelerate(pipe, budget=BUDGET):
        usual = call(pipe, kwargs)
    with taught(pipe) as (handle, queries):
        queries(kwargs)
        assert torch.equal(call(pipe, kwargs), usual)
        assert "dB more expected of others, too little" in reported(handle).plan


@pytest.mark.usefixtures("eager")
def test_two_schedulers_follow_one_plan():
    """The anchors are those of the first; the other is queried there and nowhere else."""
    pipe, kwargs = tiny("LTX2Pipeline")
    plain, calls = check.run(pipe, kwargs, STEPS), counted(pipe.transformer)
    with accelerate(pipe, budget=BUDGET) as usual:
        check.run(pipe, kwargs, STEPS)
    with taught(pipe) as (handle, _):
        assert check.same(check.run(pipe, kwargs, STEPS), plain)
        calls.clear()
        made = check.run(pipe, kwargs, STEPS)
        report = reported(handle)
    assert report.queried != reported(usual).queried and not report.extra
    assert len(calls) == report.forwards == BUDGET
    assert not any(torch.equal(a, b) for a, b in zip(made, plain))


def test_cells_that_cannot_be_corrected():
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    pipe.scheduler = d.DDIMScheduler.from_config(pipe.scheduler.config, clip_sample=True)
    plain = call(pipe, kwargs)
    with taught(pipe) as (handle, queries):
        assert torch.equal(call(pipe, kwargs), plain) and queries(kwargs) == BUDGET
        assert "cells are not corrected" in reported(handle).plan
        assert "1 exact picture" in reported(handle).plan


def test_every_nth_call_is_exact():
    pipe, kwargs = tiny("FluxPipeline")
    with taught(pipe, learn=3) as (handle, queries):
        calls = [queries(kwargs) for _ in range(5)]
        assert calls == [STEPS, BUDGET, BUDGET, STEPS, BUDGET]
        assert handle.learned is not None and handle.learned.pictures == handle.learned.runs == 2


def test_the_log_says_once_why_a_call_is_slow(caplog):
    pipe, kwargs = tiny("FluxPipeline")
    with taught(pipe) as (_, queries):
        for steps in (STEPS, STEPS, STEPS + 2):
            queries(kwargs, steps)
    assert len([text for text in caplog.messages if "teaches" in text]) == 1


def test_a_quality_is_held_with_what_was_learned():
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    with taught(pipe, budget=None, target_db=25, most=8) as (handle, queries):
        assert queries(kwargs) == STEPS
        assert 4 <= queries(kwargs) <= 8 and "learned (1 exact picture)" in reported(handle).plan


def test_a_bare_loop():
    host = Sampler()
    plain, calls = host(), counted(host.net)
    with accelerate(host, budget=BUDGET, learn=True, denoisers=["net"]):
        assert torch.equal(host(), plain) and len(calls) == STEPS
        host()
    assert len(calls) == STEPS + BUDGET


# --- settings ------------------------------------------------------------------------------------


def test_guidance_is_a_setting():
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    with taught(pipe) as (handle, queries):
        for scale, calls in [(5.0, STEPS), (7.0, STEPS), (5.0, BUDGET), (7.0, BUDGET)]:
            assert queries(kwargs, guidance_scale=scale) == calls
            assert f"guidance_scale={scale}" in str(handle.learned)
        assert queries(kwargs, guidance_scale=5.0, guidance_rescale=0.5) == STEPS


def test_the_number_of_steps_is_a_setting():
    pipe, kwargs = tiny("FluxPipeline")
    with taught(pipe) as (_, queries):
        for steps, calls in [(12, 12), (14, 14), (12, BUDGET), (14, BUDGET)]:
            assert queries(kwargs, steps) == calls


def test_a_seed_and_a_prompt_are_none():
    pipe, kwargs = tiny("FluxPipeline")
    with taught(pipe) as (_, queries):
        assert queries(kwargs) == STEPS
        other = torch.Generator().manual_seed(5)
        assert queries(kwargs, generator=other) == BUDGET
        assert queries(kwargs, prompt_embeds=torch.randn_like(kwargs["prompt_embeds"])) == BUDGET


def test_pictures_at_once_are_the_same_setting():
    pipe, kwargs = tiny("FluxPipeline")
    with taught(pipe) as (handle, queries):
        assert queries(kwargs, num_images_per_prompt=3) == STEPS
        assert handle.learned is not None and handle.learned.pictures == 3
        assert queries(kwargs) == BUDGET and "3 exact pictures" in reported(handle).plan


def test_the_size_is_a_setting():
    pipe, kwargs = tiny("FluxPipeline")
    with taught(pipe) as (_, queries):
        for size, calls in [(16, STEPS), (32, STEPS), (16, BUDGET), (32, BUDGET)]:
            assert queries(kwargs, height=size, width=size) == calls


def test_the_scheduler_is_a_setting():
    """Two with the same σ."""
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    learning = Learning()
    for kind in (d.EulerDiscreteScheduler, d.EulerAncestralDiscreteScheduler):
        pipe.scheduler = kind.from_config(pipe.scheduler.config)
        with taught(pipe, learn=learning) as (_, queries):
            assert [queries(kwargs), queries(kwargs)] == [STEPS, BUDGET]
    one, other = (known.setting.grid for known in learning.settings)
    assert one.matches(other)


def test_guidance_that_only_the_call_knows_is_a_setting():
    """No attribute of the pipeline has it."""
    pipe, kwargs = tiny("FluxPipeline")
    pooled = kwargs["pooled_prompt_embeds"]
    more = dict(
        negative_prompt_embeds=-kwargs["prompt_embeds"], negative_pooled_prompt_embeds=-pooled
    )
    with taught(pipe) as (_, queries):
        for scale, calls in [(2.0, STEPS), (3.0, STEPS), (2.0, BUDGET)]:
            assert queries(kwargs, true_cfg_scale=scale, **more) == calls
    assert not any("true_cfg" in name for name in vars(pipe))


def test_where_the_run_begins_is_a_setting():
    pipe, kwargs = tiny("FluxImg2ImgPipeline")
    with taught(pipe) as (_, queries):
        for strength, calls in [(0.75, 12), (0.5, 8), (0.75, BUDGET)]:
            assert queries(kwargs, 16, strength=strength) == calls


def scaled(pipe: Any) -> None:
    with torch.no_grad():
        next(pipe.transformer.parameters()).mul_(1.01)


def lora(pipe: Any) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["to_q"], init_lora_weights=False)
    pipe.transformer.add_adapter(config, "style")


def loaded(pipe: Any) -> None:
    weights = {name: 0.9 * own for name, own in pipe.transformer.state_dict().items()}
    pipe.transformer.load_state_dict(weights)


@pytest.mark.parametrize("change", [scaled, lora, loaded, lambda pipe: pipe.to(torch.float64)])
def test_other_weights_are_another_model(change):
    pipe, kwargs = tiny("FluxPipeline")
    with taught(pipe) as (_, queries):
        assert [queries(kwargs), queries(kwargs)] == [STEPS, BUDGET]
        change(pipe)
        kind = pipe.transformer.dtype
        kwargs = {k: v.to(kind) if isinstance(v, Tensor) else v for k, v in kwargs.items()}
        assert [queries(kwargs), queries(kwargs)] == [STEPS, BUDGET]


def test_the_scale_of_a_lora_is_a_setting():
    pipe, kwargs = tiny("FluxPipeline")
    lora(pipe)
    with taught(pipe) as (_, queries):
        for scale, calls in [(1.0, STEPS), (0.1, STEPS), (1.0, BUDGET)]:
            pipe.transformer.set_adapters("style", scale)
            assert queries(kwargs) == calls


def test_words_of_a_host():
    found = words_of({"guidance_scale": 5.0, "prompt": "cfg"}, {"_guidance_scale": 7, "_cfg": True})
    assert found == "cfg=True, guidance_scale=5.0"
    assert words_of({"scale": torch.zeros(99), "cfg": object(), "guidance": None}) == ""
    assert "0.5" in words_of({"conditioning_scale": [0.5, 1.0]})


# --- handles and what they share -----------------------------------------------------------------


def test_what_was_learned_is_there_for_the_next_handle(tmp_path):
    pipe, kwargs = tiny("FluxPipeline")
    learning = Learning()
    with taught(pipe, learn=learning) as (handle, queries):
        assert queries(kwargs) == STEPS and handle.learned is learning.learned
    with taught(pipe, learn=learning) as (_, queries):
        assert queries(kwargs) == BUDGET
    assert isinstance(learning.learned, Learned)
    file = learning.learned.save(tmp_path / "flux.json")
    for learn in (learning.learned, file):
        other, kwargs = tiny("FluxPipeline")
        with taught(other, learn=learn) as (_, queries):
            assert queries(kwargs) == BUDGET


def test_a_folder_is_there_for_the_next_process(tmp_path):
    for calls in (STEPS, BUDGET):
        pipe, kwargs = tiny("FluxPipeline")
        with taught(pipe, learn=Learning(folder=tmp_path)) as (_, queries):
            assert queries(kwargs) == calls


def test_one_learning_for_two_pipelines():
    learning = Learning()
    for name, calls in [("FluxPipeline", STEPS), ("WanPipeline", STEPS), ("FluxPipeline", BUDGET)]:
        pipe, kwargs = tiny(name)
        with taught(pipe, learn=learning) as (_, queries):
            assert queries(kwargs) == calls


@pytest.mark.parametrize("off", [None, False])
def test_accelerating_again_without_it(off):
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    with accelerate(pipe, budget=BUDGET):
        usual = call(pipe, kwargs)
    accelerate(pipe, budget=BUDGET, learn=True)
    call(pipe, kwargs)
    handle = accelerate(pipe, budget=BUDGET, learn=off)
    assert torch.equal(call(pipe, kwargs), usual)
    assert handle.learned is None and handle.learning is None
    handle.remove()
    assert not intercepted(pipe)


# --- calls that teach nothing --------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Stop, KeyboardInterrupt])
def test_a_call_that_was_left_teaches_nothing(fault):
    def fail(pipe: Any) -> None:
        raise fault

    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    plain = call(pipe, kwargs)
    with taught(pipe) as (handle, queries):
        with pytest.raises(fault):
            call(pipe, kwargs, callback_on_step_end=after(5, fail))
        assert handle.learned is None
        assert torch.equal(call(pipe, kwargs), plain)
        assert handle.learned is not None and queries(kwargs) == BUDGET


def test_a_network_that_fails_teaches_nothing():
    def fail(module: Any, args: Any) -> None:
        calls.append(1)
        if len(calls) == 6:
            raise Stop

    pipe, kwargs = tiny("FluxPipeline")
    calls: list[int] = []
    pipe.transformer.register_forward_pre_hook(fail)
    with taught(pipe) as (handle, queries):
        with pytest.raises(Stop):
            call(pipe, kwargs)
        assert handle.learned is None
        assert [queries(kwargs), queries(kwargs)] == [STEPS, BUDGET]


def test_an_output_that_is_not_finite_teaches_nothing():
    def spoil(module: Any, args: Any, output: Any) -> Any:
        calls.append(1)
        return (output[0] * float("nan"),) if len(calls) == 6 else output

    pipe, kwargs = tiny("FluxPipeline")
    calls: list[int] = []
    pipe.transformer.register_forward_hook(spoil)
    with taught(pipe) as (handle, queries):
        assert [queries(kwargs), queries(kwargs)] == [STEPS, BUDGET]
        assert handle.learned is None
        assert "nothing was learned: an output" in reported(handle).plan


def test_a_callback_may_steer_the_exact_call():
    steer = after(6, lambda pipe: setattr(pipe, "_guidance_scale", 9.0))
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    plain = call(pipe, kwargs, callback_on_step_end=steer)
    with taught(pipe) as (_, queries):
        assert torch.equal(call(pipe, kwargs, callback_on_step_end=steer), plain)
        assert queries(kwargs) == BUDGET


def test_two_outputs_a_stage():
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    pipe.scheduler = d.HeunDiscreteScheduler.from_config(pipe.scheduler.config)
    with accelerate(pipe, budget=BUDGET):
        usual = call(pipe, kwargs)
    with taught(pipe) as (handle, _):
        assert torch.equal(call(pipe, kwargs), usual)
        why = "nothing is learned: HeunDiscreteScheduler takes two outputs a stage"
        assert why in str(reported(handle).reasons) and handle.learned is None


def test_a_loop_that_runs_exactly_anyway():
    pipe, kwargs = tiny("FluxPipeline")
    plain = call(pipe, kwargs, 4)
    with taught(pipe) as (handle, _):
        assert torch.equal(call(pipe, kwargs, 4), plain)
        assert "leave nothing to skip" in str(reported(handle).reasons)
        assert handle.learned is None


# --- what is refused -----------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], type, str]] = [
    (dict(anchors=EARLY), ValueError, r"anchors=\[0, 1, 2, 3, 11\]"),
    (dict(rule="chordal"), ValueError, "rule='chordal'"),
    (dict(refine=2), ValueError, "refine=2"),
    (dict(target="flow"), ValueError, "'flow'"),
    (dict(blocks=Blocks(dims=(0, 1))), ValueError, r"blocks=Blocks\(dims=\(0, 1\)"),
    (dict(plan=Plan.of([1 - i / 12 for i in range(13)], 6)), ValueError, "learn"),
    (dict(learn=1), TypeError, "learn=1:"),
    (dict(learn=2.5), TypeError, r"learn=2\.5:"),
    (dict(learn=[3]), TypeError, r"learn=\[3\]:"),
]


@pytest.mark.parametrize("options, error, quoted", REFUSED)
def test_what_is_refused_before_anything_is_touched(options, error, quoted):
    pipe, _ = tiny("FluxPipeline")
    before = marks(pipe)
    with pytest.raises(error, match=quoted):
        accelerate(pipe, **{"learn": True, **options})
    assert marks(pipe) == before and not intercepted(pipe)


def test_a_host_that_mixes_branches_of_guidance():
    with pytest.raises(ValueError, match=r"learn=20 is not for this host: ACE-Step mixes"):
        accelerate(music.ACEStepPipeline(), budget=BUDGET, learn=20)


# --- hosts with loops of their own ---------------------------------------------------------------

GUIDED: dict[str, Any] = dict(rescale_t=3.0, cfg_strength=2.0, cfg_interval=(0.5, 0.95))
CONDITION = dict(cond=torch.tensor(0.3), neg_cond=torch.tensor(-0.2))


def test_trellis_learns():
    """The interval of guidance is known before; its strength is a setting."""
    host, net = sparse.FlowEulerGuidanceIntervalSampler(), sparse.Net()

    def go(**more: Any) -> Tensor:
        noise = torch.randn(2, 4, 3, 3, 3, generator=torch.Generator().manual_seed(0))
        return host.sample(net, noise, steps=25, **CONDITION, **{**GUIDED, **more}).samples

    plain, calls = go(), counted(net.probe)
    go()
    full = len(calls)
    with accelerate(host, budget=8, learn=True) as handle:
        calls.clear()
        assert torch.equal(go(), plain) and len(calls) == full
        assert handle.learned is not None and handle.learned.pictures == 2
        calls.clear()
        go()
        report = reported(handle)
        assert report.evaluations == 8 and set(report.regimes) <= set(report.queried)
        assert report.forwards is not None
        assert len(calls) == report.forwards < full and "2 exact pictures" in report.plan
        for strength, stages in [(3.0, 25), (2.0, 8), (3.0, 8)]:
            go(cfg_strength=strength)
            assert reported(handle).evaluations == stages
    assert torch.equal(go(), plain)


def test_trellis_learns_on_voxels():
    """A sparse state is as many parts as samples; other numbers of voxels are other settings."""
    host = sparse.TrellisTextTo3DPipeline()

    def go(count: int, seed: int = 0) -> Any:
        coords = torch.argwhere(torch.ones(2, 3, 3, 3))[:count]
        return host.fill(coords, seed, steps=20, **CONDITION, **GUIDED).feats

    plain = go(50)
    with accelerate(host, budget=8, learn=True) as handle:
        assert torch.equal(go(50), plain)
        for count, seed, stages in [(50, 1, 8), (54, 0, 8), (29, 0, 20), (29, 1, 8), (50, 2, 8)]:
            assert go(count, seed).isfinite().all()
            assert reported(handle).evaluations == stages


def test_hosts_on_torchdiffeq_learn():
    pytest.importorskip("torchdiffeq")
    odes: Any = pytest.importorskip("hosts.odes")
    motion, speech = odes.MotionFlowMatching(20), odes.CFM()
    ways: list[tuple[Any, int, Callable[..., Tensor]]] = [
        (motion, 20, lambda **more: motion.generate([3], 5, **more)),
        (speech, 16, lambda **more: speech.sample([6, 9], 3, **more)[0]),
    ]
    for host, steps, go in ways:
        plain = go()
        with accelerate(host, budget=8, learn=True) as handle:
            assert torch.equal(go(), plain) and reported(handle).evaluations == steps
            assert handle.learned is not None
            go()
            assert reported(handle).evaluations == 8
        assert torch.equal(go(), plain)
    with accelerate(motion, budget=8, learn=True) as handle:
        for scale, stages in [(3.0, 20), (2.0, 20), (3.0, 8)]:
            motion.generate([3], 5, scale=scale)
            assert reported(handle).evaluations == stages


def test_a_call_of_several_loops_is_exact_as_a_whole():
    """Framepack makes section after section, each in the setting of the first."""
    pipe, kwargs = check.all_pipelines()["HunyuanVideoFramepackPipeline"]()
    with accelerate(pipe, budget=BUDGET, learn=True) as handle:
        check.run(pipe, kwargs)
        first = handle.reports
        assert len(first) > 1 and all(r.evaluations == r.steps for r in first)
        check.run(pipe, kwargs)
        assert all(r.evaluations == BUDGET < r.steps for r in handle.reports[len(first) :])


def test_a_second_loop_of_another_length_does_not_follow():
    pipe, kwargs = tiny("SkyReelsV2DiffusionForcingPipeline")
    plain = call(pipe, kwargs)
    with accelerate(pipe, budget=BUDGET, learn=True):
        assert torch.equal(call(pipe, kwargs), plain)
        call(pipe, kwargs)
