"""The host to compare: from a folder that diffusers saved, from a builder, or as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..hosts import Host, accelerate, diffusers, host_of
from ..hosts.host import arguments_of
from ..hosts.registry import known
from .inputs import DTYPES, GRIDS, Settings
from .kinds import Made, kind_of
from .pictures import FPS
from .showing import shown

Call = Mapping[str, Any] | Callable[..., Any]


@dataclass(frozen=True)
class Loaded:
    """A host that can be called and accelerated.

    way        how it is called and shown
    call       the arguments of every call, besides the prompt and what compare sets
    denoisers  the networks whose calls are saved; none where its own loop counts them
    """

    host: Any
    way: Host
    call: Mapping[str, Any]
    denoisers: tuple[nn.Module, ...]

    @property
    def kind(self) -> str:
        return type(self.host).__name__

    @property
    def fps(self) -> float:
        return float(self.call.get("frame_rate") or self.call.get("fps") or FPS)

    def __call__(self, prompt: str | None, steps: int, seed: int) -> Any:
        prompts = {} if prompt is None else {self.way.prompt_of(self.host): prompt}
        assert self.way.call is not None
        return self.way.call(self.host, {**self.call, **prompts}, steps, seed)

    def show(self, output: Any) -> Made:
        """What a call returned, as samples of some kind."""
        if self.way.show is None or isinstance(output, Made):
            return shown(output, self.kind, self.host, self.fps)
        name, given = self.way.show(self.host, output)
        return kind_of(name)(**given)


def load(settings: Settings) -> Loaded:
    """What a folder or a builder holds, checked."""
    return loaded(*opened(settings), settings)


def opened(settings: Settings) -> tuple[Any, Call]:
    """The host that a folder or a builder holds, and what it is called with."""
    folder = Path(settings.model)
    if folder.is_dir():
        return from_folder(folder, settings), {}
    if ":" in settings.model:
        return from_builder(settings)
    raise ValueError(
        f"no folder {settings.model!r} here, and a builder is 'package.module:function'; "
        "nothing is downloaded"
    )


def loaded(host: Any, call: Call, settings: Settings) -> Loaded:
    """`call` is a dict of arguments, or a function of steps, and optionally of prompt and seed."""
    handle = accelerate(host, min(settings.budgets))  # what cannot be accelerated says so now
    handle.remove()
    way = host_of(host) or diffusers.HOST
    if not isinstance(call, Mapping):
        way, call = by_function(call, host, way), {}
    return Loaded(host, way, arguments(host, way, call, settings), handle.denoisers)


def by_function(function: Callable[..., Any], host: Any, way: Host) -> Host:
    """Called by a function of the user's: of prompt, steps and seed it gets what it takes."""
    takes = arguments_of(host, function)
    if "steps" not in takes:
        raise TypeError(
            f"the function that calls {type(host).__name__} takes ({', '.join(sorted(takes))}): it "
            "must take steps, and may take prompt and seed"
        )

    def run(host: Any, call: dict[str, Any], steps: int, seed: int) -> Any:
        own = {"steps": steps, "seed": seed}
        return function(**call, **{name: own[name] for name in own if name in takes})

    own = dict(method=function, prompt=("prompt",), sets=("steps", "seed"))
    return replace(way, call=run, show=None, **own)


def from_folder(folder: Path, settings: Settings) -> Any:
    """What the first kind of hosts loads that finds its files there."""
    kinds = [kind for kind in known() if kind.load is not None]
    for kind in kinds:
        if kind.load and all((folder / name).exists() for name in kind.files):
            device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
            dtype = settings.dtype or ("bf16" if device.startswith("cuda") else "fp32")
            return kind.load(folder, device, DTYPES[dtype])
    wanted = [f"no {', '.join(kind.files)}: it is not a {kind.name} pipeline" for kind in kinds]
    raise ValueError(f"{folder} holds {'; '.join(wanted)}")


def from_builder(settings: Settings) -> tuple[Any, Call]:
    """Device and dtype stay as the builder chose them unless they are given."""
    module, _, name = settings.model.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
    try:
        build = getattr(import_module(module), name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ImportError(f"the builder {settings.model!r} cannot be imported: {reason}") from error
    if not callable(build):
        raise TypeError(f"the builder {settings.model!r} is a {type(build).__name__}: no function")
    host: Any = build()
    built, call = host, {}
    if isinstance(built, tuple) and len(built) == 2:
        host, call = built
    if not (hasattr(host, "__dict__") and (isinstance(call, Mapping) or callable(call))):
        raise TypeError(
            f"the builder {settings.model!r} returned a {type(built).__name__}: it must return a "
            "pipeline, or a pipeline and a dict of its call's arguments or a function that calls it"
        )
    for given in (settings.device, DTYPES[settings.dtype] if settings.dtype else None):
        if given is None:
            continue
        if not hasattr(host, "to"):
            raise ValueError(
                f"{type(host).__name__} has no to(): let the builder move it, not {given}"
            )
        moved = host.to(given)
        host = host if moved is None else moved
    return host, call


def arguments(host: Any, way: Host, call: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """What every call is given besides the prompt and what compare sets; strange names refused."""
    kind, prompt = type(host).__name__, way.prompt_of(host)
    if not way.can_call(host):
        raise ValueError(
            f"compare cannot set the steps of {kind}: let a builder return it with a function of "
            "prompt, steps and seed"
        )
    takes = way.takes(host)
    if grids := [name for name in GRIDS if call.get(name) is not None]:
        raise ValueError(f"the builder gives {grids[0]!r}: compare must set the steps itself")
    frames = next((name for name in ("num_frames", "video_length") if name in takes), "num_frames")
    flags = dict(guidance_scale=settings.guidance, height=settings.height, width=settings.width)
    flags = {**flags, frames: settings.frames}
    given = {**settings.kwargs, **{k: v for k, v in flags.items() if v is not None}}
    for name in (*given, *[prompt] * bool(settings.prompts)):
        if name not in takes:
            raise ValueError(f"{kind} takes no {name!r} in its call")
    if taken := [name for name in given if name in way.sets]:
        raise ValueError(f"compare sets the steps and the output: leave out {taken[0]!r}")
    call = {**{name: call[name] for name in call if name not in way.sets}, **given}
    if settings.prompts and "prompt_embeds" in call:
        raise ValueError("the call has its prompt_embeds already: leave out the prompts")
    if prompt in takes and not (settings.prompts or {prompt, "prompt_embeds"} & {*call}):
        raise ValueError(f"{kind} needs prompts: give --prompts or --prompts-file")
    return call
