"""accelerate(), and the hosts it knows: ours, those of other packages, those that you register.

A package brings hosts by the entry point group `geoshrink.hosts`; each entry point names a Host.
Nothing of a host's library is imported unless it is there already.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from . import acestep, diffusers, f5tts, hunyuan3d, hymotion, minimax, odehosts, tangoflux, trellis
from .handle import Handle
from .host import Host

GROUP = "geoshrink.hosts"
OWN = tuple(
    module.HOST
    for module in (
        trellis, hymotion, f5tts, odehosts, acestep, tangoflux, hunyuan3d, minimax, diffusers,
    )
)  # fmt: skip
HOSTS: list[Host] = []  # registered, the latest first
logger = logging.getLogger("geoshrink")


def register_host(host: Host) -> Host:
    """Teaches accelerate() and compare() a kind of hosts; the latest is asked first.

    geoshrink.register_host(geoshrink.Host("mine", knows=is_mine, attach=attach_mine))
    """
    if not isinstance(host, Host):
        raise TypeError(f"register_host takes a geoshrink.Host, got {host!r}")
    HOSTS.insert(0, host)
    return host


def register_adapter(knows: Callable[[Any], bool], attach: Callable[..., Handle]) -> None:
    """The former name: register_host(Host(name, knows, attach))."""
    warnings.warn(
        "register_adapter(knows, attach) goes away in the next release: use "
        "geoshrink.register_host(geoshrink.Host(name, knows, attach))",
        DeprecationWarning,
        stacklevel=2,
    )
    register_host(Host(getattr(attach, "__module__", "registered"), knows, attach))


@cache
def installed() -> tuple[Host, ...]:
    """The hosts that installed packages bring. One that cannot be imported is left out."""
    found = []
    for entry in entry_points(group=GROUP):
        try:
            found.append(entry.load())
        except Exception as error:  # of a package that the user may not even be using
            logger.warning("geoshrink: the host %s (%s): %s", entry.name, entry.value, error)
    return tuple(found)


def known() -> tuple[Host, ...]:
    """All kinds of hosts, in the order in which they are asked."""
    return (*HOSTS, *installed(), *OWN)


def host_of(candidate: Any) -> Host | None:
    """The kind of hosts that an object is of."""
    return next((host for host in known() if host.knows(candidate)), None)


def accelerate(host: Any, budget: int | None = None, **options: Any) -> Handle:
    """Makes a pipeline query its model at `budget` stages only, until handle.remove().

        handle = geoshrink.accelerate(pipe, budget=10)
        image = pipe("a lighthouse at dawn", num_inference_steps=50).images[0]
        print(handle.report)

    A second call on the same pipeline replaces the first. The handle is a context manager, too.

    budget      how many stages query the model; default: a third of them
    target_db   or the distance to the full run to hold, in dB (docs/quality.md); most caps the
                calls, judge="worst" asks it of every sample of a batch, "mean" of their mean
    options     speedup, anchors, rule, space, blocks, coefficients, target, refine, correct, clock:
                as in Plan.of; target="flow" and refine need a scheduler that is Euler's
    learn       True: the first run in a setting (model, steps, guidance, size) is exact and teaches
                the others where to query (docs/learning.md); a number N: so is every Nth; or
                geoshrink.Learning(…), which can keep it in a folder. See handle.learned
    plan        in place of all these: a Plan, the path of its JSON file, or the contents as a dict
    scheduler   what the host steps, and denoisers, the networks that it calls (modules, or names of
                its components): where geoshrink does not recognise them by itself
    """
    scheduler, known = options.get("scheduler"), diffusers.HOST
    if scheduler is None:
        known = host_of(host)
    elif not all(callable(getattr(scheduler, name, None)) for name in ("set_timesteps", "step")):
        raise TypeError(
            f"scheduler={scheduler!r} has no set_timesteps() and step(): give the scheduler "
            "object that the pipeline steps"
        )
    if known is None:
        raise TypeError(
            f"geoshrink does not know how to accelerate a {type(host).__name__}: it needs an "
            "object with a scheduler (set_timesteps and step) and a denoiser; name them with "
            "scheduler=… and denoisers=[…], or use geoshrink.Run in your own loop"
        )
    return known.attach(host, budget=budget, **options)
