"""SGLang-Diffusion: a plugin of its server (docs/serving.md).

In a worker one method is hooked, the denoising loop of a request; whatever is needed of its stage
and scheduler is hooked while the loop runs. In the process that speaks HTTP, options come in by a
header or a field of the request, and the report goes out as a header.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

from .handle import announced
from .hooks import Hooks
from .registry import accelerate
from .seats import seat_of
from .serving import KEY, Policy, holds_quality, joined, told
from .session import Session

logger = logging.getLogger("geoshrink")
HOME = "sglang.multimodal_gen.runtime"
LOOP = f"{HOME}.pipelines_core.stages.denoising.DenoisingStage._run_denoising_loop"
PREDICT = "_predict_noise_with_cfg"
WHOLE = f"{HOME}.pipelines.diffusers_pipeline.DiffusersExecutionStage.forward"
METRICS = f"{HOME}.utils.perf_logger.RequestMetrics.to_dict"
APP = f"{HOME}.entrypoints.http_server.create_app"
GENERATE = f"{HOME}.entrypoints.openai.utils.process_generation_batch"
FIELDS = f"{HOME}.entrypoints.openai.utils.request_model_kwargs"
EXTRA = "diffusers_kwargs"  # of a request: a free dict, by which SGLang tells batches apart
HEADER = b"x-geoshrink"
JOBS = 1024  # whose reports are remembered until somebody asks for the result
#: Settings of a request under which outputs are not the model's alone.
CACHES = {
    "enable_teacache": "TeaCache",
    "enable_spectrum": "Spectrum",
    "enable_cache_dit": "Cache-DiT",
}


def register() -> None:
    """The entry point: sglang.multimodal_gen.plugins. Never raises into the server."""
    try:
        engine: Any = import_module(f"{HOME}.platforms.plugins")
        plugin = Plugin(Policy.from_environment())
    except Exception as error:
        logger.error("geoshrink is off: %s", error)
        return
    for target, hook in (
        (LOOP, plugin.on_loop),
        (WHOLE, plugin.on_pipeline),
        (GENERATE, plugin.on_generate),
        (FIELDS, plugin.on_fields),
        (METRICS, with_report),
        (APP, plugin.on_app),
    ):
        engine.HookRegistry.register(target, hook, engine.HookType.AROUND)


class Plugin:
    """All hooks of one process."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.current: ContextVar[Exchange | None] = ContextVar(KEY, default=None)
        self.jobs: OrderedDict[str, dict[str, Any]] = OrderedDict()

    # -- in a worker

    def on_loop(self, original: Callable, stage: Any, ctx: Any, batch: Any, *args: Any, **kw: Any):
        """A denoising loop; a request may make several."""
        options, why = self.policy.options(asked_of(batch))
        if options is None or ctx.is_warmup or batch.is_warmup:
            if why:
                keep(batch, lambda: told(None, why, len(ctx.timesteps)))
            return original(stage, ctx, batch, *args, **kw)
        with Hooks() as hooks:
            loop = DenoisingLoop(stage, ctx, batch, options, hooks)
            hooks.place(stage, PREDICT, loop.on_predict)
            result = original(stage, ctx, batch, *args, **kw)
            keep(batch, loop.close)
            return result

    def on_pipeline(self, original: Callable, stage: Any, batch: Any, *args: Any, **kw: Any):
        """A request of the diffusers backend, where a pipeline of diffusers does it all."""
        options, why = self.policy.options(asked_of(batch, take=True))
        handle = None
        if options is not None and not batch.is_warmup:
            try:
                handle = accelerate(stage.diffusers_pipe, **options)
            except Exception as error:  # the request is served, whatever we make of it
                why = f"{KEY}: {error}"
        if handle is None:
            if why:
                keep(batch, lambda: told(None, why))
            return original(stage, batch, *args, **kw)
        with handle:
            result = original(stage, batch, *args, **kw)
            for report in handle.reports:
                keep(batch, lambda report=report: told(report))
            return result

    # -- where HTTP is spoken

    def on_app(self, original: Callable, *args: Any, **kw: Any) -> Any:
        app = original(*args, **kw)
        app.add_middleware(Headers, plugin=self)
        return app

    def on_fields(self, original: Callable, request: Any, *args: Any, **kw: Any) -> Any:
        """A field `geoshrink` of a request's body, beside those that SGLang knows."""
        exchange, extra = self.current.get(), getattr(request, "model_extra", None) or {}
        if exchange is not None and extra.get(KEY) is not None:
            exchange.asked = extra[KEY]
        return original(request, *args, **kw)

    async def on_generate(self, original: Callable, client: Any, batch: Any, **kw: Any) -> Any:
        exchange = self.current.get()
        if exchange is not None and exchange.asked is not None:
            for each in kw.get("scheduler_batches") or [batch]:
                each.extra[EXTRA] = {**(each.extra.get(EXTRA) or {}), KEY: exchange.asked}
        paths, result = await original(client, batch, **kw)
        try:
            self.receive(exchange, batch, result)
        except Exception as error:
            logger.warning("geoshrink: a response has no report: %s", error, exc_info=True)
        return paths, result

    def receive(self, exchange: Exchange | None, batch: Any, result: Any) -> None:
        """Reads the report that has come with a result, of all its outputs."""
        parts = [getattr(each, KEY, None) for each in result.metrics_list or [result.metrics]]
        found = [part for part in parts if part is not None]
        done = reduce(joined, found) if found else None
        if done is None and self.policy.options(asked_of(batch))[0] is not None:
            done = told(None, "this pipeline has no denoising loop that geoshrink knows")
        if done is None:
            return
        self.jobs[str(batch.request_id)] = done
        while len(self.jobs) > JOBS:
            self.jobs.popitem(last=False)
        if exchange is not None:
            exchange.told = done


