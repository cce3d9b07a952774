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
    """Teaches accelerate() a host.

    knows    knows(host) says whether this adapter is for a host
    attach   attach(host, budget=…, **options) hooks into it and returns a Handle
    """
    for name, function in (("knows", knows), ("attach", attach)):
        if not callable(function):
            raise TypeError(f"{name} must be a function of the host, got {function!r}")
    _ADAPTERS.insert(0, (knows, attach))


def accelerate(host: Any, budget: int | None = None, **options: Any) -> Handle:
    """Makes a pipeline query its model at `budget` stages only, until handle.remove().

        handle = geoshrink.accelerate(pipe, budget=10)
        image = pipe("a lighthouse at dawn", num_inference_steps=50).images[0]
        print(handle.report)

    A second call on the same pipeline replaces the first. The handle is a context manager, too.

    budget      how many stages query the model; default: a third of them
    options     speedup, anchors, rule, space, blocks, coefficients, refine: as in Plan.of
    plan        in place of all these: a Plan, the path of its JSON file, or the contents as a dict
    scheduler   what the host steps, and denoisers, the networks that it calls (modules, or names of
                its components): where geoshrink does not recognise them by itself
    """
    scheduler = options.get("scheduler")
    if scheduler is not None:  # its parts are named: nothing to recognise
        if not all(callable(getattr(scheduler, name, None)) for name in ("set_timesteps", "step")):
            raise TypeError(
                f"scheduler={scheduler!r} has no set_timesteps() and step(): give the scheduler "
                "object that the pipeline steps"
            )
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
from . import denoised as denoised  # noqa: E402
from . import diffusers as _diffusers  # noqa: E402
from . import hunyuan3d as _hunyuan3d  # noqa: E402
from . import odehosts as _odehosts  # noqa: E402
from . import profiling as _profiling  # noqa: E402
from . import tangoflux as _tangoflux  # noqa: E402
from . import trellis as _trellis  # noqa: E402

for _adapter in (_diffusers, _hunyuan3d, _tangoflux, _acestep, _odehosts, _trellis):
    register_adapter(_adapter.knows, _adapter.attach)
Handle.profiler = _profiling.profile_pipeline
