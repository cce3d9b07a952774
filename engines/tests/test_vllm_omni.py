"""The plugin in vLLM-Omni's own runner, mixin, requests, scheduler and adapter, over toy networks.

vllm itself, which needs CUDA, is a stand-in (support/vllm_stubs.py).
"""

from __future__ import annotations

import importlib.util
import json
import pickle
import random
import subprocess
import sys
import threading
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import geoshrink
from geoshrink import pace
from geoshrink.hosts import vllm_omni as plugin
from geoshrink.hosts import vllm_pipelines as pipelines

SUPPORT = Path(__file__).parent / "support"
sys.path[:0] = [str(SUPPORT), str(Path(__file__).parents[2] / "tests" / "support")]

vllm_stubs: Any = import_module("vllm_stubs")

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vllm_stubs.install()
        plugin.register()  # before the engine is imported
        import vllm_real as real
        import vllm_toys as toys
        from vllm_omni.diffusion.cache import selector
        from vllm_omni.diffusion.data import DiffusionOutput, DiffusionRequestAbortedError
        from vllm_omni.diffusion.distributed import parallel_state
        from vllm_omni.diffusion.hooks.base import HookRegistry, ModelHook
        from vllm_omni.diffusion.models.diffusers_adapter import pipeline_diffusers_adapter
        from vllm_omni.diffusion.output_formatter import (
            format_diffusion_outputs,
            normalize_diffusion_postprocess_output,
        )
        from vllm_omni.diffusion.sched.request_scheduler import RequestScheduler
        from vllm_omni.diffusion.worker import diffusion_model_runner
        from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch
        from vllm_omni.distributed.omni_connectors.utils.serialization import (
            OmniMsgpackDecoder,
            OmniMsgpackEncoder,
        )
        from vllm_omni.outputs import OmniRequestOutput
except ImportError as error:
    pytest.skip(f"vLLM-Omni cannot be imported: {error}", allow_module_level=True)

STEPS = toys.STEPS
pytestmark = pytest.mark.usefixtures("one_thread")


def made(runner: Any, *requests: Any) -> list[DiffusionOutput]:
    """What the engine's runner makes of a batch of requests."""
    output = runner._execute_request_list(
        list(requests),
        od_config=runner.od_config,
        allow_single_output=len(requests) == 1,
        require_request_batch_support=False,
        record_name="test",
    )
    return [one.result for one in output.runner_outputs]


def one(runner: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
    """(what a request makes, what it is told)."""
    (output,) = made(runner, toys.request(*args, **kwargs))
    return output.output, plugin.told_in(output.stage_durations)


def untouched(pipeline: Any) -> bool:
    names = {"forward", "_call_impl", "step", "set_timesteps", "__getstate__", *pipelines.METHODS}
    parts = [pipeline, *pipeline.modules(), *pipelines.find_schedulers(pipeline)]
    return not any(names & set(vars(part)) for part in parts)


def full(kind: Any, **kwargs: Any) -> Tensor:
    """What the pipeline makes without us."""
    return one(toys.runner(kind(), None), **kwargs)[0]


KINDS = {
    "guided": (toys.Guided, 2),
    "branches": (toys.Branches, 3),
    "plain": (toys.Plain, 1),
    "tuples": (toys.Tuples, 2),
    "swaps": (toys.Swaps, 2),
    "solver": (toys.Solver, 2),
    "copies": (lambda: toys.Guided(copies=True), 2),
}


# -- the plugin


def test_nothing_is_changed_until_somebody_asks():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline, None)
    assert runner.cache_backend is None and untouched(pipeline)
    _, said = one(runner, asked={"speedup": 3})
    assert said == {} and len(pipeline.transformer.calls) == 2 * STEPS
    with pytest.raises(ValueError, match="Unsupported cache backend: mine"):
        diffusion_model_runner.get_cache_backend("mine", {})
    assert selector.get_cache_backend("none", {}) is None
    tea = selector.get_cache_backend("tea_cache", {"rel_l1_thresh": 0.3})
    assert type(tea).__name__ == "TeaCacheBackend"


