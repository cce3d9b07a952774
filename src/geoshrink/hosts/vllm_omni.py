"""vLLM-Omni: the cache backend `geoshrink`, brought by the engine's plugins.

    vllm serve MODEL --omni --cache-backend geoshrink --cache-config '{"speedup": 3}'

The engine calls register() in each of its processes; it imports nothing of the engine. Until
somebody asks for this backend nothing is other than before. A request may ask for its own options:
extra_args={"geoshrink": {"budget": 10}}. What was done comes back in the output's stage_durations
(see told_in).

Read in 0.30.0: get_cache_backend and who imports it, DiffusionModelRunner, CFGParallelMixin,
RequestScheduler, DiffusersAdapterPipeline.
"""

from __future__ import annotations

import copy
import functools
import importlib.abc
import json
import logging
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import torch
from torch import nn

from ..learning import Learning
from ..report import Report
from . import diffusers
from .caches import check_caches, check_hooks
from .hooks import Hooks
from .seam import Seam
from .serving import KEY, LONGEST, WRONG, Policy, holds_quality, joined, read, told
from .vllm_pipelines import find_denoisers, native_seam, seam_within

logger = logging.getLogger("geoshrink")
ENGINE = "vllm_omni.diffusion"
REASON = f"{KEY}_reason: "
TOLD = ("calls", "steps", "forwards", "exact", "estimated_db", "doubtful")
REASONS, LETTERS = 3, 200  # that go into an output
LONG = 500  # letters of a line in the log


# -- the plugin


def register() -> None:
    """The entry point. It never raises, and may be called again."""
    try:
        watch = Watch({name: patch for name, patch in PATCHES.items() if not patched(name, patch)})
        if watch.patches and not any(isinstance(finder, Watch) for finder in sys.meta_path):
            sys.meta_path.insert(0, watch)
    except Exception as error:
        warn_once(f"the plugin for vLLM-Omni could not be set up ({error})")


def patched(name: str, patch: Callable[[ModuleType], None]) -> bool:
    """Patches a module that is there; False if it is not."""
    module = sys.modules.get(name)
    if module is None or getattr(module.__spec__, "_initializing", False):
        return False
    try_patch(module, patch)
    return True


def try_patch(module: ModuleType, patch: Callable[[ModuleType], None]) -> None:
    try:
        patch(module)
    except Exception as error:
        known = f"{module.__name__} is not as geoshrink knows it"
        warn_once(f"{known}: requests may not be accelerated ({type(error).__name__}: {error})")


