"""What has gone wrong between a pipeline and an accelerator, and the test that holds each of it.

Predictions are checked without our own planner: EARLY skips the stages 4 … 10, and with every
coefficient 1 they are v₃ + (v₃ − v₂), whatever the grid.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oracle
from geoshrink import Plan, accelerate
from geoshrink.outputs import children
from tiny_pipelines import (
    BUDGET,
    EARLY,
    STEPS,
    Sampler,
    accelerated,
    after,
    call,
    counted,
    intercepted,
    received,
    reported,
    sampled,
    tiny,
)

d: Any = pytest.importorskip("diffusers")
guiders: Any = pytest.importorskip("diffusers.guiders")
image: Any = pytest.importorskip("hosts.image")
compose: Any = pytest.importorskip("composing")
schedulers: Any = pytest.importorskip("schedulers")
pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)

SKIPPED = range(4, 11)
LINEAR: dict[str, Any] = {"anchors": EARLY, "coefficients": [1.0] * STEPS}
HERE = "test_traps.py::"
SEAM = "test_seam.py::"
SOLVERS = "test_seam_schedulers.py::"
OTHERS = "test_compose.py::"
STEERING = "test_steering.py::"

#: number: (what can go wrong, the tests that would fail)
TRAPS: dict[int, tuple[str, list[str]]] = {
    1: ("outputs come in many wrappings", [HERE + "test_outputs_of_every_form"]),
    2: ("half of the channels are a variance", [HERE + "test_a_variance_that_is_dropped"]),
    3: ("the model returns more tokens", [HERE + "test_tokens_that_are_cut_off"]),
    4: ("only a part of the latents steps", [HERE + "test_a_step_over_a_part_of_the_output"]),
    5: ("the pipeline turns the sign", [HERE + "test_an_output_that_is_negated"]),
    6: (
        "the precision changes before the step",
        [HERE + "test_the_dtype_is_the_one_that_step_is_used_to", SEAM + "test_half_precision"],
    ),
    7: ("the first call fills a cache", [HERE + "test_a_first_call_unlike_the_others"]),
    8: (
        "guidance is one call, several, or a second model",
        [
            HERE + "test_guidance_by_a_second_model",
            SOLVERS + "test_at_an_anchor_step_receives_the_models_output_after_guidance",
            SOLVERS + "test_two_modalities_have_a_history_each",
        ],
    ),
    9: (
        "guidance is not linear",
        [SOLVERS + "test_step_receives_the_prediction_of_what_step_received"],
    ),
    10: (
        "guidance or control begins or ends in mid-run",
        [
            SOLVERS + "test_guidance_that_a_callback_cuts_off",
            SOLVERS + "test_guidance_that_is_truncated",
            SOLVERS + "test_skip_layer_guidance_begins_and_ends",
            SOLVERS + "test_control_begins_and_ends",
            SOLVERS + "test_guidance_that_changes_smoothly_is_no_new_regime",
        ],
    ),
    11: (
        "a guider remembers earlier outputs",
        [
            HERE + "test_a_guiders_momentum_catches_up_at_exact_stages",
            HERE + "test_what_stands_in_leaves_no_trace",
            HERE + "test_outputs_that_are_used_beside_step",
        ],
    ),
    12: (
        "the guidance scale is an input of the model",
        [SOLVERS + "test_at_an_anchor_step_receives_the_models_output_after_guidance"],
    ),
    13: (
        "two evaluations share one σ",
        [
            SOLVERS + "test_a_pair_of_evaluations_is_one_stage",
            SOLVERS + "test_a_pair_of_flow_evaluations_is_one_stage",
            SOLVERS + "test_img2img_in_pairs",
        ],
    ),
    14: (
        "a timestep comes twice",
        [
            SOLVERS + "test_pndm_is_accelerated",
            SOLVERS + "test_pndm_that_begins_on_a_timestep_that_comes_twice",
        ],
    ),
    15: (
        "fewer evaluations than steps, two grids in one loop",
        [HERE + "test_two_grids_in_one_loop", HERE + "test_a_flow_by_another_name"],
    ),
    16: (
        "no σ at all, or another meaning of it",
        [
            HERE + "test_in_data_space_the_data_are_held",
            HERE + "test_data_that_are_not_known",
            SOLVERS + "test_schedulers_without_sigmas_are_planned_in_tau",
            SOLVERS + "test_the_plan_is_made_in_the_schedulers_own_sigmas",
        ],
    ),
    17: ("σ rises", [SOLVERS + "test_sigmas_that_rise"]),
    18: (
        "step takes its arguments otherwise, or is no solver's",
        [
            HERE + "test_arguments_in_another_order",
            HERE + "test_arguments_by_name",
            SOLVERS + "test_what_is_no_solver_runs_exactly_and_says_why",
        ],
    ),
    19: (
        "step is made twice in a stage",
        [HERE + "test_both_of_two_steps_are_given_the_prediction"],
    ),
    20: ("step returns one thing or another", [HERE + "test_step_returns_what_it_returned"]),
    21: ("the solver remembers outputs", [HERE + "test_a_multistep_solver_is_told_everything"]),
    22: (
        "the solver draws noise",
        [
            HERE + "test_the_generators_end_where_they_would",
            SOLVERS + "test_the_noise_is_that_of_the_full_run",
            SOLVERS + "test_the_noise_of_a_stochastic_flow_is_that_of_the_full_run",
        ],
    ),
    23: (
        "too few steps to skip any",
        [
            SOLVERS + "test_few_steps_run_exactly_and_say_why",
            SOLVERS + "test_what_is_no_solver_runs_exactly_and_says_why",
        ],
    ),
    24: (
        "a run over a part of the grid",
        [
            SOLVERS + "test_the_stages_are_those_that_are_run",
            SOLVERS + "test_img2img_is_planned_over_its_own_part_of_the_grid",
        ],
    ),
    25: ("timesteps are set again and again", [HERE + "test_one_loop_after_another_in_one_call"]),
    26: (
        "schedulers are copied",
        [
            SOLVERS + "test_schedulers_that_step_at_their_own_times_run_exactly_and_say_why",
            SOLVERS + "test_schedulers_that_step_together_are_accelerated",
            SEAM + "test_a_copy_of_the_scheduler_steps_alone",
        ],
    ),
    27: (
        "a loop without step",
        [
            SEAM + "test_a_loop_that_never_steps",
            SEAM + "test_a_scheduler_that_is_an_optional_argument",
        ],
    ),
    28: (
        "another expert takes over",
        [
            SOLVERS + "test_two_experts_are_two_regimes",
            SOLVERS + "test_experts_that_switch_at_an_anchor_cost_nothing",
            SOLVERS + "test_wan_with_unipc",
        ],
    ),
    29: (
        "weights are offloaded",
        [
            OTHERS + "test_model_offload",
            OTHERS + "test_group_offload",
            OTHERS + "test_hooks_on_every_leaf",
            SEAM + "test_offloaded_modules_are_not_touched_at_skipped_stages",
        ],
    ),
    30: (
        "a compiler, and graphs that use their memory again",
        [
            HERE + "test_an_output_that_is_overwritten",
            OTHERS + "test_compiled_before",
            OTHERS + "test_compiled_after",
        ],
    ),
    31: (
        "adapters",
        [OTHERS + "test_an_adapter", OTHERS + "test_lora_weights_that_come_and_go"],
    ),
    32: ("quantised layers", [HERE + "test_quantised_layers"]),
    33: ("ranks that must agree", [HERE + "test_the_same_stages_for_every_prompt_and_seed"]),
    34: (
        "a callback has its hands in the loop",
        [
            HERE + "test_a_callback_that_edits_the_latents",
            HERE + "test_a_callback_that_asks_for_the_output",
            SEAM + "test_a_callback_may_call_the_denoiser",
        ],
    ),
    35: (
        "threads",
        [HERE + "test_two_pipelines_in_two_threads", HERE + "test_a_run_in_another_thread"],
    ),
    36: (
        "inference mode",
        [
            HERE + "test_inference_mode_that_comes_and_goes",
            OTHERS + "test_inference_mode",
            OTHERS + "test_inference_mode_and_then_without",
        ],
    ),
    37: (
        "timesteps are set once more at the end",
        [
            HERE + "test_timesteps_that_are_set_after_the_loop",
            HERE + "test_the_denoiser_is_let_go_though_timesteps_are_set_again",
        ],
    ),
    38: (
        "a fault in mid-run",
        [
            SEAM + "test_after_a_fault_the_next_run_is_a_fresh_one",
            SEAM + "test_after_a_fault_the_denoiser_answers_for_itself",
            SEAM + "test_after_a_fault_nothing_is_held",
        ],
    ),
    39: (
        "a callback turns guidance, prompt, latents or an adapter",
        [
            STEERING + "test_a_setting_of_the_pipeline",
            STEERING + "test_a_tensor_that_is_replaced_or_edited_in_place",
            STEERING + "test_a_lora_that_is_turned_down_or_added",
            STEERING + "test_a_denoiser_that_a_callback_swaps_is_run_as_it_is",
        ],
    ),
    40: (
        "a network runs once, before the loop",
        [SOLVERS + "test_an_adapter_that_runs_before_the_loop_is_no_denoiser"],
    ),
    41: (
        "options that cannot work here",
        [
            HERE + "test_data_that_are_not_known",
            HERE + "test_what_only_one_of_two_schedulers_can_do",
            SEAM + "test_what_does_not_fit_this_run_makes_it_an_exact_one",
        ],
    ),
}


@functools.cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_trap_has_a_test():
    assert sorted(TRAPS) == list(range(1, 42))
    for number, (_, names) in TRAPS.items():
        assert names, number
        for file, name in (full.split("::") for full in names):
            assert name.startswith("test_") and name in functions_of(file), (number, name)


# --- what step receives --------------------------------------------------------------------------


def check_linear(seen: list[Tensor]) -> None:
    """Of one step per stage: the skipped ones were given v₃ + (v₃ − v₂), as they would v₃."""
    assert len(seen) == STEPS and (seen[3] - seen[2]).abs().max() > 1e-3
    for n in SKIPPED:
        assert seen[n].shape == seen[3].shape and seen[n].dtype == seen[3].dtype
        assert torch.allclose(seen[n], seen[3] + (seen[3] - seen[2]), rtol=1e-5, atol=1e-6), n


def shape_of(output: Any) -> tuple[int, ...]:
    """The shape of the first tensor in a model's output."""
    if isinstance(output, Tensor):
        return tuple(output.shape)
    return shape_of(output[0])