def test_register_again_changes_nothing_more():
    before = [diffusion_model_runner.get_cache_backend, selector.get_cache_backend]
    key = RequestScheduler._build_sampling_params_key
    plugin.register()
    assert [diffusion_model_runner.get_cache_backend, selector.get_cache_backend] == before
    assert RequestScheduler._build_sampling_params_key is key
    assert not any(isinstance(finder, plugin.Watch) for finder in sys.meta_path)


def in_python(code: str) -> str:
    """What a new process prints."""
    line = f"import sys; sys.path[:0] = [{str(SUPPORT)!r}]\n{code}"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plugin_imports_nothing_of_the_engine_and_finds_what_is_there():
    code = """
from geoshrink.hosts import vllm_omni as plugin
plugin.register()
assert not [name for name in sys.modules if name.split(".")[0] in ("vllm", "vllm_omni")]
[watch] = [finder for finder in sys.meta_path if isinstance(finder, plugin.Watch)]
sys.meta_path.remove(watch)
import vllm_stubs; vllm_stubs.install()
from vllm_omni.diffusion.worker import diffusion_model_runner
plain = diffusion_model_runner.get_cache_backend
plugin.register(); plugin.register()
found = diffusion_model_runner.get_cache_backend
assert found is not plain and found.__wrapped__ is plain
print(type(found("geoshrink", {"speedup": 3})).__name__)
"""
    assert "GeoShrinkBackend" in in_python(code)


def test_an_engine_that_is_not_as_we_know_it_goes_on(caplog):
    plugin.warn_once.cache_clear()
    name = "vllm_omni.diffusion.cache.selector"
    assert plugin.patched(name, lambda module: module.no_such_name)
    assert "is not as geoshrink knows it" in caplog.text and name in caplog.text


# -- the server's options


@pytest.mark.parametrize(
    "given, words",
    [
        ({"speedup": 0.5}, "'speedup': 0.5"),
        ({"speedpu": 3}, "'speedpu': 3"),
        ({"speedup": 3, "sea_threshold": 0.5}, "sea_threshold"),
        ({"plan": "nowhere.json"}, "nowhere.json"),
    ],
)
def test_a_wrong_cache_config_is_an_error_at_the_start(given, words):
    with pytest.raises(ValueError, match=words) as raised:
        toys.runner(toys.Guided(), **given)
    assert "--cache-config" in str(raised.value)


def test_a_server_without_options_accelerates_who_asks():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline)
    assert one(runner)[1] == {}
    assert len(pipeline.transformer.calls) == 2 * STEPS
    assert one(runner, asked={"budget": 6})[1]["calls"] == 6


def test_a_plan_of_the_server_gives_way_to_a_request():
    scheduler = toys.Guided().scheduler
    scheduler.set_timesteps(STEPS)
    plan = geoshrink.Plan.of(scheduler.sigmas.tolist(), budget=5)
    runner = toys.runner(toys.Guided(), plan=json.loads(plan.to_json()))
    assert one(runner)[1]["calls"] == 5
    said = one(runner, steps=STEPS + 1)[1]
    assert said["exact"] == 1 and str(STEPS) in said["reasons"][0]
    assert one(runner, asked="budget=7")[1]["calls"] == 7


# -- pipelines


@pytest.mark.parametrize("name", KINDS)
def test_calls_are_saved_and_the_next_request_is_alike(name):
    kind, branches = KINDS[name]
    pipeline = kind()
    runner = toys.runner(pipeline, budget=8)
    first, said = one(runner)
    assert said["calls"] == 8 and said["steps"] == STEPS and said["exact"] == 0
    assert len(pipeline.transformer.calls) == 8 * branches == said["forwards"]
    again, _ = one(runner)
    assert torch.equal(first, again)
    target = full(kind)
    assert 0 < (first - target).norm() < 0.2 * target.norm()


@pytest.mark.parametrize("name", KINDS)
def test_exact_is_bit_for_bit_as_without_us(name):
    kind, branches = KINDS[name]
    pipeline = kind()
    runner = toys.runner(pipeline, budget=8)
    target = full(kind)
    for asked in ({"exact": True}, "exact", {"budget": STEPS}):
        output, said = one(runner, asked=asked)
        assert torch.equal(output, target) and said["exact"] == 1
    assert len(pipeline.transformer.calls) == 3 * STEPS * branches
    runner.cache_backend.remove()
    assert untouched(pipeline)
    assert torch.equal(one(runner)[0], target)


