"""The plugin in SGLang-Diffusion's own loop, guidance, schedulers and HTTP server, on a CPU."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import pickle
import random
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import fastapi
import pytest
import torch
from fastapi import testclient
from torch import Tensor

try:
    import sglang_stage as sgl
except ImportError as error:
    pytest.skip(f"SGLang is not installed here: {error}", allow_module_level=True)

from sglang.multimodal_gen.configs.sample.sampling_params import SamplingParams
from sglang.multimodal_gen.runtime.entrypoints.openai import image_api
from sglang.multimodal_gen.runtime.entrypoints.openai import utils as openai_utils
from sglang.multimodal_gen.runtime.managers.gpu_worker import GPUWorker
from sglang.multimodal_gen.runtime.managers.scheduler import Scheduler
from sglang.multimodal_gen.runtime.pipelines_core.schedule_batch import OutputBatch
from sglang.multimodal_gen.runtime.pipelines_core.stages.denoising import DenoisingStage
from sglang.multimodal_gen.runtime.platforms import plugins

from geoshrink import Run
from geoshrink.hosts import sglang as host
from geoshrink.hosts.hooks import hooks_in
from geoshrink.hosts.serving import Policy
from geoshrink.hosts.session import Session

pytestmark = pytest.mark.filterwarnings("ignore")
PLAIN = DenoisingStage._run_denoising_loop


@pytest.fixture(scope="module", autouse=True)
def engine():
    """SGLang loads its plugins as a server does: by their entry points."""
    plugins.apply_plugin_hooks()
    yield


def plain(*args: Any, net: Any = None, second: Any = None, **kwargs: Any) -> Tensor:
    """A request without the plugin."""
    stage = sgl.Stage(net or sgl.Net(), second)
    ctx, req = sgl.request(*args, **kwargs)
    with torch.no_grad():
        PLAIN(stage, ctx, req, stage.args)
    return ctx.latents


def served(*args: Any, stage: Any = None, **kwargs: Any) -> tuple[Tensor, Any, Any]:
    """(latents, what the request is told, the stage)."""
    stage = stage or sgl.Stage(sgl.Net())
    ctx, req = sgl.request(*args, **kwargs)
    made = sgl.run(stage, ctx, req)
    assert not hooks_in(stage) and not hooks_in(ctx.scheduler)
    return made, getattr(req.metrics, "geoshrink", None), stage


def test_the_plugin_is_found_and_hooked():
    assert plugins.HookRegistry._patched >= {
        host.LOOP, host.WHOLE, host.METRICS, host.APP, host.GENERATE, host.FIELDS
    }  # fmt: skip


def test_nothing_happens_until_somebody_asks():
    made, told, stage = served()
    assert torch.equal(made, plain()) and told is None and stage.transformer.calls == 48


@pytest.mark.parametrize("scheduler", sgl.SCHEDULERS)
def test_a_request_that_asks_makes_a_third_of_the_calls(scheduler: str):
    made, told, stage = served({"speedup": 3}, scheduler=scheduler)
    assert told["calls"] == 8 and told["steps"] == 24 and not told["exact"]
    assert stage.transformer.calls == told["forwards"] == 16  # two branches of guidance
    full = plain(scheduler=scheduler)
    error = 10 * torch.log10((made - full).square().sum() / full.square().sum())
    assert -200 < error < -20 and told["estimated_db"] > 20
    again, _, _ = served({"speedup": 3}, scheduler=scheduler, stage=stage)
    assert torch.equal(made, again)


@pytest.mark.parametrize("asked", [{"exact": True}, "exact", {"budget": 24}, {"speedup": 1}])
@pytest.mark.parametrize("scheduler", sgl.SCHEDULERS)
def test_exact_is_bit_for_bit_the_plain_request(asked: Any, scheduler: str):
    made, _, stage = served(asked, scheduler=scheduler)
    assert torch.equal(made, plain(scheduler=scheduler)) and stage.transformer.calls == 48


@pytest.mark.parametrize("scheduler", sgl.SCHEDULERS)
def test_cells_are_corrected(scheduler: str, monkeypatch: pytest.MonkeyPatch):
    reports = []
    close = Session.close
    monkeypatch.setattr(Session, "close", lambda self: reports.append(close(self)) or reports[-1])
    made, _, _ = served({"budget": 8}, scheduler=scheduler)
    assert any(stage.correction for stage in reports[0].stages)
    monkeypatch.setattr(Run, "corrects", False)
    other, _, _ = served({"budget": 8}, scheduler=scheduler)
    full = plain(scheduler=scheduler)
    assert (made - full).norm() < (other - full).norm()


def test_a_quality_can_be_asked_for():
    calls = [served({"target_db": db})[1]["calls"] for db in (10, 60)]
    assert calls[0] < calls[1]
    assert served({"target_db": 60, "most": 6})[1]["calls"] <= 6


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"speedup": "fast"}, "'fast'"),
        ({"plan": "/etc/passwd"}, "a request may say exact, budget, speedup"),
        ({"budget": 0}, "budget"),
        ("quickly", "'quickly'"),
        (17, "17"),
        ({"speedup": 2, "budget": 4}, "not both"),
    ],
)
def test_a_wrong_request_is_exact_and_told_why(asked: Any, said: str):
    made, told, _ = served(asked)
    assert torch.equal(made, plain()) and told["exact"] and said in told["reasons"][0]


def test_a_warm_up_is_exact():
    made, told, stage = served({"speedup": 3}, warmup=True)
    assert torch.equal(made, plain()) and told is None and stage.transformer.calls == 48


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda stage, ctx, req: setattr(req.sampling_params, "enable_teacache", True), "TeaCache"),
        (lambda stage, ctx, req: setattr(req.sampling_params, "enable_spectrum", True), "Spectrum"),
        (lambda stage, ctx, req: setattr(stage, "_cache_dit_enabled", True), "Cache-DiT"),
        (lambda stage, ctx, req: setattr(req.sampling_params, "cfg_gate_step", 0.5), "cfg_gate"),
        (lambda stage, ctx, req: setattr(req, "profile", True), "profiled"),
        (lambda stage, ctx, req: setattr(stage.args, "comfyui_mode", True), "ComfyUI"),
        (lambda stage, ctx, req: setattr(req.sampling_params, "slg_layers", (1,)), "skip-layer"),
    ],
)
def test_what_does_not_go_together_is_exact(spoil: Any, said: str):
    results = []
    for asked in (None, {"speedup": 3}):
        stage = sgl.Stage(sgl.Net())
        ctx, req = sgl.request(asked)
        spoil(stage, ctx, req)
        results.append(sgl.run(stage, ctx, req))
    told = req.metrics.geoshrink  # type: ignore[attr-defined]
    assert torch.equal(*results) and told["exact"] and said in told["reasons"][0]
    assert told["calls"] == told["steps"] == 24


def test_the_steps_of_a_rollout_are_exact():
    stage = sgl.Stage(sgl.Net())
    ctx, req = sgl.request({"speedup": 3})
    ctx.extra_step_kwargs = {
        "transition": lambda *, model_output, sample, dt, **_: sample + dt * model_output
    }
    made = sgl.run(stage, ctx, req)
    assert torch.allclose(made, plain(), atol=1e-6) and stage.transformer.calls == 48
    assert "rollout" in req.metrics.geoshrink["reasons"][0]  # type: ignore[attr-defined]


def test_another_guidance_is_another_regime_without_a_second_expert():
    """The scale falls from 3 to 2 in the middle, as SGLang hands it over."""

    class Falling(sgl.Stage):
        def _select_and_manage_model(self, *, t_int, **kwargs):
            model, _ = super()._select_and_manage_model(t_int=t_int, **kwargs)
            return model, 3.0 if t_int > 700 else 2.0

    _, told, _ = served({"budget": 8}, stage=Falling(sgl.Net()))
    assert any("regime changed" in why for why in told["reasons"])


@pytest.mark.parametrize(
    "asked",
    [
        "budget=" + "[" * 100_000,
        {"speedup": 10**400},
        {"budget": "x" * 100_000},
        {"budget": [1] * 1000},
        '{"a":' * 5000,
    ],
)
def test_a_hostile_request_is_exact_and_told_in_short(asked: Any):
    made, told, _ = served(asked)
    assert torch.equal(made, plain()) and told["exact"] and len(json.dumps(told)) < 1000


@pytest.mark.parametrize("given", ["abc", [1], 5])
def test_fields_of_another_kind_are_no_question(given: Any):
    stage = sgl.Stage(sgl.Net())
    ctx, req = sgl.request()
    req.extra["diffusers_kwargs"] = given
    assert torch.equal(sgl.run(stage, ctx, req), plain())


@pytest.mark.parametrize(
    "name", ["output", "observe", "check_state", "count_regimes", "close", "give_in"]
)
def test_a_mistake_in_a_session_does_not_reach_the_request(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("ours")

    if name == "give_in":  # a mistake in the middle
        plainly, seen = Session.count_regimes, []

        def later(self: Any, n: int, key: Any) -> Any:
            seen.append(n)
            return plainly(self, n, key) if n < 10 else broken()

        monkeypatch.setattr(Session, "count_regimes", later)
    else:
        monkeypatch.setattr(Session, name, broken)
    made, told, stage = served({"speedup": 3})
    full = plain()
    assert (made - full).norm() < 0.3 * full.norm()
    if name in ("output", "check_state", "count_regimes", "observe"):
        assert stage.transformer.calls == 48 and torch.equal(made, full)
        assert any("ZeroDivisionError" in why for why in told["reasons"])
    if name == "give_in":
        assert told["calls"] == stage.transformer.calls / 2 and not told["exact"]


def test_two_experts_are_two_regimes():
    first, second = sgl.Net(0), sgl.Net(1)
    how = dict(boundary=875.0, guidance_2=4.0)
    made, told, _ = served({"budget": 9}, stage=sgl.Stage(first, second), **how)
    assert first.calls and second.calls and first.calls + second.calls == 2 * told["calls"]
    assert told["calls"] <= 10
    full = plain(net=sgl.Net(0), second=sgl.Net(1), **how)
    assert (made - full).norm() < 0.2 * full.norm()


def test_a_state_that_is_blended_behind_every_step_is_not_corrected(monkeypatch):
    blend = lambda self, batch, args, mask, latents, z: latents * 1.0  # noqa: E731
    monkeypatch.setattr(sgl.Stage, "post_forward_for_ti2v_task", blend)
    made, _, stage = served({"budget": 8})
    full = plain()
    assert stage.transformer.calls == 16 and (made - full).norm() < 0.3 * full.norm()


def test_a_stage_with_outputs_of_its_own_is_told():
    class Own(sgl.Stage):
        def _run_denoising_step(self, ctx, step, batch, server_args):
            output = self.transformer(ctx.latents, step.t_device.repeat(1))
            ctx.latents = ctx.scheduler.step(output, step.t_device, ctx.latents)[0]

    _, told, _ = served({"speedup": 3}, stage=Own(sgl.Net()))
    assert told["exact"] and "Own makes its outputs in a way" in told["reasons"][0]


def test_a_guidance_of_its_own_is_predicted_like_any_other():
    class Own(sgl.Stage):
        def _predict_noise_with_cfg(self, *, latents, timestep, current_model, **_):
            return 2 * current_model(latents, timestep)

    stage = Own(sgl.Net())
    _, told, _ = served({"speedup": 3}, stage=stage)
    assert stage.transformer.calls == told["calls"] == 8


@pytest.mark.parametrize("when", [1, 2, 7, 15])
def test_a_failure_leaves_the_stage_as_it_was(when: int):
    stage = sgl.Stage(sgl.Net(fail_at=when))
    ctx, req = sgl.request({"budget": 8})
    before = {**vars(stage)}, {**vars(ctx.scheduler)}.keys()
    with pytest.raises(RuntimeError, match="the device is gone"):
        sgl.run(stage, ctx, req)
    assert vars(stage) == before[0] and vars(ctx.scheduler).keys() == before[1]
    made, _, _ = served({"budget": 8}, stage=stage, scheduler=ctx.scheduler)
    assert torch.equal(made, served({"budget": 8})[0])


def test_a_mistake_of_ours_does_not_reach_the_request(monkeypatch: pytest.MonkeyPatch):
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(host, "Session", broken)
    made, told, _ = served({"speedup": 3})
    assert torch.equal(made, plain()) and told["reasons"] == ["ZeroDivisionError: ours"]


def test_a_request_with_several_loops_adds_them_up():
    stage = sgl.Stage(sgl.Net())
    ctx, req = sgl.request({"budget": 8})
    sgl.run(stage, ctx, req)
    other, _ = sgl.request({"budget": 8})
    sgl.run(stage, other, req)
    told = req.metrics.geoshrink  # type: ignore[attr-defined]
    assert told["calls"] == 16 and told["steps"] == 48


@pytest.mark.parametrize("threads", [False, True])
def test_64_interleaved_requests_are_each_as_alone(threads: bool):
    """Of different budgets, shapes, solvers and models. They share stages, but no scheduler."""
    draw = random.Random(0)
    stages = [sgl.Stage(sgl.Net(i)) for i in range(3)]
    names = list(sgl.SCHEDULERS)
    asked = []
    for i in range(64):
        what = draw.choice([None, {"exact": True}, {"target_db": 25}, {"budget": 6 + i % 7}])
        shape = draw.choice([(1, 4, 6), (2, 3, 6), (1, 2, 5, 6)])
        steps, seed = draw.choice([12, 16, 20, 24]), i
        asked.append((i % 3, what, names[i % 2], dict(shape=shape, steps=steps, seed=seed)))

    def one(i: int) -> tuple[Tensor, Any]:
        which, what, scheduler, how = asked[i]
        ctx, req = sgl.request(what, scheduler=scheduler, **how)
        made = sgl.run(stages[which], ctx, req)
        return made, getattr(req.metrics, "geoshrink", None)

    alone = [one(i) for i in range(64)]
    made: dict[int, Any] = {}
    baton, order = threading.Lock(), random.Random(1)

    def turn() -> None:
        if order.random() < 0.5:
            baton.release()
            baton.acquire()

    def work(i: int) -> None:
        if threads:
            made[i] = one(i)
            return
        with baton:
            made[i] = one(i)

    for stage in stages:
        stage.pause = (lambda: None) if threads else turn
    workers = [threading.Thread(target=work, args=(i,)) for i in range(64)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for i in range(64):
        assert torch.equal(made[i][0], alone[i][0]), asked[i]
        assert made[i][1] == alone[i][1], asked[i]
    assert not any(hooks_in(stage) for stage in stages)


def test_2000_requests_leave_nothing_behind():
    """Requests of eight stages: enough to count objects, few enough to wait for."""
    stage = sgl.Stage(sgl.Net())

    def counted() -> tuple[int, int, int]:
        gc.collect()
        objects = gc.get_objects()
        tensors = sum(isinstance(o, Tensor) for o in objects)
        ours = sum(str(type(o).__module__).startswith("geoshrink") for o in objects)
        return tensors, ours, len(hooks_in(stage))

    counts = []
    for part in range(5):
        for i in range(100 if part == 0 else 475):
            served({"budget": 4 + i % 3}, steps=9, stage=stage)
        counts.append(counted())
    assert counts[1:] == [counts[1]] * 4, counts


# --- the report on its way


def test_the_report_travels_with_the_timings():
    stage = sgl.Stage(sgl.Net())
    ctx, req = sgl.request({"budget": 8})
    req.output = sgl.run(stage, ctx, req)
    output = pickle.loads(pickle.dumps(GPUWorker._to_output_batch(req)))
    assert output.metrics.to_dict()["geoshrink"]["calls"] == 8
    json.dumps(output.metrics.to_dict()["geoshrink"])


def test_requests_that_ask_differently_are_not_batched_together():
    def signature(asked: Any) -> Any:
        _, req = sgl.request(asked)
        bare = object.__new__(Scheduler)
        bare.server_args = sgl.Stage(sgl.Net()).args
        return bare._build_dynamic_batch_signature(req)

    assert signature({"budget": 8}) == signature({"budget": 8}) is not None
    several = [signature(asked) for asked in (None, {"budget": 8}, {"budget": 9})]
    assert all(several[i] != several[k] for i in range(3) for k in range(i))


# --- HTTP


class Client:
    """A scheduler process: runs the requests it is sent, and sends back what a worker would."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def forward(self, batches: list[Any]) -> OutputBatch:
        batch = pickle.loads(pickle.dumps(batches[0]))
        self.seen.append(host.asked_of(batch))
        stage = sgl.Stage(sgl.Net())
        ctx, req = sgl.request(host.asked_of(batch))
        sgl.run(stage, ctx, req)
        done = OutputBatch(
            output_file_paths=["a.png"], output_image_bytes=[b"png"], metrics=req.metrics
        )
        return pickle.loads(pickle.dumps(done))


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch):
    """SGLang's own endpoint for pictures, with a worker behind it."""
    hooks = plugins.HookRegistry._hooks
    plugin = next(hook.__self__ for _, hook, _ in hooks[host.APP])
    args = copy.copy(sgl.Stage(sgl.Net()).args)
    args.batching_max_size, args.output_path, args.enable_trace = 1, None, False
    args.attention_backend_config = None
    client = Client()

    def params(request_id: str, prompt: str, **_: Any) -> SamplingParams:
        return SamplingParams(prompt=prompt, request_id=request_id, output_path=None)

    for module in (openai_utils, image_api):
        monkeypatch.setattr(module, "get_global_server_args", lambda: args)
    monkeypatch.setattr(image_api, "resolve_sampling_params_cls", lambda _: SamplingParams)
    monkeypatch.setattr(image_api, "_build_request_sampling_params", params)
    monkeypatch.setattr(image_api, "async_scheduler_client", client)
    app = fastapi.FastAPI()
    app.include_router(image_api.router)

    @app.middleware("http")
    async def between(request: fastapi.Request, call_next: Any) -> Any:
        return await call_next(request)

    @app.get("/v1/videos/{job}")
    async def video(job: str) -> dict[str, str]:
        return {"id": job}

    return client, testclient.TestClient(plugin.on_app(lambda: app))


