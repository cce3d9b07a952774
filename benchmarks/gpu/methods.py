"""What runs on a pipeline: nothing, geoshrink, and the rivals at the same number of evaluations.

Every rival gets the schedule of its own kind that makes exactly `budget` evaluations. One that
decides by a threshold still computes its decision, with the wait for the device that it costs, and
is then told the answer.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import geoshrink

#: TaylorSeer's own patterns, and the names that Wan gives its attention.
ATTENTION = [r"^(single_)?(transformer_)?blocks.*attn[12]?"]
Context = contextlib.AbstractContextManager[Any]


def regular(steps: int, budget: int) -> tuple[int, int, list[int]]:
    """(warm-up, skipped between two, evaluated): the first stages, then one of every few."""
    for warm in (3, 2, 4, 1, 5, *range(6, budget)):
        for skip in range(1, steps):
            found = [*range(warm), *range(warm + skip, steps, skip + 1)]
            if len(found) == budget:
                return warm, skip, found
    raise ValueError(f"no regular schedule has {budget} evaluations in {steps} steps")


def plain(pipe: Any, steps: int, budget: int) -> Context:
    return contextlib.nullcontext()


def ours(pipe: Any, steps: int, budget: int) -> Context:
    return geoshrink.accelerate(pipe, budget=budget)


def corrected(pipe: Any, steps: int, budget: int) -> Context:
    return geoshrink.accelerate(pipe, budget=budget, correct=True)


@contextlib.contextmanager
def hooked(pipe: Any, apply: Callable[[Any], None], names: tuple[str, ...]) -> Iterator[None]:
    """One of diffusers' caches, applied by hand: SD3's transformer has no enable_cache."""
    hooks: Any = importlib.import_module("diffusers.hooks.hooks")
    model = pipe.transformer
    apply(model)
    registry = hooks.HookRegistry.check_if_exists_or_initialize(model)
    if not hasattr(model, "cache_context"):  # nor does its pipeline name the branch it evaluates
        hooks._set_cache_context(model, hooks.CacheContext("cond"))
    try:
        yield
    finally:
        registry.reset_stateful_hooks(recurse=True)
        for name in names:
            registry.remove_hook(name, recurse=True)
        for part in model.modules():  # a registry remembers the hooked parts it has once seen
            part.__dict__.pop("_diffusers_hook", None)


def taylorseer(lite: bool) -> Callable[[Any, int, int], Context]:
    def on(pipe: Any, steps: int, budget: int) -> Context:
        module: Any = importlib.import_module("diffusers.hooks.taylorseer_cache")
        warm, interval = taylor_schedule(steps, budget)
        config = module.TaylorSeerCacheConfig(
            cache_interval=interval,
            disable_cache_before_step=warm,
            use_lite_mode=lite,
            cache_identifiers=None if lite else ATTENTION,
        )
        names = (module._TAYLORSEER_CACHE_HOOK,)
        return hooked(pipe, lambda model: module.apply_taylorseer_cache(model, config), names)

    return on


def taylor_schedule(steps: int, budget: int) -> tuple[int, int]:
    """(warm-up, interval) of diffusers' TaylorSeer, which evaluates one stage later than others."""
    for warm in (3, 2, 4, 1, 5):
        for interval in range(2, steps):
            full = [n < warm or (n - warm - 1) % interval == 0 for n in range(steps)]
            if sum(full) == budget:
                return warm, interval
    raise ValueError(f"no schedule of TaylorSeer has {budget} evaluations in {steps} steps")


def first_block(pipe: Any, steps: int, budget: int) -> Context:
    module: Any = importlib.import_module("diffusers.hooks.first_block_cache")
    evaluated, seen = set(regular(steps, budget)[2]), {}

    def apply(model: Any) -> None:
        module.apply_first_block_cache(model, module.FirstBlockCacheConfig(threshold=0.05))
        for part in model.modules():
            registry = getattr(part, "_diffusers_hook", None)
            hook = registry and registry.get_hook(module._FBC_LEADER_BLOCK_HOOK)
            if hook:
                hook._should_compute_remaining_blocks = told(
                    hook, hook._should_compute_remaining_blocks
                )

    def told(hook: Any, decide: Callable[[Any], bool]) -> Callable[[Any], bool]:
        def answer(residual: Any) -> bool:
            decide(residual)
            branch = id(hook.state_manager.get_state())
            seen[branch] = seen.get(branch, -1) + 1
            return seen[branch] % steps in evaluated

        return answer

    return hooked(pipe, apply, (module._FBC_LEADER_BLOCK_HOOK, module._FBC_BLOCK_HOOK))


def mag(pipe: Any, steps: int, budget: int) -> Context:
    module: Any = importlib.import_module("diffusers.hooks.mag_cache")
    warm, skip, _ = regular(steps, budget)
    config = module.MagCacheConfig(
        threshold=1e9,
        max_skip_steps=skip,
        retention_ratio=warm / steps,
        num_inference_steps=steps,
        mag_ratios=[1.0] * steps,
    )
    names = (module._MAG_CACHE_LEADER_BLOCK_HOOK, module._MAG_CACHE_BLOCK_HOOK)
    return hooked(pipe, lambda model: module.apply_mag_cache(model, config), names)


@contextlib.contextmanager
def dbcache(pipe: Any, steps: int, budget: int) -> Iterator[None]:
    cache_dit: Any = importlib.import_module("cache_dit")
    evaluated = regular(steps, budget)[2]
    cache_dit.enable_cache(
        pipe,
        cache_config=cache_dit.DBCacheConfig(
            Fn_compute_blocks=1,
            Bn_compute_blocks=0,
            max_warmup_steps=3,
            num_inference_steps=steps,
            steps_computation_mask=[int(n in evaluated) for n in range(steps)],
            steps_computation_policy="static",
        ),
        calibrator_config=cache_dit.TaylorSeerCalibratorConfig(taylorseer_order=1),
    )
    try:
        yield
    finally:
        cache_dit.disable_cache(pipe)


RIVALS: dict[str, Callable[[Any, int, int], Context]] = {
    "MagCache (diffusers)": mag,
    "FirstBlockCache (diffusers)": first_block,
    "TaylorSeer lite (diffusers)": taylorseer(lite=True),
    "TaylorSeer (diffusers)": taylorseer(lite=False),
    "DBCache + TaylorSeer (cache-dit)": dbcache,
}