class Seen:
    """A linear run: what step received, one list per step of a stage, and the model's outputs."""

    def __init__(self, monkeypatch: Any, name: str, steps: int = 1, **more: Any):
        pipe, kwargs = tiny(name)
        outputs = received(monkeypatch, pipe.scheduler)
        self.raw: list[Any] = []
        self.tokens: list[tuple[int, int]] = []  # going in and coming out
        pipe.transformer.register_forward_hook(self.watch, with_kwargs=True)
        with accelerated(pipe, **LINEAR) as handle:
            call(pipe, kwargs, **more)
        assert reported(handle).queried == tuple(EARLY) and not reported(handle).extra
        self.steps = [[v for v, _ in outputs[i::steps]] for i in range(steps)]
        self.calls, self.shape = len(self.raw) // len(EARLY), tuple(outputs[0][0].shape)
        for part in self.steps:
            check_linear(part)

    def watch(self, module: nn.Module, args: tuple, kwargs: dict, out: Any) -> None:
        x = kwargs.get("hidden_states", *args[:1])
        self.tokens.append((shape_of(x)[1], shape_of(out)[1]))
        self.raw.append(out)


FORMS = [
    ("DiTPipeline", 1, lambda out: hasattr(out, "sample")),
    ("Kandinsky5T2IPipeline", 1, lambda out: hasattr(out, "sample")),
    ("LTX2Pipeline", 2, lambda out: isinstance(out, tuple) and len(out) == 2),
    ("ZImagePipeline", 1, lambda out: isinstance(out[0], list)),
]


