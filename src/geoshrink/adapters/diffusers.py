"""Any diffusers pipeline that steps a scheduler, without importing diffusers.

A scheduler is planned in its own σ. One that has none is planned in τ = σ/(α + σ), the flow time
with the same ratio of noise to signal, or in its timesteps.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from ..grid import Grid
from ..plan import Plan
from .handle import Handle
from .seam import Reader, Seam

DEFAULT_SPEEDUP = 3.0
OPTIONS = ("budget", "speedup", "plan", "anchors", "rule", "space", "blocks", "coefficients")
FEW_STEPS = 5
#: Samplers that are no ODE solvers, or need every one of their few steps.
NOT_SOLVERS = (
    "Amused", "BlockRefinement", "CMStochastic", "DDPMWuerstchen", "FlowMatchLCM", "HeliosDMD",
    "LCM", "SCM", "TCD", "UnCLIP", "VQDiffusion",
)  # fmt: skip
#: Pipelines that look into the denoiser, or do more with its outputs than give them to step.
INTRUSIVE = (
    "CycleDiffusion", "LEdits", "RFD4Proteina", "SemanticStableDiffusion",
    "StableDiffusionAttendAndExcite", "StableDiffusionPipelineSafe", "StableDiffusionPix2PixZero",
    "StableDiffusionSAG",
)  # fmt: skip
#: Pipelines that swap the scheduler's state under our hands, or go through its steps twice.
REFUSED = ("StableDiffusionPanorama", "TextToVideoZero")
#: Solvers in σ whose x is x₀ + σ·ε.
EXPLODING = ("Euler", "Heun", "KDPM2", "LMS")
PREDICTIONS = {"v_prediction": "v", "sample": "sample"}
#: Components that belong to a pipeline but are no part of its denoising loop.
NOT_DENOISERS = (
    "connector", "image_encoder", "movq", "projection", "safety", "text", "vae", "vocoder", "vqgan",
)  # fmt: skip


def knows(host: Any) -> bool:
    return bool(find_schedulers(host))


def attach(
    host: Any,
    budget: int | None = None,
    *,
    scheduler: Any = None,
    denoisers: Sequence[str | nn.Module] | None = None,
    **options: Any,
) -> Handle:
    if type(host).__name__.startswith(REFUSED):
        raise TypeError(
            f"{type(host).__name__} cannot be accelerated: it swaps its scheduler's state between "
            "steps; use it without geoshrink"
        )
    schedulers = find_schedulers(host) if scheduler is None else [scheduler]
    modules = find_denoisers(host) if denoisers is None else named(host, denoisers)
    if not modules:
        raise ValueError(
            f"{type(host).__name__} has a scheduler but no denoiser that geoshrink recognises; "
            f"name it: accelerate(pipe, denoisers=['transformer']). It has {sorted(parts(host))}"
        )
    reader = cast(Reader, sys.modules[__name__])
    options = check_options(budget, options)
    find = find_denoisers if denoisers is None else partial(named, denoisers=denoisers)
    seam = Seam(host, schedulers, modules, reader, options, find)
    seam.attach()
    return Handle(seam.reports, seam.remove)


def check_options(budget: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options of every run to come, tried on a grid of 50 steps so that errors come at once."""
    if "plan" in options:
        if budget is not None or len(options) > 1:
            raise ValueError("a plan decides everything: leave out the other options")
        return options
    if budget is not None:
        options = {**options, "budget": budget}
    if not {"budget", "speedup"} & set(options) and not isinstance(
        options.get("anchors"), (tuple, list)
    ):
        options = {**options, "speedup": DEFAULT_SPEEDUP}
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise TypeError(
            f"unknown option {min(unknown)!r}; the options are {', '.join(OPTIONS)} (the grid is "
            "the pipeline's own)"
        )
    Plan.of(trial_grid(options), **options)
    return options


def trial_grid(options: dict[str, Any]) -> list[float]:
    """A grid that is long enough for the options, to try them on."""
    anchors, coefficients = options.get("anchors"), options.get("coefficients")
    steps = 50
    if coefficients is not None:
        steps = len(coefficients)
    elif isinstance(anchors, (tuple, list)) and anchors:
        steps = max(steps, int(anchors[-1]) + 1)
    return [1 - i / steps for i in range(steps + 1)]


def parts(host: Any) -> dict[str, Any]:
    """A host's components by name."""
    components = getattr(host, "components", None)
    own = dict(getattr(host, "__dict__", {}))
    return {**own, **components} if isinstance(components, Mapping) else own


def find_schedulers(host: Any) -> list[Any]:
    return list(named_schedulers(host).values())