@pytest.mark.parametrize("kind", [toys.Guided, toys.Solver])
@pytest.mark.parametrize("options", [{"budget": 8}, {"target_db": 30}, {"speedup": 3}])
def test_as_in_a_loop_of_ones_own(kind, options):
    """The same outputs, corrections and anchors as accelerate() over a plain object has."""
    pipeline, pipe = kind(), kind()
    (output,) = made(toys.runner(pipeline, **options), toys.request())

    class Own:
        scheduler, transformer = pipe.scheduler, pipe.transformer

        def __call__(self) -> Tensor:
            request = toys.request()
            request.sampling_params.generator = torch.Generator().manual_seed(0)
            with torch.inference_mode():
                return pipe.forward(DiffusionRequestBatch([request]))[0].output

    own = Own()
    vars(own).update(scheduler=pipe.scheduler, transformer=pipe.transformer)
    handle = geoshrink.accelerate(
        own, scheduler=pipe.scheduler, denoisers=[pipe.transformer], **options
    )
    assert torch.equal(output.output, own())
    said, report = plugin.told_in(output.stage_durations), handle.report
    assert report is not None and said["calls"] == report.evaluations < STEPS
    assert said["estimated_db"] == pytest.approx(report.estimated_db, abs=0.06)
    assert pipeline.transformer.calls == pipe.transformer.calls


@pytest.mark.parametrize(
    "kind, calls, steps",
    [(real.SD3, 2, STEPS), (real.Qwen, 2, STEPS), (real.ZImage, 1, STEPS - 1)],
)  # Z-Image's last step has no length
def test_loops_of_real_pipelines(kind, calls, steps):
    pipeline = kind()
    runner = toys.runner(pipeline, budget=8)
    wish = {"scale": 3.0, "size": (4, 6)}
    first, said = one_latent(runner, **wish)
    assert len(pipeline.transformer.calls) == 8 * calls and said["calls"] == 8
    assert said["steps"] == steps and said["reasons"] == []
    target, _ = one_latent(toys.runner(kind(), None), **wish)
    assert 0 < (first - target).norm() < 0.2 * target.norm()
    assert torch.equal(one_latent(runner, **wish)[0], first)
    assert torch.equal(one_latent(runner, asked="exact", **wish)[0], target)


def test_the_loop_of_wan_with_two_experts_and_a_scheduler_for_each_request(monkeypatch):
    monkeypatch.setattr(parallel_state, "_PP", SimpleNamespace(world_size=1))
    pipeline = real.Wan()
    runner = toys.runner(pipeline, budget=8)
    first, said = one(runner)
    early, late = pipeline.transformer.calls, pipeline.transformer_2.calls
    times = [float(t) for t in pipeline.scheduler.timesteps]
    assert min(early) >= 600 > max(late) and late[0] == max(t for t in times if t < 600)
    assert len(early) + len(late) == said["forwards"] == 2 * said["calls"] < 2 * STEPS
    assert any("another expert, guidance" in reason for reason in said["reasons"])
    assert torch.equal(one(runner)[0], first)
    target, _ = one(toys.runner(real.Wan(), None))
    assert 0 < (first - target).norm() < 0.2 * target.norm()
    assert torch.equal(one(runner, asked="exact")[0], target)