def test_options_by_header_and_the_report_in_the_response(http: Any):
    _, client = http
    body = {"prompt": "a lighthouse", "response_format": "b64_json"}
    answer = client.post("/v1/images/generations", json=body, headers={"x-geoshrink": "budget=8"})
    told = json.loads(answer.headers["x-geoshrink"])
    assert answer.status_code == 200 and told["calls"] == 8 and told["steps"] == 24
    later = client.get(f"/v1/videos/{answer.json()['id']}")
    assert json.loads(later.headers["x-geoshrink"]) == told


@pytest.mark.parametrize(
    "body", [{"geoshrink": {"budget": 8}}, {"diffusers_kwargs": {"geoshrink": {"budget": 8}}}]
)
def test_options_by_a_field_of_the_body(http: Any, body: dict[str, Any]):
    scheduler, client = http
    answer = client.post(
        "/v1/images/generations", json={"prompt": "a cat", "response_format": "b64_json", **body}
    )
    assert scheduler.seen == [{"budget": 8}]
    assert json.loads(answer.headers["x-geoshrink"])["calls"] == 8


def test_without_options_the_response_is_as_it_was(http: Any):
    scheduler, client = http
    answer = client.post(
        "/v1/images/generations", json={"prompt": "a cat", "response_format": "b64_json"}
    )
    assert "x-geoshrink" not in answer.headers and scheduler.seen == [None]


