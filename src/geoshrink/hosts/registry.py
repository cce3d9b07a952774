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

from ..pointers import explained, see
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

    host   a geoshrink.Host, which is returned
    """
    if not isinstance(host, Host):
        raise TypeError(f"register_host takes a geoshrink.Host, got {host!r}")
    HOSTS.insert(0, host)
    return host


def register_adapter(knows: Callable[[Any], bool], attach: Callable[..., Handle]) -> None:
    """The former name of register_host(Host(name, knows, attach)); it warns.

    knows    knows(host) says whether an object is of this kind
    attach   attach(host, budget=…, **options) hooks into it and returns a Handle
    """
    warnings.warn(
        "register_adapter(knows, attach) goes away in the next release: use "
        "geoshrink.register_host(geoshrink.Host(name, knows, attach))",
        DeprecationWarning,
        stacklevel=2,
    )
    register_host(Host(getattr(attach, "__module__", "registered"), knows, attach))


@cache
def installed() -> tuple[Host, ...]:
    """The hosts that installed packages bring. One that cannot be used is left out."""
    found = []
    for entry in entry_points(group=GROUP):
        try:
            host = entry.load()
            if not isinstance(host, Host):
                raise TypeError(f"this is no geoshrink.Host, but a {type(host).__name__}")
            found.append(host)
        except Exception as error:  # of a package that the user may not even be using
            logger.warning("geoshrink: the host %s (%s): %s", entry.name, entry.value, error)
    return tuple(found)


def known() -> tuple[Host, ...]:
    """All kinds of hosts, in the order in which they are asked."""
    return (*HOSTS, *installed(), *OWN)


def host_of(candidate: Any) -> Host | None:
    """The kind of hosts that an object is of."""
    return next((host for host in known() if host.knows(candidate)), None)


@explained("accelerate")
def accelerate(host: Any, budget: int | None = None, **options: Any) -> Handle:
    """Makes a pipeline query its model at `budget` stages only, until handle.remove().

        handle = geoshrink.accelerate(pipe, budget=10)
        image = pipe("a lighthouse at dawn", num_inference_steps=50).images[0]
        print(handle.report)

    A second call on the same pipeline replaces the first. The handle is a context manager, too.

    host          a diffusers pipeline, or another host that geoshrink knows (docs/backends.md)

    How many calls; without any of these a third of the stages:

    budget        how many stages query the model
    speedup       the number of stages divided by this, but at least 4
    target_db     as many calls as the run turns out to need to come this close to the full run, in
                  dB of what the scheduler steps (docs/quality.md)
    most          with target_db: calls at most
    judge         with target_db: "mean" of the samples of a batch is to reach it, or "worst", each
    learn         True: the first run in a setting (model, steps, guidance, size) is exact and
                  teaches the others where to query (docs/learning.md); a number N: so is every Nth;
                  or geoshrink.Learning(…), which can keep it in a folder. See handle.learned
    plan          in place of all others: a Plan, the path of its JSON file, or the contents as a
                  dict

    How the other stages are predicted; the defaults are meant for everybody:

    anchors       the stages to query; or the mesh that places the budget: "corrected" (the default,
                  where cells are corrected), "auto" (where they are not), "sigma", "geometric" (the
                  paper's), "uniform", or one that you registered
    rule          how much of the latest change is kept: "signed time" (the default), "chordal"
                  (the paper's), "hold", …, a Rule, or one per anchor
    space         "output" predicts what the scheduler receives, "data" the data
    blocks        geoshrink.Blocks(…): which coordinates share one ω; default: those of a sample
    coefficients  one ω per stage that replaces the rule; None where the rule decides
    target        "run" (the default): close to the scheduler's own T steps. "flow": close to the
                  exact flow; for a scheduler that is Euler's
    refine        Euler steps in place of each of the scheduler's, 1 to 64; Euler's only
    correct       True: put a skipped cell right at the anchor that ends it, at no further call; a
                  gain or a geoshrink.Correction says how; False: do not. Default: wherever the
                  scheduler allows it and anchors, rule, coefficients, clock, space and refine are
                  left to us
    clock         distances between stages are measured in "sigma" or "mesh", the auto mesh's y

    Where geoshrink does not recognise the parts of a pipeline by itself:

    scheduler     the object that it steps
    denoisers     the networks that it calls: modules, or names of its components
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
        unknown = TypeError(
            f"geoshrink does not know how to accelerate a {type(host).__name__}: it needs an "
            "object with a scheduler (set_timesteps and step) and a denoiser; name them with "
            "scheduler=… and denoisers=[…], or use geoshrink.Run in your own loop"
        )
        raise see(unknown, "hosts")
    return known.attach(host, budget=budget, **options)