def one_latent(runner: Any, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
    wish = toys.request(**kwargs)
    wish.sampling_params.output_type = "latent"
    (output,) = made(runner, wish)
    return output.output, plugin.told_in(output.stage_durations)


def test_a_new_expert_is_queried_at_once():
    pipeline = toys.Experts()
    runner = toys.runner(pipeline, budget=8)
    output, said = one(runner)
    first, second = pipeline.transformer.calls, pipeline.transformer_2.calls
    pipeline.scheduler.set_timesteps(STEPS)
    late = [float(t) for t in pipeline.scheduler.timesteps if t < pipeline.boundary]
    assert min(first) >= pipeline.boundary > max(second)
    assert second[0] == late[0]  # not what the first expert would have said
    assert any("another expert" in reason for reason in said["reasons"])
    target = full(toys.Experts)
    assert (output - target).norm() < 0.2 * target.norm()


@pytest.mark.parametrize("scales", [(3.0, 2.0), (3.0, 1.0)])
def test_another_guidance_is_a_regime(scales):
    pipeline = toys.Experts(scales=scales)
    pipeline.same = True
    runner = toys.runner(pipeline, budget=8)
    _, said = one(runner)
    late = [t for t in pipeline.transformer.calls if t < pipeline.boundary]
    pipeline.scheduler.set_timesteps(STEPS)
    assert late[0] == max(float(t) for t in pipeline.scheduler.timesteps if t < pipeline.boundary)
    assert any("guidance" in reason for reason in said["reasons"])


def test_one_guidance_throughout_is_no_regime():
    pipeline = toys.Experts()
    pipeline.same = True
    said = one(toys.runner(pipeline, budget=8))[1]
    assert said["reasons"] == [] and said["calls"] == 8


def test_a_pipeline_that_no_scheduler_of_ours_steps_is_exact_and_says_so():
    class Own(toys.Guided):
        def diffuse(self, scheduler: Any, latents: Tensor, words: Tensor, scale: float) -> Any:
            sigmas = scheduler.sigmas.tolist()
            for t, now, then in zip(scheduler.timesteps, sigmas, sigmas[1:]):
                given = {"hidden_states": latents, "timestep": t.expand(1)}
                step = self.predict_noise(**given, encoder_hidden_states=words)
                latents = latents + (then - now) * step
            return latents

    pipeline = Own()
    output, said = one(toys.runner(pipeline, budget=8))
    assert len(pipeline.transformer.calls) == STEPS and said["exact"] == 1
    assert "was not stepped" in said["reasons"][0]
    assert torch.equal(output, full(Own))


def test_a_pipeline_without_parts_that_we_know_is_exact_and_says_so():
    class Other(torch.nn.Module):
        def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
            return DiffusionOutput(output=torch.ones(1))

    output, said = one(toys.runner(Other(), budget=8))
    assert torch.equal(output, torch.ones(1))
    assert "has no network" in said["reasons"][0] and said["exact"] == 1


def test_learning_from_the_first_request():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline, budget=8, learn=True)
    first, said = one(runner)
    assert said["exact"] == 1 and torch.equal(first, full(toys.Guided))
    assert one(runner)[1]["calls"] == 8
    assert one(runner, scale=2.0)[1]["exact"] == 1  # another setting


# -- requests


@pytest.mark.parametrize(
    "asked, calls",
    [
        ({"budget": 6}, 6),
        ("budget=6", 6),
        ('{"speedup": 4}', STEPS // 4),
        ({"target_db": 60, "most": 9}, 9),
    ],
)
def test_a_request_has_options_of_its_own(asked, calls):
    runner = toys.runner(toys.Guided(), budget=12)
    assert one(runner, asked=asked)[1]["calls"] == calls
    assert one(runner)[1]["calls"] == 12


@pytest.mark.parametrize(
    "asked", [{"speedup": "x"}, {"plan": "/etc/passwd"}, {"budget": -1}, "quick", 3, {"budget": {}}]
)
def test_a_wrong_request_is_exact_and_told_why(asked):
    output, said = one(toys.runner(toys.Guided(), budget=8), asked=asked)
    assert torch.equal(output, full(toys.Guided)) and said["exact"] == 1
    assert said["reasons"][0].startswith("geoshrink: ")


def test_a_request_for_no_loss_is_exact_unless_it_asks():
    runner = toys.runner(toys.Guided(), budget=8)
    for asked, calls in ((None, None), ({"budget": 6}, 6)):
        wish = toys.request(asked=asked)
        wish.sampling_params.quality = "lossless"
        (output,) = made(runner, wish)
        assert plugin.told_in(output.stage_durations).get("calls") == calls


def test_few_steps_are_exact_and_say_so():
    said = one(toys.runner(toys.Guided(), speedup=3), steps=4)[1]
    assert said["calls"] == 4 and "leave nothing to skip" in said["reasons"][0]


def test_the_engines_own_requests_are_exact():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline, budget=6)
    for name in ("dummy_req_id", "dummy_req_id/kv-profile-0"):
        assert one(runner, name)[1] == {}
    runner.profile_run([toys.request("dummy_req_id/kv-profile-1")])
    assert len(pipeline.transformer.calls) == 3 * 2 * STEPS