def test_requests_at_the_same_time_get_their_own_reports(http: Any):
    httpx: Any = pytest.importorskip("httpx")
    _, client = http

    async def all_of_them() -> list[Any]:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as web:
            calls = [
                web.post(
                    "/v1/images/generations",
                    json={"prompt": "a cat", "response_format": "b64_json"},
                    headers={"x-geoshrink": f"budget={5 + i}"},
                )
                for i in range(12)
            ]
            return await asyncio.gather(*calls)

    answers = asyncio.run(all_of_them())
    assert [json.loads(a.headers["x-geoshrink"])["calls"] for a in answers] == [*range(5, 17)]


def test_reports_of_jobs_are_not_kept_for_ever(http: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host, "JOBS", 3)
    plugin = next(hook.__self__ for _, hook, _ in plugins.HookRegistry._hooks[host.APP])
    plugin.jobs.clear()
    _, client = http
    for _ in range(5):
        client.post(
            "/v1/images/generations",
            json={"prompt": "a cat", "response_format": "b64_json"},
            headers={"x-geoshrink": "budget=8"},
        )
    assert len(plugin.jobs) == 3


def test_all_outputs_of_a_request_are_told(monkeypatch: pytest.MonkeyPatch):
    plugin, exchange = host.Plugin(Policy()), host.Exchange()
    reports = []
    for _ in range(3):
        ctx, req = sgl.request({"budget": 8})
        sgl.run(sgl.Stage(sgl.Net()), ctx, req)
        reports.append(req.metrics)
    result = OutputBatch(metrics=reports[0], metrics_list=reports)
    plugin.receive(exchange, req, result)
    assert exchange.told is not None and exchange.told["calls"] == 24