@pytest.mark.parametrize("name, steps, is_form", FORMS)
def test_outputs_of_every_form(monkeypatch, name, steps, is_form):
    assert is_form(Seen(monkeypatch, name, steps).raw[0])


@pytest.mark.parametrize(
    "name", ["PixArtSigmaPipeline", "DiTPipeline", "LattePipeline", "HunyuanDiTPipeline"]
)
def test_a_variance_that_is_dropped(monkeypatch, name):
    seen = Seen(monkeypatch, name)
    assert shape_of(seen.raw[0])[1] == 2 * seen.shape[1]


def test_tokens_that_are_cut_off(monkeypatch):
    seen = Seen(monkeypatch, "FluxKontextPipeline")
    assert shape_of(seen.raw[0])[1] > seen.shape[1]


@pytest.mark.parametrize("name", ["HunyuanVideoImageToVideoPipeline", "Kandinsky5I2VPipeline"])
def test_a_step_over_a_part_of_the_output(monkeypatch, name):
    seen = Seen(monkeypatch, name)
    assert np.prod(shape_of(seen.raw[0])) > np.prod(seen.shape)


@pytest.mark.parametrize(
    "name", ["LuminaPipeline", "Lumina2Pipeline", "HiDreamImagePipeline", "ZImagePipeline"]
)
def test_an_output_that_is_negated(monkeypatch, name):
    Seen(monkeypatch, name)


@pytest.mark.parametrize("name", ["LTX2Pipeline", "CogVideoXPipeline", "ZImagePipeline"])
def test_the_dtype_is_the_one_that_step_is_used_to(monkeypatch, name):
    pipe, kwargs = tiny(name)
    pipe.to(torch.bfloat16)
    for name in [name for name in kwargs if "embeds" in name]:
        given = kwargs[name]
        many = isinstance(given, list)
        kwargs[name] = [v.bfloat16() for v in given] if many else given.bfloat16()
    seen = received(monkeypatch, pipe.scheduler)
    call(pipe, kwargs)
    plain = [v.dtype for v, _ in seen]
    assert set(plain) == {torch.float32}  # though the model is not
    seen.clear()
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs)
    assert [v.dtype for v, _ in seen] == plain and reported(handle).predicted


