"""What a callback changes between two stages: seen, queried, and said in the report.

EARLY skips the stages 4 … 10: what is changed behind stage 6 is met by the skipped stage 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tiny_pipelines import EARLY, STEPS, accelerated, after, call, counted, reported, tiny

d: Any = pytest.importorskip("diffusers")
schedulers: Any = pytest.importorskip("test_seam_schedulers")
pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)

TURNED = 7


def setting(name: str, value: Any, stage: int = TURNED - 1) -> Callable:
    return after(stage, lambda pipe: setattr(pipe, name, value))


def editing(name: str, edit: Callable[[Tensor], Any], stages: tuple[int, ...]) -> dict[str, Any]:
    """Arguments of a call whose callback edits a tensor."""

    def callback(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        return tensors | ({name: edit(tensors[name])} if i in stages else {})

    return {
        "callback_on_step_end": callback,
        "callback_on_step_end_tensor_inputs": sorted({"latents", name}),
    }


def run(name: str, **more: Any) -> tuple[Tensor, Any]:
    """(result, report) of a run with the stages EARLY; as plain at a full budget."""
    plain = call(*tiny(name), **more)
    pipe, kwargs = tiny(name)  # a callback may have edited what was given
    with accelerated(pipe, budget=STEPS) as handle:
        assert torch.equal(call(pipe, kwargs, **more), plain)
    assert "a callback" not in str(reported(handle).reasons)
    pipe, kwargs = tiny(name)
    with accelerated(pipe, anchors=EARLY) as handle:
        made = call(pipe, kwargs, **more)
    return made, reported(handle)


def check(report: Any, what: str, *stages: int) -> None:
    assert report.extra == stages, report.reasons
    told = [n for n, reason in report.reasons if f"a callback changed {what}" in reason]
    assert tuple(told) == stages, report.reasons


SETTINGS = [
    ("StableDiffusionXLPipeline", "_guidance_scale", 9.0),
    ("StableDiffusionXLPipeline", "_guidance_rescale", 0.7),
    ("StableDiffusionXLPipeline", "_cross_attention_kwargs", {"scale": 0.2}),
    ("StableDiffusion3Pipeline", "_guidance_scale", 2.0),
    ("FluxPipeline", "_joint_attention_kwargs", {"scale": 0.2}),
    ("WanPipeline", "_guidance_scale", 2.0),
]


@pytest.mark.parametrize("name, attribute, value", SETTINGS)
def test_a_setting_of_the_pipeline(name, attribute, value):
    more = {} if name == "FluxPipeline" else {"guidance_scale": 5.0}
    _, report = run(name, callback_on_step_end=setting(attribute, value), **more)
    check(report, attribute, TURNED)


def test_guidance_that_changes_in_the_last_third_at_every_stage():
    def callback(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        if i >= 7:
            pipe._guidance_scale *= 0.8
        return tensors

    _, report = run("StableDiffusionXLPipeline", callback_on_step_end=callback)
    assert report.extra == (8, 9, 10)  # 11 is queried in any case
    told = [n for n, reason in report.reasons if "a callback changed _guidance_scale" in reason]
    assert told == [8, 9, 10, 11]


def test_the_history_restarts(monkeypatch):
    """Stage 8 leaves stage 7 along the line before the change: the change itself is not in it."""
    pipe, kwargs = tiny("StableDiffusionXLPipeline")
    seen = schedulers.received(monkeypatch, pipe.scheduler)
    with accelerated(pipe, anchors=EARLY):
        call(pipe, kwargs, callback_on_step_end=setting("_guidance_scale", 9.0))
    change = (seen[TURNED + 1][0] - seen[TURNED][0]).double().flatten()
    line = (seen[3][0] - seen[2][0]).double().flatten()
    assert change.norm() > 0
    assert torch.cosine_similarity(change, line, 0) == pytest.approx(1, abs=1e-4)
    assert not torch.equal(seen[TURNED][0], seen[TURNED - 1][0])


EDITS: list[tuple[str, str]] = [
    ("StableDiffusionXLPipeline", "prompt_embeds"),
    ("StableDiffusionXLPipeline", "add_time_ids"),
    ("StableDiffusionXLPipeline", "latents"),
    ("StableDiffusionPipeline", "prompt_embeds"),
    ("FluxPipeline", "prompt_embeds"),
    ("FluxPipeline", "latents"),
    ("WanPipeline", "negative_prompt_embeds"),
]


@pytest.mark.parametrize("halve", [Tensor.mul, Tensor.mul_])
@pytest.mark.parametrize("name, tensor", EDITS)
def test_a_tensor_that_is_replaced_or_edited_in_place(name, tensor, halve):
    _, report = run(name, **editing(tensor, lambda t: halve(t, 0.5), (TURNED - 1,)))
    check(report, tensor, TURNED)


def test_a_tensor_that_is_replaced_in_inference_mode():
    with torch.inference_mode():
        _, report = run("FluxPipeline", **editing("latents", lambda x: x * 0.5, (TURNED - 1,)))
    check(report, "latents", TURNED)


def test_latents_that_are_edited_behind_every_stage_belong_to_the_loop():
    _, report = run("FluxPipeline", **editing("latents", lambda x: x * 0.99, tuple(range(STEPS))))
    assert not report.extra and not report.reasons


def test_latents_that_are_edited_behind_the_first_stage_only():
    _, report = run("FluxPipeline", **editing("latents", lambda x: x * 0.5, (0,)))
    assert any(n == 2 for n, reason in report.reasons if "latents" in reason)


@pytest.mark.parametrize("name", ["StableDiffusionInpaintPipeline", "WanPipeline", "FluxPipeline"])
def test_a_callback_that_only_looks(name):
    pipe, kwargs = tiny(name)
    kwargs |= {"strength": 1.0} if "Inpaint" in name else {}
    with accelerated(pipe, anchors=EARLY) as handle:
        want = call(pipe, kwargs)
        made = call(pipe, kwargs, callback_on_step_end=lambda pipe, i, t, tensors: tensors)
    assert torch.equal(made, want) and not reported(handle).reasons


def test_guidance_that_changes_in_the_middle_of_a_pair():
    """Behind the first round of stage 3 of an order-2 solver: stage 4 is another regime."""
    pipe, kwargs = tiny("StableDiffusionPipeline")
    pipe.scheduler = schedulers.ORDER_2["Heun"]()
    turn = setting("_guidance_scale", 2.0, stage=6)
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs, callback_on_step_end=turn)
    check(reported(handle), "_guidance_scale", 4)


def lora(pipe: Any) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["to_q"], init_lora_weights=False)
    pipe.transformer.add_adapter(config, "style")


@pytest.mark.parametrize("given", [True, False])
def test_a_lora_that_is_turned_down_or_added(given):
    pipe, kwargs = tiny("FluxPipeline")
    if given:
        lora(pipe)
    act = (lambda pipe: pipe.transformer.set_adapters("style", 0.1)) if given else lora
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs, callback_on_step_end=after(TURNED - 1, act))
    check(reported(handle), "an adapter's scale", TURNED)


def test_the_scale_of_an_image_prompt():
    """IP-Adapters keep it in the attention processors."""
    attention = pytest.importorskip("diffusers.models.attention_processor")
    pipe, kwargs = tiny("StableDiffusionPipeline")
    known = pipe.unet.attn_processors
    kind = attention.IPAdapterAttnProcessor2_0
    processors = {k: kind(32, 32) if "attn2" in k else v for k, v in known.items()}
    for key, processor in processors.items():
        part = pipe.unet.get_submodule(key.removesuffix(".processor"))
        if isinstance(processor, kind):
            processors[key] = kind(part.inner_dim, part.cross_attention_dim, scale=0.8)
    pipe.unet.set_attn_processor(processors)
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs, callback_on_step_end=after(TURNED - 1, turn_down))
    check(reported(handle), "an adapter's scale", TURNED)


def turn_down(pipe: Any) -> None:
    for processor in pipe.unet.attn_processors.values():
        if hasattr(processor, "scale"):
            processor.scale = [0.1]


def test_a_batch_that_changes_its_size():
    pipe, kwargs = tiny("StableDiffusionPipeline")
    calls = counted(pipe.unet)
    shrink = editing("latents", lambda x: x[:1], (TURNED - 1,))
    twice = {"num_images_per_prompt": 2, "guidance_scale": 1.0}
    with accelerated(pipe, anchors=EARLY) as handle:
        with pytest.raises(RuntimeError, match=r"size|shape|batch"):  # the plain run's own
            call(pipe, kwargs, **twice, **shrink)
        call(pipe, kwargs)
    assert calls and reported(handle).evaluations == len(EARLY)


@pytest.mark.parametrize("behind", [0, 3, 6, 10])
def test_a_denoiser_that_a_callback_swaps_is_run_as_it_is(behind):
    other = tiny("FluxPipeline")[0].transformer
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(0.5)
    pipe, kwargs = tiny("FluxPipeline")
    with accelerated(pipe, anchors=EARLY) as handle:
        calls = counted(other)
        swap = setting("transformer", other, behind)
        made = call(pipe, kwargs, callback_on_step_end=swap)
    assert len(calls) == STEPS - 1 - behind and made.isfinite().all()
    if behind:
        assert "a network that is not accelerated" in str(reported(handle).reasons)
        assert reported(handle).forwards == len([n for n in EARLY if n <= behind])