def test_every_request_of_a_group_is_asked():
    plugin = host.Plugin(Policy())
    batches = [sgl.request()[1] for _ in range(2)]

    async def original(client: Any, batch: Any, **kw: Any) -> Any:
        return [], OutputBatch()

    async def ask() -> None:
        plugin.current.set(host.Exchange("budget=8"))
        await plugin.on_generate(original, None, batches[0], scheduler_batches=batches)

    asyncio.run(ask())
    assert [host.asked_of(batch) for batch in batches] == ["budget=8"] * 2


# --- the server's own options


def test_the_server_can_ask_for_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GEOSHRINK", "budget=8")
    plugin = host.Plugin(Policy.from_environment())
    stage = sgl.Stage(sgl.Net())
    ctx, req = sgl.request()
    with torch.no_grad():
        plugin.on_loop(PLAIN, stage, ctx, req, stage.args)
    assert stage.transformer.calls == 16
    ctx, req = sgl.request("exact")
    with torch.no_grad():
        plugin.on_loop(PLAIN, stage, ctx, req, stage.args)
    assert torch.equal(ctx.latents, plain())


def test_wrong_options_of_the_server_turn_it_off(monkeypatch: pytest.MonkeyPatch, caplog: Any):
    monkeypatch.setenv("GEOSHRINK", "speedup=fast")
    before = {target: list(hooks) for target, hooks in plugins.HookRegistry._hooks.items()}
    host.register()
    assert "geoshrink is off: GEOSHRINK='speedup=fast'" in caplog.text
    assert {t: list(h) for t, h in plugins.HookRegistry._hooks.items()} == before


