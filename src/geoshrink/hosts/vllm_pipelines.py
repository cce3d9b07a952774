"""The pipelines of vLLM-Omni: where their networks are called, and their schedulers stepped."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import nn

from ..blocks import Blocks
from ..grid import Grid
from . import diffusers
from .entry import seam_of
from .hooks import Hooks, entrance
from .options import check_options
from .scheduling import check_step, read_grid
from .seam import Reader, Seam

#: Methods of a pipeline that call its network, the outermost first.
METHODS = (
    "predict_noise_maybe_with_cfg",
    "predict_noise_with_multi_branch_cfg",
    "predict_noise",
)
#: Where a pipeline that does not say it (in _dit_modules) has its network.
NETWORKS = ("transformer", "transformer_2", "dit", "unet")
SETTINGS = ("cfg", "guidance", "scale")  # words in the names of numbers that make a regime
STEPS = 1000  # of a loop whose length cannot be read


def seam_within(pipeline: Any) -> Seam:
    """Of the diffusers pipeline in the engine's adapter."""
    diffusers.attach(pipeline)
    seam = seam_of(pipeline)
    if seam is None:
        raise TypeError(f"{type(pipeline).__name__} cannot be accelerated: its class is final")
    seam.waits = True
    return seam


def native_seam(pipeline: nn.Module) -> NativeSeam:
    denoisers = find_denoisers(pipeline)
    if not denoisers and not methods_of(pipeline):
        names = getattr(pipeline, "_dit_modules", NETWORKS)
        raise TypeError(
            f"{type(pipeline).__name__} has no network that geoshrink recognises: looked for "
            f"{', '.join(names)}"
        )
    reader = cast(Reader, NativeReader(weakref.ref(pipeline)))
    options, found = check_options(None, {}), find_schedulers(pipeline)
    seam = NativeSeam(pipeline, found, denoisers, reader, options, find_denoisers)
    seam.waits = True
    seam.sit()
    return seam


def methods_of(pipeline: Any) -> list[str]:
    return [name for name in METHODS if callable(getattr(pipeline, name, None))]


def find_denoisers(pipeline: Any) -> list[nn.Module]:
    """The networks that a pipeline says it has, or that are where most have them."""
    found: list[nn.Module] = []
    for path in getattr(pipeline, "_dit_modules", None) or NETWORKS:
        module = pipeline
        for name in path.split("."):
            module = getattr(module, name, None)
        if isinstance(module, nn.Module) and all(module is not other for other in found):
            found.append(module)
    return found


def parts(pipeline: Any) -> dict[str, Any]:
    return {**vars(pipeline), **getattr(pipeline, "_modules", {})}


def find_schedulers(pipeline: Any) -> list[Any]:
    return list(named_schedulers(pipeline).values())


def named_schedulers(pipeline: Any) -> dict[str, Any]:
    """A pipeline's schedulers by name, also those that one for tuples is made of."""
    found: dict[str, Any] = {}
    for name, part in parts(pipeline).items():
        if not isinstance(part, nn.Module) and callable(getattr(part, "step", None)):
            for path, scheduler in simple_schedulers(name, part):
                if all(scheduler is not other for other in found.values()):
                    found[path] = scheduler
    return found


def simple_schedulers(name: str, part: Any) -> Iterator[tuple[str, Any]]:
    if is_scheduler(part):
        yield name, part
        return
    for inner, value in list(getattr(part, "__dict__", {}).items()):
        if is_scheduler(value):
            yield f"{name}.{inner}", value


def is_scheduler(part: Any) -> bool:
    if not all(callable(getattr(part, name, None)) for name in ("set_timesteps", "step")):
        return False
    try:
        check_step(part)
    except (TypeError, ValueError):
        return False
    return True


@dataclass(frozen=True)
class NativeReader:
    """What the seam asks of the engine's own pipelines."""

    pipeline: weakref.ref[Any]
    method = "forward"
    parts = staticmethod(parts)
    find_schedulers = staticmethod(find_schedulers)
    named_schedulers = staticmethod(named_schedulers)
    find_denoisers = staticmethod(find_denoisers)

    def is_host(self, candidate: Any) -> bool:
        return candidate is self.pipeline()

    def blocks_of(self, scheduler: Any) -> Blocks | None:
        return diffusers.blocks_of(scheduler)

    def grid_of(
        self, scheduler: Any, host: Any, order: int, timestep: Any
    ) -> tuple[Grid, str | None]:
        counted = getattr(host, "_num_timesteps", None)
        try:
            return read_grid(scheduler, order, timestep, counted=counted)
        except Exception as error:  # of a scheduler that is like no other
            line = Grid.of([float(STEPS - i) for i in range(STEPS + 1)])
            return line, f"the grid of {type(scheduler).__name__} cannot be read ({error})"


class NativeSeam(Seam):
    """Of a pipeline of the engine's own.

    Its network is called by methods of the pipeline, which combine the branches of guidance, or by
    itself. The outermost of these is what is skipped: with it go all branches, and what the ranks
    would have sent each other. A loop begins with set_timesteps, or with the first call: some
    pipelines set their schedulers up by hand, and some make a new one for a request.
    """

    def entrances(self, host: Any, denoisers: Sequence[nn.Module]) -> list[tuple[Any, str]]:
        return []  # they are in place for as long as the pipeline runs

    def on_run(self, host: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        if self.idle:
            return call(*args, **kwargs)
        with Hooks() as hooks:
            for module in self.find(host):
                hooks.place(module, entrance(module), self.on_denoiser)
            for name in methods_of(host):
                hooks.place(host, name, self.on_denoiser)
            return super().on_run(host, call, args, kwargs)

    def on_denoiser(self, module: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        if self.here.inside and not self.idle and (self.loop is None or self.loop.finished):
            self.begin_at_call()
        if module is self.host() and args and getattr(call, "__name__", "") in METHODS[:2]:
            args, kwargs = (), {**dict(zip(inspect.signature(call).parameters, args)), **kwargs}
        return super().on_denoiser(module, call, args, kwargs)

    def begin_at_call(self) -> None:
        host = self.host()
        if host is None or self.find_schedulers(host) is not None:
            return
        self.begin(host)
        for scheduler in self.schedulers:
            cast(Any, self.loop).add_scheduler(scheduler)

    def find_schedulers(self, host: Any) -> str | None:
        if not find_schedulers(host):
            return f"{type(host).__name__} has no scheduler that geoshrink recognises"
        return super().find_schedulers(host)

    def claims(self, host: Any, scheduler: Any) -> bool:
        return host is not None and host is self.host()

    def signature(self, args: tuple, kwargs: dict) -> Hashable:
        """With the expert that is called, and the values of its guidance."""
        return super().signature(args, kwargs), settings_in((args, kwargs))

    def variables(self, host: Any) -> dict[str, Any]:
        """With those of the request."""
        known = super().variables(host)
        for value in known.values():
            if requests := getattr(value, "requests", None):
                return {**vars(requests[0].sampling_params), **known}
        return known


def settings_in(value: Any, name: str = "") -> Hashable:
    """The networks and the guidance among the arguments of a call."""
    if isinstance(value, nn.Module):
        return id(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if any(word in name for word in SETTINGS) else None
    if isinstance(value, Mapping):
        return tuple(settings_in(part, str(key)) for key, part in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(settings_in(part, name) for part in value)
    return None