PREFILLED = [
    ("QwenImage21Pipeline", lambda: {}),  # returns its text tokens too
    ("Flux2KleinKVPipeline", lambda: {"image": image.picture(64)}),  # takes the image's tokens
]


@pytest.mark.parametrize("name, more", PREFILLED)
def test_a_first_call_unlike_the_others(monkeypatch, name, more):
    seen = Seen(monkeypatch, name, **more())
    first, *later = seen.tokens[:: seen.calls]
    assert len(set(later)) == 1 and sum(first) > sum(later[0])


# --- guidance ------------------------------------------------------------------------------------


def test_guidance_by_a_second_model():
    pipe, kwargs = tiny("Ideogram4Pipeline")
    plain = call(pipe, kwargs)
    one, two = counted(pipe.transformer), counted(pipe.unconditional_transformer)
    with accelerated(pipe, budget=BUDGET):
        call(pipe, kwargs)
    assert len(one) == len(two) == BUDGET
    assert torch.equal(call(pipe, kwargs), plain)


def apg_in_a_pipeline() -> tuple[Any, dict[str, Any]]:
    return tiny("HunyuanImagePipeline")


def apg_in_a_modular_pipeline() -> tuple[Any, dict[str, Any]]:
    modular: Any = pytest.importorskip("diffusers.modular_pipelines")
    plain, kwargs = tiny("WanPipeline")
    blocks = modular.WanBlocks()
    for name in ("text_encoder", "decode"):
        blocks.sub_blocks.pop(name)
    pipe = blocks.init_pipeline()
    guider = guiders.AdaptiveProjectedGuidance(4.0, adaptive_projected_guidance_momentum=-0.5)
    pipe.update_components(transformer=plain.transformer, scheduler=plain.scheduler, guider=guider)
    pipe.set_progress_bar_config(disable=True)
    return pipe, {k: v for k, v in kwargs.items() if k != "output_type"} | {"output": "latents"}


@pytest.mark.parametrize("build", [apg_in_a_pipeline, apg_in_a_modular_pipeline])
def test_a_guiders_momentum_catches_up_at_exact_stages(build):
    """Over skipped stages it is fed differences between those of the two exact ones."""
    pipe, kwargs = build()
    guider, seen = pipe.guider, []
    forward = guider.forward

    def watched(pred_cond: Tensor, pred_uncond: Tensor) -> Any:
        result = forward(pred_cond, pred_uncond)
        seen.append((pred_cond - pred_uncond, guider.momentum_buffer.running_average))
        return result

    guider.forward = watched
    with accelerated(pipe, anchors=EARLY) as handle:
        call(pipe, kwargs)
    assert reported(handle).queried == tuple(EARLY) and len(seen) == STEPS
    average: Any = 0
    for before, n in zip([-1, *EARLY], EARLY):
        difference, got = seen[n]
        for k in range(before + 1, n + 1):
            fed = torch.lerp(seen[before][0], difference, (k - before) / (n - before))
            average = fed + guider.adaptive_projected_guidance_momentum * average
        assert torch.allclose(got, average, rtol=1e-5, atol=1e-6), n
    assert "update" not in vars(guider.momentum_buffer)


def apg_in_the_loop() -> tuple[Any, dict[str, Any]]:
    pipe, kwargs = tiny("AceStepPipeline")
    pipe.scheduler = d.FlowMatchEulerDiscreteScheduler(num_train_timesteps=1, shift=1.0)
    return pipe, {**kwargs, "guidance_scale": 4.0}


def safe() -> tuple[Any, dict[str, Any]]:
    pipe, kwargs = tiny("StableDiffusionPipelineSafe")
    return pipe, {**kwargs, "sld_warmup_steps": 0, "sld_guidance_scale": 2000}


def semantic() -> tuple[Any, dict[str, Any]]:
    pipe, kwargs = tiny("SemanticStableDiffusionPipeline")
    return pipe, {**kwargs, "editing_prompt": ["a dog"], "edit_warmup_steps": 0}


def cycle() -> tuple[Any, dict[str, Any]]:
    pipe, kwargs = tiny("CycleDiffusionPipeline")
    return pipe, {**kwargs, "strength": 1.0}


CLEAN = ["FluxPipeline", "StableDiffusion3Pipeline", "WanPipeline", "QwenImagePipeline"]
TRACES = [
    *(pytest.param(functools.partial(tiny, name), id=name) for name in CLEAN),
    pytest.param(functools.partial(tiny, "LTX2Pipeline (all guidance)"), id="LTX2Pipeline"),
    apg_in_a_pipeline,
    apg_in_a_modular_pipeline,
    apg_in_the_loop,
]