class DenoisingLoop:
    """One denoising loop of one request. It is prepared at its first stage, when the scheduler is
    ready; what cannot be prepared is exact, and `why` says so.
    """

    def __init__(self, stage: Any, ctx: Any, batch: Any, options: dict[str, Any], hooks: Hooks):
        self.stage, self.ctx, self.batch, self.options = stage, ctx, batch, options
        self.hooks, self.session, self.why = hooks, None, ""

    def on_predict(self, stage: Any, call: Callable, args: tuple, given: dict) -> Any:
        """The output of one stage, after guidance. SGLang names all arguments."""
        mine = given.get("batch") is self.batch and given.get("cfg_policy") is self.ctx.cfg_policy
        if mine and self.session is None and not self.why:
            self.prepare(given["server_args"])
        if not mine or self.session is None:  # of another request; or exact
            return call(*args, **given)
        made: list[Any] = []
        asked = False

        def evaluate() -> Any:
            nonlocal asked
            asked = True
            made.append(call(*args, **given))
            return made[0]

        try:
            return self.output(self.session, given, evaluate)
        except Exception as error:
            if asked and not made:  # the engine's own
                raise
            self.session.give_in(given["timestep_index"], error)
            return made[0] if made else call(*args, **given)

    def output(self, session: Session, given: dict, evaluate: Callable[[], Any]) -> Any:
        model, scale = given["current_model"], given["current_guidance_scale"]
        branches = len(getattr(given["cfg_policy"], "branches", ()) or (None,))
        regime = id(model), scale if isinstance(scale, (int, float)) else id(scale), branches
        n, x = given["timestep_index"], given["latents"]
        return session.output(n, evaluate, x, regime, branches)

    def prepare(self, server_args: Any) -> None:
        try:
            self.why = self.refusal(server_args)
            if not self.why:
                self.session = self.make_session()
        except Exception as error:  # the request is served, whatever we make of it
            self.hooks.lift()
            self.why = f"{type(error).__name__}: {error}"
            logger.warning("geoshrink: a request is exact: %s", self.why, exc_info=True)

    def refusal(self, server_args: Any) -> str:
        """Why this loop must be exact."""
        batch, ctx, known = self.batch, self.ctx, self.batch.sampling_params
        caches = [cache for name, cache in CACHES.items() if getattr(known, name, False)]
        if getattr(self.stage, "_cache_dit_enabled", False):
            caches.append("Cache-DiT")
        if caches:
            return f"{caches[0]} is on, too: use one of them"
        if (ctx.extra.get("cfg_gate_state") or {}).get("active"):
            return "cfg_gate_step reuses guidance between steps: use one of them"
        if any(callable(value) for value in ctx.extra_step_kwargs.values()):
            return "the steps are those of a rollout"
        if getattr(server_args, "comfyui_mode", False):
            return "ComfyUI steps the solver"
        if getattr(batch, "profile", False):
            return "the request is profiled"
        if getattr(known, "slg_layers", None):
            return "skip-layer guidance begins and ends within the loop"
        if ranks() > 1 and holds_quality(self.options):
            return "several processes might not decide alike on target_db: give a budget"
        return ""

    def make_session(self) -> Session:
        ctx, options = self.ctx, dict(self.options)
        alone = ranks() == 1
        learning = options.get("learn") if alone else options.pop("learn", None)
        session = Session(
            ctx.scheduler,
            ctx.timesteps,
            options,
            settings=ctx.extra_step_kwargs,
            regimes=switches(ctx),
            group=group_of(self.stage, self.batch),
            seat=self.seat(options) if alone else None,
            hooks=self.hooks,
        )
        if learning is not None and not alone:
            session.notes.append((0, "nothing is learned where several processes share a request"))
        return session

    def seat(self, options: dict[str, Any]) -> Any:
        stage, batch = self.stage, self.batch
        networks = [stage.transformer, getattr(stage, "transformer_2", None)]
        scales = batch.guidance_scale, batch.guidance_scale_2, batch.guidance_rescale
        words = ", ".join(map(str, (type(self.ctx.scheduler).__name__, *scales)))
        return seat_of(options, [network for network in networks if network is not None], words)

    def close(self) -> dict[str, Any]:
        """What the request is told of a loop that has ended."""
        if self.session is not None:
            return told(announced(self.session.close()))
        if not self.why:
            name = type(self.stage).__name__
            self.why = f"{name} makes its outputs in a way that geoshrink does not know"
        logger.info("geoshrink: a request is exact: %s", self.why)
        return told(None, self.why, len(self.ctx.timesteps))