# --- several processes


KINDS = {"alone": 1, "sequence": 2, "guidance": 2}


def processes(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What each process of every kind of server has made, by SGLang's own groups."""
    script = Path(__file__).parent / "support" / "sglang_ranks.py"
    started, files = [], []
    for kind, count in KINDS.items():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for rank in range(count):
            files.append((kind, folder / f"{kind}-{rank}.pt"))
            words = [sys.executable, "-W", "ignore", script, kind, rank, port, files[-1][1]]
            started.append(
                subprocess.Popen(
                    [str(word) for word in words],
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert not any(process.returncode for process in started), "\n".join(outputs)[-3000:]
    return {kind: [torch.load(file) for k, file in files if k == kind] for kind in KINDS}


def test_processes_that_share_a_request_decide_alike(tmp_path: Path):
    found = processes(tmp_path)
    (alone,) = found["alone"]
    for kind in ("sequence", "guidance"):
        for name in ("euler", "unipc"):
            made, calls, told = zip(*(rank[name] for rank in found[kind]))
            whole = torch.cat(made, 1) if kind == "sequence" else made[0]
            assert torch.allclose(whole, alone[name][0], atol=1e-5)
            assert told[0]["calls"] == told[1]["calls"] == alone[name][2]["calls"]
            assert calls[0] == calls[1] == alone[name][1] // (2 if kind == "guidance" else 1)
            assert told[0]["estimated_db"] == told[1]["estimated_db"]
        assert "decide alike" in found[kind][0]["quality"][2]["reasons"][0]


# --- its diffusers backend


@pytest.fixture(scope="module")
def backend() -> Any:
    from sglang.multimodal_gen.runtime.pipelines.diffusers_pipeline import DiffusersExecutionStage

    tiny: Any = pytest.importorskip("tiny_pipelines")
    pipe, kwargs = tiny.tiny("FluxPipeline")
    stage = object.__new__(DiffusersExecutionStage)
    stage.diffusers_pipe = pipe

    def run(asked: Any, **more: Any) -> tuple[Any, Any]:
        _, req = sgl.request(steps=12, guidance=1.0)
        req.sampling_params.generator_device, req.sampling_params.seed = "cpu", 3
        req.prompt = req.height = req.width = req.negative_prompt = None  # type: ignore[assignment]
        given = {**kwargs, **more} | ({} if asked is None else {"geoshrink": asked})
        req.extra["diffusers_kwargs"] = given
        with torch.no_grad():
            stage.forward(req, None)
        return req.output, getattr(req.metrics, "geoshrink", None)

    return pipe, run


def test_a_pipeline_of_diffusers_is_accelerated_too(backend: Any):
    pipe, run = backend
    full, told = run(None)
    assert told is None
    made, told = run({"budget": 6})
    assert told["calls"] == 6 and told["steps"] == 12 and not torch.equal(made, full)
    assert torch.equal(run("exact")[0], full) and torch.equal(run({"budget": 6})[0], made)
    again, told = run({"budget": "six"})
    assert torch.equal(again, full) and "'six'" in told["reasons"][0]
    assert not hooks_in(pipe.scheduler) and type(pipe).__name__ == "FluxPipeline"


def test_a_pipeline_that_fails_is_as_it_was(backend: Any):
    pipe, run = backend
    with pytest.raises((TypeError, ValueError)):
        run({"budget": 6}, callback_on_step_end=7)
    kind = type(pipe)
    full, _ = run(None)
    assert torch.equal(run("exact")[0], full) and type(pipe) is kind