def test_a_batch_of_like_requests_is_accelerated_together():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline, budget=8)
    requests = [toys.request(str(i), prompt=f"no. {i}", seed=i) for i in range(3)]
    outputs = made(runner, *requests)
    assert len(pipeline.transformer.calls) == 16
    for i, output in enumerate(outputs):
        alone, _ = one(runner, prompt=f"no. {i}", seed=i)
        assert torch.allclose(output.output, alone, atol=1e-4)
        assert plugin.told_in(output.stage_durations)["calls"] == 8
    assert outputs[0].stage_durations is not outputs[1].stage_durations


def test_a_mixed_batch_is_exact_and_told_why():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline, budget=8)
    outputs = made(runner, toys.request("a", {"budget": 6}), toys.request("b", {"budget": 7}))
    assert len(pipeline.transformer.calls) == 2 * STEPS
    for output in outputs:
        said = plugin.told_in(output.stage_durations)
        assert said["exact"] == 1 and "different options" in said["reasons"][0]
    same = made(runner, toys.request("a", {"budget": 6}), toys.request("b", "budget=6"))
    assert plugin.told_in(same[0].stage_durations)["calls"] == 6


def test_the_batch_key_tells_options_apart():
    scheduler = RequestScheduler()
    scheduler.od_config = toys.config()

    def key(asked: Any = None, **kwargs: Any) -> Any:
        return scheduler._build_sampling_params_key(toys.request(asked=asked, **kwargs))

    assert key() == key({}) == key("") and key().condition_key is None
    assert key({"budget": 6}) == key("budget=6") == key('{"budget": 6}')
    assert len({json.dumps(repr(key(a))) for a in (None, {"budget": 6}, {"budget": 7}, "?")}) == 4
    assert key({"budget": 6}) != key({"budget": 6}, steps=9)
    scheduler.od_config = toys.config("cache_dit")  # somebody else's affair
    assert key({"budget": 6}) == key()


# -- many at a time, and what goes wrong


def test_interleaved_requests_are_as_alone():
    pipelines = [
        toys.Guided(1, copies=True),
        toys.Guided(2, copies=True),
        toys.Plain(3, copies=True),
        toys.Branches(4, copies=True),
    ]
    backends = [toys.runner(pipeline, budget=9).cache_backend for pipeline in pipelines]
    wishes = [None, {"budget": 5}, {"speedup": 2}, {"exact": True}, {"target_db": 35}, "oops"]
    draw = random.Random(0)
    jobs = [
        (
            draw.randrange(4),
            draw.choice(wishes),
            draw.choice([(4, 4), (6, 5)]),
            draw.choice([9, 14]),
        )
        for _ in range(64)
    ]

    def run(job: tuple) -> tuple[Tensor, dict]:
        which, asked, size, steps = job
        wish = toys.request("a", asked, size=size, steps=steps, seed=which)
        wish.sampling_params.generator = torch.Generator().manual_seed(which)
        with torch.inference_mode():
            (output,) = pipelines[which].forward(DiffusionRequestBatch([wish]))
        return output.output, plugin.told_in(output.stage_durations)

    alone = [run(job) for job in jobs]
    gate = threading.Barrier(16)

    def together(job: tuple) -> tuple[Tensor, dict]:
        gate.wait(60)
        return run(job)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(together, jobs))
    finally:
        sys.setswitchinterval(before)
    assert len({str(said) for _, said in alone}) > 8
    for (a, said), (b, told) in zip(alone, found):
        assert torch.equal(a, b) and said == told
    for backend, pipeline in zip(backends, pipelines):
        backend.remove()
        assert untouched(pipeline)