def asked_of(batch: Any, take: bool = False) -> Any:
    """What a request asks of us; `take` hides it from the pipeline that gets the other fields."""
    extra = (batch.extra or {}).get(EXTRA)
    own = getattr(batch.sampling_params, EXTRA, None)
    if take and isinstance(extra, Mapping) and KEY in extra:
        batch.extra[EXTRA] = {name: value for name, value in extra.items() if name != KEY}
    found = [each.get(KEY) for each in (extra, own) if isinstance(each, Mapping)]
    return next((asked for asked in found if asked is not None), None)


def keep(batch: Any, tell: Callable[[], dict[str, Any]]) -> None:
    """Leaves what is told of a run where SGLang keeps a request's timings, which travel with it."""
    try:
        if batch.metrics is not None:
            setattr(batch.metrics, KEY, joined(getattr(batch.metrics, KEY, None), tell()))
    except Exception as error:  # the picture is there: it is not lost for this
        logger.warning("geoshrink: a request has no report: %s", error, exc_info=True)


def with_report(original: Callable, metrics: Any) -> dict[str, Any]:
    done = getattr(metrics, KEY, None)
    return original(metrics) if done is None else {**original(metrics), KEY: done}


def switches(ctx: Any) -> list[int]:
    """The stage at which the second expert takes over, by SGLang's own comparison."""
    if ctx.boundary_timestep is None:
        return []
    high = [int(time) >= ctx.boundary_timestep for time in ctx.timesteps.tolist()]
    return [n for n in range(1, len(high)) if high[n] != high[n - 1]]


def group_of(stage: Any, batch: Any) -> Any:
    """The processes that hold a part of the latents each; None where each has them whole."""
    if stage._sp_world_size() > 1 and getattr(batch, "did_sp_shard_latents", False):
        return parallel_state().get_sp_group().device_group
    return None


def ranks() -> int:
    """How many processes work on one request."""
    state = parallel_state()
    if not state.model_parallel_is_initialized():
        return 1
    return state.get_world_size() // state.get_dp_group().world_size


def parallel_state() -> Any:
    return import_module(f"{HOME}.distributed.parallel_state")


@dataclass
class Exchange:
    """One HTTP request and its response: what it asks, and what it is told."""

    asked: Any = None
    told: dict[str, Any] | None = None


class Headers:
    """ASGI middleware: x-geoshrink of a request is its options, of a response its report."""

    def __init__(self, app: Any, plugin: Plugin):
        self.app, self.plugin = app, plugin

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = [value for name, value in scope["headers"] if name.lower() == HEADER]
        exchange = Exchange(given[-1].decode("latin-1") if given else None)
        for part in reversed(scope["path"].split("/")):  # the result of a job that was made earlier
            exchange.told = exchange.told or self.plugin.jobs.get(part)

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start" and exchange.told is not None:
                line = json.dumps(exchange.told).encode()
                message = {**message, "headers": [*message.get("headers", ()), (HEADER, line)]}
            await send(message)

        token = self.plugin.current.set(exchange)
        try:
            await self.app(scope, receive, sending)
        finally:
            self.plugin.current.reset(token)