def named_schedulers(host: Any) -> dict[str, Any]:
    """A host's schedulers by the names of its components; one with two names counts once."""
    found: dict[str, Any] = {}
    for name, part in parts(host).items():
        steps = hasattr(part, "set_timesteps") and hasattr(part, "step")
        if steps and all(part is not other for other in found.values()):
            found[name] = part
    return found


def find_denoisers(host: Any) -> list[nn.Module]:
    found = []
    for name, module in parts(host).items():
        plain = getattr(module, "_orig_mod", module)
        homes = [kind.__module__ for kind in type(plain).__mro__]
        foreign = not any(home.startswith("diffusers.") for home in homes)
        if not isinstance(module, nn.Module) or foreign:
            continue
        encoder = any("autoencoder" in home for home in homes)
        if not encoder and not any(word in name for word in NOT_DENOISERS):
            found.append(module)
    return found


def named(host: Any, denoisers: Sequence[str | nn.Module]) -> list[nn.Module]:
    known, found = parts(host), []
    for item in denoisers:
        module = known.get(item) if isinstance(item, str) else item
        if not isinstance(module, nn.Module):
            raise ValueError(
                f"{type(host).__name__} has no module {item!r}; it has {sorted(known)}"
            )
        found.append(module)
    return found


def grid_of(scheduler: Any, host: Any, order: int, timestep: Any) -> tuple[Grid, str | None]:
    """(grid of the loop whose first step was just made, why it must run exactly or None)."""
    name = type(scheduler).__name__
    start, timesteps = first_index(scheduler, timestep), len(scheduler.timesteps)
    rounds = timesteps - start
    counted = getattr(host, "_num_timesteps", None)
    if isinstance(counted, int) and 0 < counted < rounds:
        rounds = counted
    stages = (rounds + order - 1) // order
    times, flow = coordinate(scheduler)
    points = times[start : start + rounds + 1]
    if order > 1:
        points = [points[0], *points[1::order]]
    reason = None
    if name.startswith(NOT_SOLVERS):
        reason = f"{name} is no ODE solver"
    elif type(host).__name__.startswith(INTRUSIVE):
        reason = f"{type(host).__name__} looks into the denoiser or its outputs"
    elif stages <= FEW_STEPS:
        reason = f"{stages} stages leave nothing to skip"
    try:
        if len(points) != stages + 1:
            raise ValueError(f"{len(points)} σ for {stages} stages")
        prediction = "flow" if flow else PREDICTIONS.get(said(scheduler), "epsilon")
        grid = Grid.of(points, prediction=prediction, alphas=None if flow else "ve")
        return grid, reason
    except ValueError as error:
        line = [float(stages - i) for i in range(stages + 1)]
        return Grid.of(line), reason or f"the grid of {name} cannot be read ({error})"


def first_index(scheduler: Any, timestep: Any) -> int:
    """The index of the step that was just made."""
    index = getattr(scheduler, "_step_index", None)
    if isinstance(index, int):
        return max(0, index - 1)
    times = torch.as_tensor(scheduler.timesteps).double().cpu()
    if timestep is None:
        return 0
    time = torch.as_tensor(timestep).double().cpu().flatten()[:1]
    found = (times == time).nonzero()
    return int(found[0]) if len(found) else 0


def said(scheduler: Any) -> str:
    """What a scheduler's config says of the model's outputs."""
    return getattr(scheduler, "config", {}).get("prediction_type", "")


def knows_data(scheduler: Any) -> bool:
    """Whether the data are known from x and the output of a stage of this scheduler."""
    name = type(scheduler).__name__
    if hasattr(scheduler, "sigmas") and coordinate(scheduler)[1]:
        return not name.startswith("MiniMaxH3")  # whose velocity points from noise to data
    return name.startswith(EXPLODING)


def coordinate(scheduler: Any) -> tuple[list[float], bool]:
    """(time at every timestep and at the end, whether it is a flow's σ)."""
    flow = (
        type(scheduler).__name__.startswith(("FlowMatch", "MiniMaxH3"))
        or said(scheduler) == "flow_prediction"
        or bool(getattr(scheduler, "config", {}).get("use_flow_sigmas"))
    )
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is not None and len(sigmas) == len(scheduler.timesteps) + 1:
        return torch.as_tensor(sigmas).double().tolist(), flow
    times = torch.as_tensor(scheduler.timesteps).double()
    products = getattr(scheduler, "alphas_cumprod", None)
    if products is not None and times.max() < len(products):
        kept = products.double()[times.long().cpu()]
        noise = (1 - kept).sqrt()
        return [*(noise / (kept.sqrt() + noise)).tolist(), 0.0], True
    return [*times.tolist(), 0.0], True
