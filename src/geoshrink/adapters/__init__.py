"""Hosts: accelerate(host) finds the adapter that knows it. A new host is one new file here.

An adapter is a pair of functions: does it know this object, and how to attach to it. Nothing of a
host's library is imported unless it is there already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .handle import Handle as Handle

Knows = Callable[[Any], bool]
Attach = Callable[..., Handle]
_ADAPTERS: list[tuple[Knows, Attach]] = []


def register_adapter(knows: Knows, attach: Attach) -> None:
    """Teaches accelerate() a host: where knows(host), attach(host, **options) gives a Handle."""
    _ADAPTERS.insert(0, (knows, attach))


def accelerate(host: Any, budget: int | None = None, **options: Any) -> Handle:
    """Makes a pipeline query its model at `budget` stages only, until handle.remove().

        handle = geoshrink.accelerate(pipe, budget=10)
        image = pipe("a lighthouse at dawn", num_inference_steps=50).images[0]
        print(handle.report)

    Options are those of Plan.of (speedup, anchors, rule, space …), or plan=; without any, a
    speed-up of 3. A second call on the same pipeline replaces the first. A context manager too.
    """
    if options.get("scheduler") is not None:  # its parts are named: nothing to recognise
        return _diffusers.attach(host, budget=budget, **options)
    for knows, attach in _ADAPTERS:
        if knows(host):
            return attach(host, budget=budget, **options)
    raise TypeError(
        f"geoshrink does not know how to accelerate a {type(host).__name__}: it needs an object "
        "with a scheduler (set_timesteps and step) and a denoiser; name them with scheduler=… and "
        "denoisers=[…], or use geoshrink.Run in your own loop"
    )


from . import acestep as _acestep  # noqa: E402
from . import diffusers as _diffusers  # noqa: E402
from . import hunyuan3d as _hunyuan3d  # noqa: E402
from . import odehosts as _odehosts  # noqa: E402
from . import tangoflux as _tangoflux  # noqa: E402
from . import trellis as _trellis  # noqa: E402

for _adapter in (_diffusers, _hunyuan3d, _tangoflux, _acestep, _odehosts, _trellis):
    register_adapter(_adapter.knows, _adapter.attach)