@pytest.mark.parametrize("kind", [toys.Guided, toys.Plain, toys.Tuples])
@pytest.mark.parametrize("at", [1, 2, 7])
def test_a_fault_leaves_everything_as_it_was(kind, at):
    pipeline = kind()
    runner = toys.runner(pipeline, budget=8)
    target, _ = one(runner)
    pipeline.transformer.calls.clear()
    pipeline.transformer.fault = at, KeyError("a fault")
    with pytest.raises(KeyError, match="a fault"):
        one(runner)
    pipeline.transformer.fault = None
    hooks = {"_call_impl", *pipelines.METHODS} & {*vars(pipeline), *vars(pipeline.transformer)}
    seam = runner.cache_backend.service.seam
    assert not hooks and seam.live == [] and seam.here.asked is None
    assert torch.equal(one(runner)[0], target)
    assert torch.equal(one(runner, asked="exact")[0], full(kind))


def test_a_cancelled_request_leaves_nothing():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline, budget=8)
    target, _ = one(runner)
    pipeline.transformer.calls.clear()
    pipeline.transformer.fault = 5, DiffusionRequestAbortedError("cancelled")
    (output,) = made(runner, toys.request())
    assert output.aborted and output.output is None
    pipeline.transformer.fault = None
    assert runner.cache_backend.service.seam.live == []
    assert torch.equal(one(runner)[0], target)


def test_enable_twice_attaches_once_and_remove_takes_all_away():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline, budget=8)
    service = runner.cache_backend.service
    runner.cache_backend.enable(pipeline)
    assert runner.cache_backend.service is service and runner.cache_backend.is_enabled()
    runner.cache_backend.refresh(pipeline, STEPS)
    assert one(runner)[1]["calls"] == 8
    runner.cache_backend.remove()
    assert untouched(pipeline) and not runner.cache_backend.is_enabled()


def test_another_cache_in_the_network_is_refused():
    pipeline = toys.Guided()
    runner = toys.runner(pipeline, budget=8)
    HookRegistry.get_or_create(pipeline.transformer).register_hook("teacache", ModelHook())
    said = one(runner)[1]
    assert said["exact"] == 1 and "teacache" in said["reasons"][0]
    pipeline.transformer._hook_registry.remove_hook("teacache")
    assert one(runner)[1]["calls"] == 8


def test_pipeline_parallelism_is_exact(monkeypatch):
    runner = toys.runner(toys.Guided(), budget=8)
    monkeypatch.setattr(parallel_state, "_PP", SimpleNamespace(world_size=2))
    said = one(runner)[1]
    assert said["exact"] == 1 and "pipeline parallelism" in said["reasons"][0]


def test_ranks_do_not_learn_from_each_others_files(monkeypatch, tmp_path):
    backend = selector.get_cache_backend("geoshrink", {"budget": 8, "learn": str(tmp_path)})
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="with 2 ranks"):
        backend.enable(toys.Guided())


def test_the_profiler_of_the_engine_stays_outermost_but_for_us():
    """It wraps forward on the pipeline itself, before the backend comes."""
    pipeline, seen = toys.Guided(), []
    plain = pipeline.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        return plain(*args, **kwargs)

    pipeline.forward = forward
    runner = toys.runner(pipeline, budget=8)
    assert one(runner)[1]["calls"] == 8 and seen == [1]
    runner.cache_backend.remove()
    assert pipeline.forward is forward


# -- what comes back


def test_the_report_comes_to_the_client():
    runner = toys.runner(toys.Guided(), budget=8)
    wish = toys.request("a", {"budget": 6})
    (output,) = made(runner, wish)
    output = pickle.loads(pickle.dumps(output))  # from the worker to the engine
    formatted = format_diffusion_outputs(
        request=wish,
        od_config=runner.od_config,
        diffusion_output=output,
        output_data=output.output,
        postprocess_output=normalize_diffusion_postprocess_output(output.output),
    )
    wire = OmniMsgpackEncoder().encode({"output": formatted[0]})  # from the engine to the server
    back = OmniMsgpackDecoder().decode(wire)["output"]
    found = back if isinstance(back, dict) else vars(back)
    assert isinstance(formatted[0], OmniRequestOutput)
    said = plugin.told_in(json.loads(json.dumps(found["stage_durations"])))
    assert said["calls"] == 6 and said["steps"] == STEPS and said["reasons"] == []
    assert all(type(value) is float for value in output.stage_durations.values())