class Watch(importlib.abc.MetaPathFinder):
    """Patches modules when the engine imports them, and goes with the last of them."""

    def __init__(self, patches: dict[str, Callable[[ModuleType], None]]):
        self.patches = patches

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in self.patches:
            return None
        finders = [f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")]
        found = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Patching(spec.loader, self)
        return spec

    def loaded(self, module: ModuleType) -> None:
        name = module.__name__
        if sys.modules.get(name) is not module or name not in self.patches:
            return  # somebody's private copy
        try_patch(module, self.patches.pop(name))
        if not self.patches and self in sys.meta_path:
            sys.meta_path.remove(self)


class Patching(importlib.abc.Loader):
    """A module's own loader, and the patch behind it."""

    def __init__(self, plain: Any, watch: Watch):
        self.plain, self.watch = plain, watch

    def create_module(self, spec: Any) -> Any:
        return self.plain.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            spec.loader = self.plain  # a module is as its own loader makes it
        module.__loader__ = self.plain
        self.plain.exec_module(module)
        self.watch.loaded(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


def replace_once(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts make(the function) in the place of a function, unless one of ours is there."""
    plain = getattr(owner, name)
    if not hasattr(plain, "_geoshrink"):
        made: Any = functools.wraps(plain)(make(plain))
        made._geoshrink = True
        setattr(owner, name, made)


def offer_backend(module: ModuleType) -> None:
    """Of a module that knows get_cache_backend: it knows ours, too."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def get_cache_backend(cache_backend: str | None, cache_config: Any) -> Any:
            ours = cache_backend == KEY
            return backend(cache_config) if ours else plain(cache_backend, cache_config)

        return get_cache_backend

    replace_once(module, "get_cache_backend", make)


def part_batches(module: ModuleType) -> None:
    """Where ours is the backend, requests that ask for different options share no batch."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def build(scheduler: Any, request: Any) -> Any:
            key = plain(scheduler, request)
            if getattr(scheduler.od_config, "cache_backend", None) != KEY:
                return key
            words = spelled(asked_by(request))
            return key if words == NOTHING else with_words(key, words)

        return build

    replace_once(cast(Any, module).RequestScheduler, "_build_sampling_params_key", make)


def with_words(key: Any, words: str) -> Any:
    return replace(key, condition_key=(key.condition_key, KEY, words))


def admit_backend(module: ModuleType) -> None:
    """The diffusers adapter refuses caches, since they need a model's blocks. Ours does not."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def check(adapter: Any) -> None:
            config = adapter.od_config
            if config.cache_backend == KEY:
                adapter.od_config = copy.copy(config)
                adapter.od_config.cache_backend = None
            try:
                plain(adapter)
            finally:
                adapter.od_config = config

        return check

    replace_once(cast(Any, module).DiffusersAdapterPipeline, "_raise_unsupported_features", make)


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    f"{ENGINE}.cache.selector": offer_backend,
    f"{ENGINE}.worker.diffusion_model_runner": offer_backend,
    f"{ENGINE}.sched.request_scheduler": part_batches,
    f"{ENGINE}.models.diffusers_adapter.pipeline_diffusers_adapter": admit_backend,
}


@functools.lru_cache(maxsize=64)
def warn_once(words: str) -> None:
    logger.warning("geoshrink: %s", words[:LONG])


# -- what a request asks for


def asked_by(request: Any) -> Any:
    """What a request's extra_args say of us."""
    extra = getattr(getattr(request, "sampling_params", None), "extra_args", None)
    return extra.get(KEY) if isinstance(extra, Mapping) else None


def spelled(asked: Any) -> str:
    """The same words for the same wish."""
    try:
        return json.dumps(read(asked), sort_keys=True)[:LONGEST]
    except WRONG:
        return "wrong"


NOTHING = spelled(None)


def requests_of(args: tuple, kwargs: Mapping[str, Any]) -> list[Any]:
    """The requests that a pipeline's forward is given."""
    found = [getattr(value, "requests", None) for value in (*args, *kwargs.values())]
    return next((each for each in found if each and isinstance(each, list)), [])


def policy_of(config: Any) -> Policy:
    """The server's options, from --cache-config."""
    given = config if isinstance(config, Mapping) else given_in(config)
    try:
        return Policy(given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--cache-backend {KEY} --cache-config {dict(given)!r}: {error}") from None


def given_in(config: Any) -> dict[str, Any]:
    """What somebody has written into a DiffusionCacheConfig: keys of ours, and others' settings
    where they are not the defaults.
    """
    if config is None:
        return {}
    usual, given = type(config)(), dict(getattr(config, "_extra_params", {}))
    for field in fields(config):
        value = getattr(config, field.name)
        if not field.name.startswith("_") and value != getattr(usual, field.name):
            given[field.name] = value
    return given


# -- the backend


def backend(config: Any) -> Any:
    """A CacheBackend of the engine's; a ValueError quotes a cache config that is wrong."""
    return backend_class()(config)


@functools.cache
def backend_class() -> type:
    base = import_module(f"{ENGINE}.cache.base").CacheBackend
    return type("GeoShrinkBackend", (Backend, base), {"__module__": __name__})


class Backend:
    """What the engine calls: enable() once behind loading, refresh() before every batch."""

    def __init__(self, config: Any):
        self.config, self.policy, self.enabled = config, policy_of(config), False
        self.service: Service | None = None

    def enable(self, pipeline: Any) -> None:
        if self.service is not None and self.service.pipeline() is pipeline:
            return
        self.remove()
        check_ranks(self.policy)
        self.service, self.enabled = Service(self.policy, pipeline), True

    def refresh(self, pipeline: Any, num_inference_steps: int, verbose: bool = True) -> None:
        """Lets go of a run of this thread that was broken off. A run begins with its request."""
        if self.service is not None:
            self.service.refresh()

    def remove(self) -> None:
        """The pipeline as it was."""
        if self.service is not None:
            self.service.remove()
        self.service, self.enabled = None, False


def check_ranks(policy: Policy) -> None:
    """Ranks must skip the same stages: none may learn from files that another is writing."""
    learning = policy.own.get("learn")
    if ranks() > 1 and isinstance(learning, Learning) and learning.folder is not None:
        raise ValueError(
            f"learn={str(learning.folder)!r} with {ranks()} ranks: they would read what the others "
            "write, and skip different stages; give learn=true, or a plan"
        )


def ranks() -> int:
    state = torch.distributed
    return state.get_world_size() if state.is_available() and state.is_initialized() else 1


class Service:
    """One pipeline, served: every forward is asked for its requests' options."""

    def __init__(self, policy: Policy, pipeline: Any):
        self.policy, self.pipeline = policy, weakref.ref(pipeline)
        self.never = ""  # why no request can be accelerated
        self.seam: Seam | None = None
        inner = getattr(pipeline, "_pipeline", None)  # of the diffusers adapter
        self.within = inner is not None and diffusers.knows(inner)
        try:
            self.seam = seam_within(inner) if self.within else native_seam(pipeline)
        except (TypeError, ValueError) as error:
            self.never = str(error)
            warn_once(self.never)
        self.hooks = Hooks()
        self.hooks.place(pipeline, "forward", self.on_forward)

    def refresh(self) -> None:
        if self.seam is not None and self.seam.loop is not None:
            self.seam.end(self.seam.loop)

    def remove(self) -> None:
        self.hooks.lift()
        if self.seam is not None:
            self.seam.remove()

    def on_forward(self, pipeline: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        requests = requests_of(args, kwargs)
        try:
            options, why = self.decide(pipeline, requests)
        except Exception as error:  # the request is served, whatever we make of it
            options, why = None, f"{type(error).__name__}: {error}"
        silent = options is None and not why and all(asked_by(r) is None for r in requests)
        if self.seam is None:
            made, reports = call(*args, **kwargs), []
        else:
            with self.seam.asking(options) as reports:
                if self.within:
                    made = call(*args, **kwargs)
                else:
                    made = self.seam.on_run(pipeline, call, args, kwargs)
        if why:
            warn_once(why[:LONG])
        if not silent:
            try:
                put(made, numbers_of(summary(reports, why)))
            except Exception as error:
                warn_once(f"a request has no report ({type(error).__name__}: {error})"[:LONG])
        return made

    def decide(self, pipeline: Any, requests: list[Any]) -> tuple[dict[str, Any] | None, str]:
        """(options of a batch, why it is exact though it asked); None: it is exact."""
        if not requests:
            return None, "the pipeline was not called with requests: it is run as it is"
        if any(is_dummy(request) for request in requests):
            return None, ""
        wishes = {spelled(asked_by(request)) for request in requests}
        if len(wishes) > 1:
            listed = ", ".join(sorted(wishes))
            return None, f"requests that ask for different options came in one batch: {listed}"
        lossless = getattr(requests[0].sampling_params, "quality", None) == "lossless"
        if lossless and wishes == {NOTHING}:
            return None, ""
        options, why = self.policy.options(asked_by(requests[0]))
        if options is None:
            return None, why
        why = self.never or blocked(self.networks(pipeline))
        if not why and ranks() > 1 and holds_quality(options):
            why = "several processes might not decide alike on target_db: give a budget"
        return (None, why) if why else (options, "")

    def networks(self, pipeline: Any) -> list[nn.Module]:
        if self.within:
            return diffusers.find_denoisers(pipeline._pipeline)
        return find_denoisers(pipeline)


def is_dummy(request: Any) -> bool:
    """Whether a request is the engine's own, to warm up or to measure memory."""
    check = getattr(request, "is_dummy_run", None)
    return bool(callable(check) and check())


def blocked(networks: Sequence[nn.Module]) -> str:
    """Why nothing may be predicted now, or ""."""
    state: Any = sys.modules.get(f"{ENGINE}.distributed.parallel_state")
    if getattr(state, "_PP", None) is not None and state.get_pipeline_parallel_world_size() > 1:
        return "with pipeline parallelism no rank has the whole output"
    try:
        check_caches(networks)
        check_hooks(networks)
    except ValueError as error:
        return str(error)
    for module in (part for network in networks for part in network.modules()):
        hooks = getattr(module.__dict__.get("_hook_registry"), "_hooks", ())
        if found := [name for name in hooks if "cache" in name]:
            return f"{type(module).__name__} has the cache {found[0]}: use one or the other"
    return ""


# -- what comes back


def summary(reports: Sequence[Report], why: str = "") -> dict[str, Any]:
    """told() of a request, also of one with several loops."""
    loops = [report for report in reports if report.steps]
    if not loops:  # what was not stepped as we know it
        said = [reason for report in reports for _, reason in report.reasons]
        return told(None, why or " ".join(said[:1]))
    first, *others = loops
    return reduce(joined, map(told, others), told(first, why))


def numbers_of(said: Mapping[str, Any]) -> dict[str, float]:
    """What told() says, as numbers by name: stage_durations takes nothing else.

    >>> numbers_of({"calls": 10, "steps": 50, "exact": False, "reasons": ["stage 9: why"]})
    {'geoshrink_calls': 10.0, 'geoshrink_steps': 50.0, 'geoshrink_exact': 0.0, \
'geoshrink_reason: stage 9: why': 1.0}
    """
    known = {name: said[name] for name in TOLD if said.get(name) is not None}
    found = {f"{KEY}_{name}": float(value) for name, value in known.items()}
    return found | {f"{REASON}{why[:LETTERS]}": 1.0 for why in said["reasons"][:REASONS]}


def told_in(stage_durations: Mapping[str, float] | None) -> dict[str, Any]:
    """What an output of the engine says of us, by the names of told(); {} if it says nothing.

    >>> told_in({"geoshrink_calls": 10.0, "geoshrink_reason: stage 9: why": 1.0, "diffuse": 2.5})
    {'calls': 10.0, 'reasons': ['stage 9: why']}
    """
    given = stage_durations or {}
    found: dict[str, Any] = {n: given[f"{KEY}_{n}"] for n in TOLD if f"{KEY}_{n}" in given}
    reasons = [name.removeprefix(REASON) for name in given if name.startswith(REASON)]
    return found | {"reasons": reasons} if found or reasons else {}


def put(outputs: Any, numbers: dict[str, float]) -> Any:
    """Writes numbers into the outputs of a pipeline, one or a list."""
    for output in outputs if isinstance(outputs, (list, tuple)) else [outputs]:
        if hasattr(output, "stage_durations"):
            output.stage_durations = {**(output.stage_durations or {}), **numbers}
    return outputs
