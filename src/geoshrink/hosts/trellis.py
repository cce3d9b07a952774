"""TRELLIS and TRELLIS.2: their flow samplers, which guide within an interval of t.

The output that the Euler step receives is made by the sampler's _inference_model, after guidance.
Its grid and its interval are arguments of sample(), so the regimes are known before the first
call. A sparse output is kept sample by sample, along its layout.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..grid import Grid
from ..learning.fingerprint import modules_in
from ..report import Report
from .handle import KEPT, Handle, announced
from .hooks import Hooks, lift_all
from .host import Host, arguments_of, is_a
from .options import check_options, plan_of
from .seats import seat_of, words_of
from .signatures import check_method, named
from .stages import Stages, switches

SAMPLE = ("model", "noise", "steps", "rescale_t")
INFERENCE = ("model", "x_t", "t")
#: The interval of t with guidance → its strength, and the strength that guides nothing.
INTERVALS = {"cfg_interval": ("cfg_strength", 0), "guidance_interval": ("guidance_strength", 1)}
STAGES = ("slat", "sparse_structure", "all")


def knows(host: Any) -> bool:
    ours = any(kind.__name__.startswith("Trellis") for kind in type(host).__mro__)
    return ours or is_a(host, "FlowEulerSampler")


def attach(host: Any, budget: int | None = None, *, stage: str = "slat", **options: Any) -> Handle:
    """`stage` of a pipeline: "slat" (the structured latents), "sparse_structure" or "all"."""
    options = check_options(budget, options)
    samplers = [host] if is_a(host, "FlowEulerSampler") else samplers_of(host, stage)
    for sampler in samplers:
        check_method(sampler, "sample", SAMPLE)
        check_method(sampler, "_inference_model", INFERENCE)
    reports: deque[Report] = deque(maxlen=KEPT)
    hooks = Hooks()
    for sampler in samplers:
        lift_all(sampler, "sample")
        ours = Sampler(options, reports)
        hooks.place(sampler, "sample", named(sampler.sample, ours.on_sample))
        inference = named(sampler._inference_model, ours.on_inference)
        hooks.place(sampler, "_inference_model", inference)
    return Handle(lambda: list(reports), hooks.lift, learning=options.get("learn"))


def samplers_of(pipeline: Any, stage: str) -> list[Any]:
    """The pipeline's samplers of a stage, each once."""
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}; choose one of {', '.join(STAGES)}")
    ending = "_sampler" if stage == "all" else f"{stage}_sampler"
    parts = {name: part for name, part in vars(pipeline).items() if name.endswith("_sampler")}
    found = {id(part): part for name, part in parts.items() if name.endswith(ending) and part}
    if not found:
        raise TypeError(
            f"{type(pipeline).__name__} cannot be accelerated: expected an attribute "
            f"…{ending}, found {', '.join(parts) or 'no sampler'}; accelerate its sampler itself"
        )
    return list(found.values())


class Here(threading.local):
    stages: Stages | None = None


class Sampler:
    """One sampler under our hooks, and the run that each thread is in."""

    def __init__(self, options: dict[str, Any], reports: deque[Report]):
        self.options, self.reports, self.here = options, reports, Here()

    def on_sample(self, original: Callable, given: dict, args: tuple, kwargs: dict) -> Any:
        times = rescaled(given["steps"], given["rescale_t"])
        grid = Grid.of(times, data=0.0, regimes=switches(guided(given, times[:-1])))
        plan, note = plan_of(grid, self.options)
        learn = seat_of(self.options, modules_in(given["model"]), words_of(given))
        stages = Stages(plan, times, note, counts=True, solver="euler", learn=learn)
        outer = self.here.stages
        try:
            self.here.stages = stages
            result = original(*args, **kwargs)
        finally:
            self.here.stages = outer
        self.reports.append(announced(stages.report))
        return result

    def on_inference(self, original: Callable, given: dict, args: tuple, kwargs: dict) -> Any:
        stages, x = self.here.stages, given["x_t"]
        if stages is None:  # not in a loop of sample()
            return original(*args, **kwargs)
        model = Counted(given["model"], stages)
        if args:
            args = (model, *args[1:])
        else:
            kwargs = {**kwargs, "model": model}
        return stages(
            given["t"],
            lambda: original(*args, **kwargs),
            parts(x),
            parts,
            lambda predicted: joined(predicted, x),
        )


class Counted:
    """A network that counts its calls; anything else of it is its own."""

    def __init__(self, model: Any, stages: Stages):
        self._model, self._stages = model, stages

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._stages.forwards += 1
        return self._model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def rescaled(steps: int, r: float) -> list[float]:
    """t = r·u/(1 + (r − 1)·u), u from 1 to 0."""
    u = np.linspace(1, 0, steps + 1)
    return (r * u / (1 + (r - 1) * u)).tolist()


def guided(given: dict[str, Any], times: list[float]) -> list[bool]:
    """Whether guidance acts at each of the times."""
    for name, (strength, nothing) in INTERVALS.items():
        interval = given.get(name)
        if interval is not None and given.get(strength) != nothing:
            return [interval[0] <= t <= interval[1] for t in times]
    return [False] * len(times)


def parts(x: Any) -> Any:
    """A dense tensor; of a sparse one its features, sample by sample, each with an axis before."""
    if isinstance(x, Tensor):
        return x
    return [x.feats[rows][None] for rows in x.layout]


def joined(predicted: Any, x: Any) -> Any:
    """The way back: a tensor, or a sparse one with the coordinates of x."""
    if isinstance(predicted, Tensor):
        return predicted
    return x.replace(torch.cat([part[0] for part in predicted]))


def call(host: Any, arguments: dict[str, Any], steps: int, seed: int) -> Any:
    """The steps are those of the structured latents, which is the stage that is accelerated."""
    takes = arguments_of(host, "run")
    stages = [name for name in takes if name.endswith("slat_sampler_params")]
    own: dict[str, Any] = {name: {**arguments.get(name, {}), "steps": steps} for name in stages}
    if "formats" in takes:
        own["formats"] = arguments.get("formats", ["mesh"])
    if isinstance(path := arguments.get("image"), str):
        from PIL import Image

        own["image"] = Image.open(path)
    return host.run(seed=seed, **{**arguments, **own})


def show(host: Any, output: Any) -> tuple[str, dict[str, Any]]:
    meshes = output["mesh"] if isinstance(output, Mapping) else output
    return "Meshes", {"meshes": meshes, "up": 2}


PROMPT, SETS = ("prompt", "image"), ("seed", "formats", "return_latent")
HOST = Host("TRELLIS", knows, attach, call, show, method="run", prompt=PROMPT, sets=SETS)