def test_what_the_engine_measures_stays():
    class Measured(toys.Guided):
        def forward(self, req: DiffusionRequestBatch) -> list[DiffusionOutput]:
            outputs = super().forward(req)
            outputs[0].stage_durations = {"Measured.diffuse": 0.5}
            return outputs

    (output,) = made(toys.runner(Measured(), budget=8), toys.request())
    assert output.stage_durations["Measured.diffuse"] == 0.5
    assert output.stage_durations["geoshrink_calls"] == 8


def test_a_request_with_two_loops_is_told_of_both():
    class Twice(toys.Guided):
        def diffuse(self, scheduler: Any, latents: Tensor, words: Tensor, scale: float) -> Any:
            made = super().diffuse(scheduler, latents, words, scale)
            scheduler.set_timesteps(10)
            return super().diffuse(scheduler, made, words, scale)

    said = one(toys.runner(Twice(), speedup=2))[1]
    assert said["steps"] == STEPS + 10 and said["calls"] == STEPS // 2 + 5


# -- the diffusers adapter


def adapter(**options: Any) -> tuple[Any, Any, dict[str, Any]]:
    """(the engine's adapter over a tiny pipeline, that pipeline, arguments of its calls)."""
    from tiny_pipelines import tiny

    pipe, kwargs = tiny("StableDiffusion3Pipeline")
    config = toys.config("geoshrink", **options)
    config.enforce_eager = False
    config.diffusers_call_kwargs = kwargs
    made = pipeline_diffusers_adapter.DiffusersAdapterPipeline(od_config=config)
    made._pipeline = pipe
    own = {"generator", "num_inference_steps", "output_type"}
    made._accept_call_kwargs = {*kwargs, *own}
    return made, pipe, kwargs


def test_the_adapter_lets_us_through_and_nobody_else():
    made, _, _ = adapter(budget=6)
    assert made.od_config.cache_backend == "geoshrink"
    config = toys.config("tea_cache")
    config.enforce_eager = False
    with pytest.raises(NotImplementedError, match="tea_cache"):
        pipeline_diffusers_adapter.DiffusersAdapterPipeline(od_config=config)
    config.cache_backend, config.parallel_config.cfg_parallel_size = "geoshrink", 2
    with pytest.raises(NotImplementedError, match="CFG parallel"):
        pipeline_diffusers_adapter.DiffusersAdapterPipeline(od_config=config)
    assert config.cache_backend == "geoshrink"


def test_a_diffusers_pipeline_in_the_adapter():
    from tiny_pipelines import counted

    def run(runner: Any, asked: Any = None) -> tuple[Any, dict[str, Any]]:
        (output,) = made(runner, toys.request("a", asked, size=(16, 16)))
        return output.output, plugin.told_in(output.stage_durations)

    def tensor(output: Any) -> Tensor:
        from tiny_pipelines import image

        return image.tensor(output)

    plain, pipe, _ = adapter()
    plain.od_config.cache_backend = None
    runner = toys.runner(plain, None)
    target, said = run(runner)
    assert said == {}
    served, pipe, _ = adapter(budget=8)
    calls = counted(pipe.transformer)
    runner = toys.runner(served, budget=8)
    first, said = run(runner)
    assert said["calls"] == 8 == len(calls) and said["steps"] == STEPS
    assert torch.equal(tensor(first), tensor(run(runner)[0]))
    assert run(runner, {"budget": 6})[1]["calls"] == 6
    exact, said = run(runner, "exact")
    assert said["exact"] == 1 and torch.equal(tensor(exact), tensor(target))
    runner.cache_backend.remove()
    assert torch.equal(tensor(run(runner)[0]), tensor(target))
    assert type(pipe).__name__ == "StableDiffusion3Pipeline" and "step" not in vars(pipe.scheduler)


