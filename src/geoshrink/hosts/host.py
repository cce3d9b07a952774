"""Host: all that geoshrink knows of one kind of hosts. Each is one file of this folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .handle import Handle

STEPS = "num_inference_steps"
#: Where outputs hold what they show; the first three are video.
SEEN = ("frames", "videos", "video", "images", "image")
HEARD = ("audios", "audio")
RATES = ("sampling_rate", "sample_rate", "output_sampling_rate")


def call_pipeline(host: Any, arguments: dict[str, Any], steps: int, seed: int) -> Any:
    """One run of a diffusers pipeline, or of a host that is called like one."""
    takes = arguments_of(host)
    own = {STEPS: steps, "generator": torch.Generator().manual_seed(seed), "output_type": "np"}
    own = {name: value for name, value in own.items() if name in takes}
    blocks: Any = getattr(host, "blocks", None)
    if hasattr(blocks, "outputs"):  # a modular pipeline: it returns what is asked for
        names = [found.name for found in blocks.outputs]
        own["output"] = [name for name in names if name in (*SEEN, *HEARD, *RATES)] or names
    return host(**arguments, **own)


def arguments_of(host: Any, method: str | Callable[..., Any] = "__call__") -> set[str]:
    """The names of the arguments of a host's method, or of a function; none if it is missing."""
    blocks: Any = getattr(host, "blocks", None)
    if method == "__call__" and hasattr(blocks, "input_names"):  # a modular pipeline
        return {*blocks.input_names}
    function = getattr(host, method, None) if isinstance(method, str) else method
    return {*inspect.signature(function).parameters} if callable(function) else set()


@dataclass(frozen=True)
class Host:
    """A kind of hosts: how one is recognised, accelerated, called, loaded and shown.

    name     of this kind
    knows    knows(host) says whether an object is of this kind
    attach   attach(host, budget=…, **options) hooks into it and returns a Handle
    call     call(host, arguments, steps, seed) makes one run and returns its output; None: compare
             needs a function that calls it
    show     show(host, output) returns the name of a kind of samples (see register_kind) and its
             arguments; None: compare recognises the output by its fields
    load     load(folder, device, dtype) returns the host that was saved in a folder
    files    names in such a folder, by which it is recognised
    method   the method that call() calls, by name, or a function: its arguments may be given
    prompt   the arguments that a prompt can be; the first that the method takes
    sets     arguments that only call() may set
    beyond   direct step reduction needs so many steps more to call the model B times
    idle     so many model calls of a plain run change nothing
    """

    name: str
    knows: Callable[[Any], bool]
    attach: Callable[..., Handle]
    call: Callable[[Any, dict[str, Any], int, int], Any] | None = call_pipeline
    show: Callable[[Any, Any], tuple[str, dict[str, Any]]] | None = None
    load: Callable[[Path, str, torch.dtype], Any] | None = None
    files: tuple[str, ...] = ()
    method: str | Callable[..., Any] = "__call__"
    prompt: tuple[str, ...] = ("prompt",)
    sets: tuple[str, ...] = (STEPS, "generator", "output_type", "return_dict")
    beyond: int = 0
    idle: int = 0

    def __post_init__(self) -> None:
        for name in ("knows", "attach"):
            if not callable(function := getattr(self, name)):
                raise TypeError(f"{name} must be a function of the host, got {function!r}")

    def takes(self, host: Any) -> set[str]:
        """The arguments of a call."""
        return arguments_of(host, self.method)

    def can_call(self, host: Any) -> bool:
        """Whether call() can run this object and set its steps."""
        takes = self.takes(host)
        return bool(takes) and (STEPS in takes if self.call is call_pipeline else bool(self.call))

    def prompt_of(self, host: Any) -> str:
        takes = self.takes(host)
        return next((name for name in self.prompt if name in takes), self.prompt[0])


def is_a(host: Any, *names: str) -> bool:
    """Whether an object's class, or one that it is derived from, has one of these names."""
    return any(kind.__name__ in names for kind in type(host).__mro__)