@pytest.mark.parametrize("build", TRACES)
def test_what_stands_in_leaves_no_trace(monkeypatch, build):
    """The result does not depend on what the denoisers return at skipped stages."""
    loop: Any = pytest.importorskip("geoshrink.hosts.loop")
    pipe, kwargs = build()
    noise, hollow = torch.Generator().manual_seed(1), loop.hollow

    def noisy(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.randn(value.shape, generator=noise).to(value)
        split = children(value)
        if split is None:
            return hollow(value)
        parts = [noisy(part) for part in split[0]]
        return split[1](parts)(parts)

    with accelerated(pipe, anchors=EARLY):
        want = call(pipe, kwargs)
        monkeypatch.setattr(loop, "hollow", noisy)
        assert torch.equal(call(pipe, kwargs), want)
    assert not torch.equal(noise.get_state(), torch.Generator().manual_seed(1).get_state())


@pytest.mark.parametrize("build", [safe, semantic, cycle])
def test_outputs_that_are_used_beside_step(build):
    """A momentum in local tensors, noise computed from the output: every stage is queried."""
    pipe, kwargs = build()
    plain = call(pipe, kwargs)
    with accelerated(pipe, anchors=EARLY) as handle:
        assert torch.equal(call(pipe, kwargs), plain)
    assert any("its outputs" in reason for _, reason in reported(handle).reasons)


# --- schedulers ----------------------------------------------------------------------------------


class Twin:
    """Two modalities, a scheduler each, with σ-grids of their own."""

    def __init__(self, stages: int = STEPS) -> None:
        torch.manual_seed(0)
        self.stages = stages
        self.video, self.audio = d.MiniMaxH3Scheduler(shift=12.0), d.MiniMaxH3Scheduler(shift=3.0)
        self.net = nn.Linear(8, 8)

    def __call__(self) -> Tensor:
        self.video.set_timesteps(self.stages + 1)
        self.audio.set_timesteps(self.stages + 1)
        x, y = torch.ones(1, 4), -torch.ones(1, 4)
        with torch.no_grad():
            for t, s in zip(self.video.timesteps, self.audio.timesteps):
                v, w = self.net(torch.cat([x, y], -1)).tanh().chunk(2, -1)
                x = self.video.step(v, t, x).prev_sample
                y = self.audio.step(w, s, y).prev_sample
        return torch.cat([x, y])


def test_two_grids_in_one_loop(monkeypatch):
    """One evaluation fewer than steps; each modality is predicted along its own σ."""
    host = Twin()
    plain, calls = host(), counted(host.net)
    seen = received(monkeypatch, host.video)
    with accelerated(host, anchors=EARLY, rule="chordal", denoisers=["net"]) as handle:
        host()
    assert reported(handle).steps == STEPS and len(calls) == len(EARLY)
    for i, scheduler in enumerate((host.video, host.audio)):
        outputs = [v.double().numpy() for v, _ in seen[i::2]]
        history = [(k, outputs[k]) for k in EARLY[:-1]]
        for n in SKIPPED:
            want = oracle.predict(history, scheduler.sigmas.double().tolist(), n, "chordal")
            assert np.allclose(outputs[n], want, rtol=1e-4, atol=1e-6), (i, n)
    assert torch.equal(host(), plain)


def test_a_flow_by_another_name():
    host = Twin(30)
    with accelerated(host, budget=BUDGET, correct=False, denoisers=["net"]) as handle:
        host()
    assert reported(handle).queried == Plan.of(host.video.sigmas, BUDGET, correct=False).anchors


@pytest.mark.parametrize("name", ["Euler", "Euler ancestral", "Euler, v"])
def test_in_data_space_the_data_are_held(name):
    """With every coefficient 0 the solver's own estimate of the data stays where it was."""
    host = Named()
    host.scheduler = schedulers.ORDER_1[name]()
    with accelerated(
        host, anchors=EARLY, coefficients=[0.0] * STEPS, space="data", denoisers=["net"]
    ):
        host()
    data = [result.pred_original_sample for result in host.results]
    assert not torch.allclose(data[3], data[2], atol=1e-3)
    assert all(torch.allclose(data[n], data[3], rtol=1e-4, atol=1e-4) for n in SKIPPED)


@pytest.mark.parametrize("name", ["DDIM", "DDPM", "DPM++", "UniPC", "LCM"])
def test_data_that_are_not_known(name):
    host = Named()
    host.scheduler = schedulers.ALL[name]()
    kind, given = type(host.scheduler).__name__, dict(vars(host.scheduler))
    with pytest.raises(ValueError, match=f"space='data'.*{kind}"):
        accelerate(host, budget=BUDGET, space="data", denoisers=["net"])
    assert vars(host.scheduler).keys() == given.keys()


@pytest.mark.parametrize("options", [{"space": "data"}, {"refine": 4}])
def test_what_only_one_of_two_schedulers_can_do(options):
    """The one that steps cannot: it is found out in the run, which is then an exact one."""
    host = Named()
    host.scheduler = schedulers.ALL["DPM++"]()
    host.other = schedulers.ALL["Euler"]()  # type: ignore[attr-defined]
    plain = host()
    with accelerated(host, budget=BUDGET, denoisers=["net"], **options) as handle:
        assert torch.equal(host(), plain)
    report = reported(handle)
    assert report.evaluations == STEPS and "DPMSolverMultistep" in report.reasons[0][1]


def test_arguments_in_another_order(monkeypatch):
    """CogVideoX's solver takes the data prediction before, two timesteps, and then the latents."""
    assert isinstance(tiny("CogVideoXPipeline")[0].scheduler, d.CogVideoXDPMScheduler)
    Seen(monkeypatch, "CogVideoXPipeline")


class Named(Sampler):
    """Gives step its arguments by name, the latents first."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.more, self.results = more, []

    def __call__(self) -> Tensor:
        self.scheduler.set_timesteps(STEPS)
        x = torch.ones(2, 4)
        with torch.no_grad():
            for t in self.scheduler.timesteps:
                parts = {"sample": x, "timestep": t, "model_output": self.net(x).tanh()}
                self.results.append(self.scheduler.step(**parts, **self.more))
                x = self.results[-1][0]
        return x


def test_arguments_by_name(monkeypatch):
    host = Named()
    seen = received(monkeypatch, host.scheduler)
    with accelerated(host, **LINEAR, denoisers=["net"]):
        host()
    check_linear([v for v, _ in seen])


@pytest.mark.parametrize("more", [{}, {"return_dict": False}])
@pytest.mark.parametrize("name", ["flow", "DDIM", "DPM++"])
def test_step_returns_what_it_returned(name, more):
    host = Named(**more)
    host.scheduler = (schedulers.FLOW | schedulers.ORDER_1)[name]()
    host()
    plain = [(type(result), len(result)) for result in host.results]
    host.results.clear()
    with accelerated(host, **LINEAR, denoisers=["net"]):
        host()
    assert [(type(result), len(result)) for result in host.results] == plain


def test_both_of_two_steps_are_given_the_prediction(monkeypatch):
    """Cosmos asks step for the data, takes the step back, and makes it with them."""
    pipe, kwargs = tiny("CosmosTextToWorldPipeline")
    seen = received(monkeypatch, pipe.scheduler)
    with accelerated(pipe, anchors=[0, 1, 2, 3, 10], coefficients=[1.0] * 11) as handle:
        call(pipe, kwargs)
    assert len(seen) == 2 * STEPS and reported(handle).predicted == tuple(range(4, 10))
    for part in (seen[::2], seen[1::2]):
        v = [v for v, _ in part]
        assert (v[3] - v[2]).abs().max() > 1e-3
        for n in range(4, 10):
            assert torch.allclose(v[n], v[3] + (v[3] - v[2]), rtol=1e-5, atol=1e-6), n


@pytest.mark.parametrize("name", ["UniPC", "DPM++", "DPM++, order 3", "DEIS", "LMS", "IPNDM"])
def test_a_multistep_solver_is_told_everything(monkeypatch, name):
    """A solver of the same kind that is given the same outputs comes to the same result."""
    pipe, kwargs = tiny("StableDiffusionPipeline")
    pipe.scheduler = schedulers.ORDER_1[name]()
    seen = received(monkeypatch, pipe.scheduler)
    with accelerated(pipe, budget=BUDGET, correct=False) as handle:
        out = call(pipe, kwargs)
    fresh = schedulers.ORDER_1[name]()
    fresh.set_timesteps(STEPS)
    outputs, x = [v for v, _ in seen], seen[0][1]
    for v, t in zip(outputs, fresh.timesteps):
        x = fresh.step(v, t, x).prev_sample
    assert torch.equal(x, out) and reported(handle).predicted


@pytest.mark.parametrize("name", schedulers.STOCHASTIC)
def test_the_generators_end_where_they_would(name):
    pipe, kwargs = tiny("StableDiffusionPipeline")
    make, more = schedulers.STOCHASTIC[name]

    def states(accelerating: Any) -> tuple[Tensor, Tensor]:
        noise = torch.Generator().manual_seed(0)
        with accelerating:
            call(pipe, kwargs, **more, generator=noise)
        return torch.get_rng_state(), noise.get_state()

    pipe.scheduler = make()
    plain = states(contextlib.nullcontext())
    ours = states(accelerated(pipe, budget=BUDGET))
    assert all(torch.equal(a, b) for a, b in zip(ours, plain))


# --- loops ---------------------------------------------------------------------------------------


class Chunks(Sampler):
    """Sets its timesteps twice, then runs one loop after another."""

    def __call__(self) -> Tensor:
        self.scheduler.set_timesteps(4)
        return torch.stack([sampled(self.scheduler, self.net) for _ in range(3)])


def test_one_loop_after_another_in_one_call():
    host = Chunks()
    plain, calls = host(), counted(host.net)
    with accelerated(host, anchors=EARLY, denoisers=["net"]) as handle:
        out = host()
        assert [r.steps for r in handle.reports] == [STEPS] * 3
        assert [r.evaluations for r in handle.reports] == [len(EARLY)] * 3
        assert not any(r.extra for r in handle.reports)
    assert len(calls) == 3 * len(EARLY)
    assert torch.equal(out[0], out[1]) and torch.equal(out[0], out[2])
    assert torch.equal(host(), plain) and not torch.equal(out, plain)


def test_timesteps_that_are_set_after_the_loop(caplog):
    pipe, kwargs = tiny("WanAnimatePipeline")
    calls = counted(pipe.transformer)
    with caplog.at_level("INFO", "geoshrink"), accelerated(pipe, anchors=EARLY) as handle:
        for runs in (1, 2):
            call(pipe, kwargs)
            assert [r.evaluations for r in handle.reports] == [len(EARLY)] * runs
            assert reported(handle).steps == STEPS and len(calls) == runs * len(EARLY)
            lines = [r for r in caplog.records if "stages exact" in r.getMessage()]
            assert len(lines) == runs


def test_the_denoiser_is_let_go_though_timesteps_are_set_again():
    pipe, kwargs = tiny("WanAnimatePipeline")
    with accelerated(pipe, anchors=EARLY):
        call(pipe, kwargs)
        assert not intercepted(pipe)


class Modes(Sampler):
    """Every other stage in inference mode; where torch forbids it, x is made a plain tensor."""

    def __call__(self) -> Tensor:
        self.scheduler.set_timesteps(STEPS)
        x = torch.ones(2, 4)
        for i, t in enumerate(self.scheduler.timesteps):
            with torch.no_grad() if i % 2 else torch.inference_mode():
                x = self.scheduler.step(self.net(x.clone()), t, x.clone()).prev_sample
        return x


def test_inference_mode_that_comes_and_goes():
    host, same = Modes(), Sampler()
    with accelerated(host, anchors=EARLY, denoisers=["net"]) as handle:
        out = host()
        assert reported(handle).evaluations == len(EARLY) and not reported(handle).extra
    with accelerated(same, anchors=EARLY, denoisers=["net"]):
        assert torch.equal(same(), out)


def test_an_output_that_is_overwritten(monkeypatch):
    """As a CUDA graph does with its own: the next replay writes over what the last returned."""
    pipe, kwargs = tiny("FluxPipeline")
    with accelerated(pipe, budget=BUDGET):
        want = call(pipe, kwargs)
    forward, memory = pipe.transformer.forward, []

    def replayed(*args: Any, **kwargs: Any) -> tuple[Tensor]:
        out = forward(*args, **kwargs)[0]
        if not memory:
            memory.append(torch.empty_like(out))
        return (memory[0].copy_(out),)

    monkeypatch.setattr(pipe.transformer, "forward", replayed)

    def spoil(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        memory[0].fill_(float("nan"))
        return tensors

    with accelerated(pipe, budget=BUDGET):
        assert torch.equal(call(pipe, kwargs, callback_on_step_end=spoil), want)


@pytest.mark.parametrize("space", ["output", "data"])
def test_a_callback_that_edits_the_latents(monkeypatch, space):
    """step goes on from the edited latents; the history holds what it held."""
    pipe, kwargs = tiny("FluxPipeline")
    seen = received(monkeypatch, pipe.scheduler)
    made: list[Tensor] = []

    def edit(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        made.append(tensors["latents"] * (0.5 if i in (2, 6) else 1.0))
        return {"latents": made[-1]}

    with accelerated(pipe, anchors=EARLY, space=space) as handle:
        call(pipe, kwargs, callback_on_step_end=edit)
    assert reported(handle).evaluations == len(EARLY) and not reported(handle).reasons
    assert all(torch.equal(x, before) for (_, x), before in zip(seen[1:], made))
    plan = Plan.of(pipe.scheduler.sigmas, anchors=EARLY, space=space)
    for n, want in enumerate(schedulers.replayed(seen, plan)):
        assert torch.allclose(seen[n][0], want, rtol=1e-5, atol=1e-6), n


@pytest.mark.parametrize("name", ["FluxPipeline", "StableDiffusion3Pipeline"])
def test_a_callback_that_asks_for_the_output(monkeypatch, name):
    """At a skipped stage it gets what stands in for the output: a constant, as documented."""
    pipe, kwargs = tiny(name)
    pipe._callback_tensor_inputs = [*pipe._callback_tensor_inputs, "noise_pred"]
    seen, given = received(monkeypatch, pipe.scheduler), []

    def look(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        given.append(tensors.pop("noise_pred").clone())
        return tensors

    more: dict[str, Any] = {"callback_on_step_end_tensor_inputs": ["latents", "noise_pred"]}
    with accelerated(pipe, anchors=EARLY):
        call(pipe, kwargs, callback_on_step_end=look, **more)
    assert len(given) == STEPS
    for n, (a, (v, _)) in enumerate(zip(given, seen)):
        assert a.std() == 0 if n in SKIPPED else torch.equal(a, v), n


# --- machines ------------------------------------------------------------------------------------


class Int8(nn.Module):
    """A linear layer whose weights are bytes."""

    weight: Tensor
    scale: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        scale = layer.weight.detach().abs().amax() / 127
        self.register_buffer("weight", (layer.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight.to(x) * self.scale, self.bias)


def by_hand(module: nn.Module) -> None:
    for part in list(module.modules()):
        for name, layer in list(part.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(part, name, Int8(layer))


def by_torch(module: nn.Module) -> None:
    quantization: Any = pytest.importorskip("torch.ao.quantization")
    if not set(torch.backends.quantized.supported_engines) - {"none"}:
        pytest.skip("this build of torch has no quantised layers")
    quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8, inplace=True)


def by_torchao(module: nn.Module) -> None:
    torchao: Any = pytest.importorskip("torchao.quantization")
    torchao.quantize_(module, torchao.Int8WeightOnlyConfig())


@pytest.mark.parametrize("quantise", [by_hand, by_torch, by_torchao])
def test_quantised_layers(quantise):
    pipe, kwargs = compose.tiny()
    plain = compose.run(pipe, kwargs)
    quantise(pipe.transformer)
    assert not torch.equal(compose.run(pipe, kwargs), plain)
    compose.composes(pipe, kwargs, compose.calls_of(pipe.transformer))


def test_the_same_stages_for_every_prompt_and_seed():
    """Nothing that is measured decides what is run: ranks need no vote."""
    pipe, kwargs = tiny("WanPipeline")
    stages = set()
    with accelerated(pipe, budget=BUDGET) as handle:
        for scale in (0.0, 1.0, 1e4):
            words = {k: scale * v if "embeds" in k else v for k, v in kwargs.items()}
            for seed in range(3):
                call(pipe, words, generator=torch.Generator().manual_seed(seed))
                stages.add((reported(handle).queried, reported(handle).predicted))
                assert not reported(handle).extra
    assert len(stages) == 1


def test_two_pipelines_in_two_threads():
    """In lockstep, with different stages skipped."""
    names, anchors = ["FluxPipeline", "StableDiffusion3Pipeline"], [EARLY, [0, 1, 2, 7, 11]]
    pairs = [tiny(name) for name in names]
    handles = [accelerate(pipe, anchors=a) for (pipe, _), a in zip(pairs, anchors)]
    alone = [call(*pair) for pair in pairs]
    gate = threading.Barrier(2, timeout=30)

    def meet(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        gate.wait()
        return tensors

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(call, *pair, callback_on_step_end=meet) for pair in pairs]
        together = [run.result() for run in runs]
    assert all(torch.equal(a, b) for a, b in zip(together, alone))
    for handle, stages in zip(handles, anchors):
        assert [r.queried for r in handle.reports] == [tuple(stages)] * 2


def test_a_run_in_another_thread():
    pipe, kwargs = tiny("FluxPipeline")
    plain, calls = call(pipe, kwargs), counted(pipe.transformer)
    with ThreadPoolExecutor(1) as pool, accelerated(pipe, anchors=EARLY) as handle:
        here = call(pipe, kwargs)
        there = pool.submit(call, pipe, kwargs).result()
        assert torch.equal(here, there) and len(calls) == 2 * len(EARLY)
        assert [r.evaluations for r in handle.reports] == [len(EARLY)] * 2
        stopped = pool.submit(call, pipe, kwargs, callback_on_step_end=after(5, fail))
        assert isinstance(stopped.exception(), ZeroDivisionError)
        assert torch.equal(call(pipe, kwargs), here)
    assert torch.equal(call(pipe, kwargs), plain)


def fail(pipe: Any) -> None:
    raise ZeroDivisionError