def test_the_pipeline_in_the_adapter_is_left_alone_but_for_requests():
    from tiny_pipelines import call, counted

    served, pipe, kwargs = adapter()
    runner = toys.runner(served)
    calls = counted(pipe.transformer)
    call(pipe, kwargs, STEPS)  # by somebody else
    assert len(calls) == STEPS
    worker = ThreadPoolExecutor(1)
    forward = type(served).forward

    def elsewhere(self: Any, *args: Any) -> Any:
        return worker.submit(forward, self, *args).result()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(served), "forward", elsewhere)
        calls.clear()
        made(runner, toys.request("a", "exact", size=(16, 16)))
    assert len(calls) == STEPS


HOSTILE = ("budget=" + "[" * 100_000, {"speedup": 10**400}, {"budget": "x" * 100_000}, {"a": [1]})


@pytest.mark.parametrize("asked", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_request_is_exact_and_told_in_short(asked: Any):
    output, said = one(toys.runner(toys.Guided()), asked=asked)
    assert torch.equal(output, full(toys.Guided)) and said["exact"] == 1
    assert len(json.dumps(said)) < 1000
    scheduler = RequestScheduler()
    for backend in ("geoshrink", None):
        scheduler.od_config = toys.config(backend)
        scheduler._build_sampling_params_key(toys.request(asked=asked))


def test_a_mistake_of_ours_does_not_reach_the_request(monkeypatch: pytest.MonkeyPatch):
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(plugin.Policy, "options", broken)
    output, said = one(toys.runner(toys.Guided(), budget=8))
    assert torch.equal(output, full(toys.Guided)) and "ZeroDivisionError" in said["reasons"][0]
    monkeypatch.undo()
    monkeypatch.setattr(plugin, "summary", broken)
    _, said = one(toys.runner(toys.Guided(), budget=8))
    assert said == {}


# -- ranks


def test_two_ranks_of_guidance_are_alike_and_as_one(monkeypatch):
    """The engine's mixin with its own group coordinator over gloo."""
    monkeypatch.setattr(pace, "readable", lambda errors: False)  # several keep their anchors
    port = vllm_stubs.get_open_port()
    line = [sys.executable, str(SUPPORT / "vllm_ranks.py"), str(port)]
    ranks = [subprocess.Popen([*line, str(rank)], stdout=subprocess.PIPE) for rank in (0, 1)]
    found = [json.loads(rank.communicate(timeout=150)[0].splitlines()[-1]) for rank in ranks]
    assert set(found[0]) == set(found[1]) == {"Guided", "Branches", "Held"}
    for rank in found:  # a quality is for one process
        said = rank["Held"]["told"]
        assert said["exact"] == 1 and "decide alike" in said["reasons"][0]
    for name, branches in {"Guided": (1, 1), "Branches": (2, 1)}.items():
        kind, options = found[0][name]["kind"], found[0][name]["options"]
        output, said = one(toys.runner(getattr(toys, kind)(), **options))
        calls = said["calls"]
        assert calls < STEPS
        for rank in (0, 1):
            got = found[rank][name]
            assert got["output"] == output.flatten().tolist(), (name, rank)
            assert got["calls"] == branches[rank] * calls and got["told"]["calls"] == calls
            assert got["gathers"] == max(branches) * calls


# -- the finder


def test_modules_are_patched_however_they_are_loaded(tmp_path, monkeypatch):
    """From a zip, whose modules share a loader; and not a private copy that somebody runs first."""
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as file:
        file.writestr("zipped_one.py", "value = 1")
        file.writestr("zipped_two.py", "value = 2")
    monkeypatch.syspath_prepend(str(tmp_path / "parts.zip"))
    seen: list[str] = []
    watch = plugin.Watch({"zipped_two": lambda module: seen.append(module.__name__)})
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    spec: Any = importlib.util.find_spec("zipped_two")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert seen == []
    assert import_module("zipped_one").value == 1 and seen == []
    assert import_module("zipped_two").value == 2 and seen == ["zipped_two"]
    assert watch not in sys.meta_path
