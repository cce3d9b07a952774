"""Caches that other libraries put into a model: none may be there while we predict its outputs."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def check_caches(denoisers: Sequence[nn.Module]) -> None:
    """Two accelerators over one model would each spoil what the other measures."""
    for module in denoisers:
        if getattr(getattr(module, "_orig_mod", module), "_is_cached", False):
            raise cached(module, "call cache_dit.disable_cache(pipe)")
        kind = type(getattr(module, "_cache_config", None)).__name__
        if getattr(module, "is_cache_enabled", False) and kind != "TextKVCacheConfig":
            raise cached(module, "call its disable_cache()")
        teacache = getattr(module, "enable_teacache", False)  # elsewhere a method of that name
        if teacache and not callable(teacache):
            raise cached(module, "set its enable_teacache to False")


def check_hooks(denoisers: Sequence[nn.Module]) -> None:
    """The same for a cache that was applied by hand. Takes a millisecond on a large model, so in a
    run it is done behind the first call.
    """
    for module in denoisers:
        if caching(module):
            raise cached(module, "call its disable_cache()")


def cached(module: nn.Module, remedy: str) -> ValueError:
    return ValueError(
        f"{type(module).__name__} has a cache enabled; use one or the other: {remedy} first, "
        "or remove() geoshrink"
    )


def caching(module: nn.Module) -> bool:
    """Whether a hook of one of diffusers' caches is in a module.

    The cache of text keys is exact and may stay: nothing is predicted by it.
    """
    parts = [module]
    for part in parts:  # not by modules() and getattr, which take four times as long
        parts += [child for child in part._modules.values() if child is not None]
        for name in getattr(part.__dict__.get("_diffusers_hook"), "hooks", ()):
            predicts = any(word in name for word in ("cache", "broadcast", "fbc_"))
            if predicts and "text_kv" not in name:
                return True
    return False
