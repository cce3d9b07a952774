"""Any diffusers pipeline that steps a scheduler, without importing diffusers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from ..blocks import Blocks
from ..grid import Grid
from .facts import facts_of
from .handle import Handle
from .host import Host
from .options import check_options
from .scheduling import check_step, read_grid
from .seam import Reader, Seam
from .stack import variables_of
from .stages import switches

#: Pipelines that look into the denoiser, or do more with its outputs than give them to step.
INTRUSIVE = (
    "CycleDiffusion", "LEdits", "RFD4Proteina", "SemanticStableDiffusion",
    "StableDiffusionAttendAndExcite", "StableDiffusionPipelineSafe", "StableDiffusionPix2PixZero",
    "StableDiffusionSAG",
)  # fmt: skip
#: Pipelines that swap the scheduler's state under our hands, or go through its steps twice.
REFUSED = ("StableDiffusionPanorama", "TextToVideoZero")
#: Schedulers that step the packed rows of one sample: no batch axis, one angle over all rows.
PACKED = ("MiniMaxH3",)
#: Components that belong to a pipeline but are no part of its denoising loop.
NOT_DENOISERS = (
    "adapter", "audio_token", "condition_encoder", "connector", "embed", "image_encoder", "movq",
    "normalizer", "projection", "safety", "text", "vae", "vocoder", "vqgan",
)  # fmt: skip
method = "__call__"  # that loops


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
    for found in schedulers if scheduler is None else ():
        check_step(found)
    modules = find_denoisers(host) if denoisers is None else named(host, denoisers)
    if not modules:
        raise ValueError(
            f"{type(host).__name__} has a scheduler but no denoiser that geoshrink recognises; "
            f"name it: accelerate(pipe, denoisers=['transformer']). It has {sorted(parts(host))}"
        )
    reader = cast(Reader, sys.modules[__name__])
    known = [facts_of(host, found, modules) for found in schedulers]
    options = check_options(budget, options, schedulers, known)
    find = find_denoisers if denoisers is None else partial(named, denoisers=denoisers)
    seam = Seam(host, schedulers, modules, reader, options, find)
    seam.attach()
    told = seam.host, options.get("learn"), lambda: seam.plan
    return Handle(seam.reports, seam.remove, modules, *told)


def parts(host: Any) -> dict[str, Any]:
    """A host's components by name."""
    components = getattr(host, "components", None)
    own = dict(getattr(host, "__dict__", {}))
    return {**own, **components} if isinstance(components, Mapping) else own


def is_host(candidate: Any) -> bool:
    return not isinstance(candidate, nn.Module) and bool(find_schedulers(candidate))


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
    if isinstance(denoisers, str) or not isinstance(denoisers, Sequence):
        raise TypeError(f"denoisers are a list of modules or names, got {denoisers!r}")
    known, found = parts(host), []
    for item in denoisers:
        module = known.get(item) if isinstance(item, str) else item
        if not isinstance(module, nn.Module):
            raise ValueError(
                f"{type(host).__name__} has no module {item!r}; it has {sorted(known)}"
            )
        found.append(module)
    return found


def blocks_of(scheduler: Any) -> Blocks | None:
    """What shares a coefficient in the outputs that this scheduler steps; None: each sample."""
    return Blocks(dims=()) if type(scheduler).__name__.startswith(PACKED) else None


def grid_of(scheduler: Any, host: Any, order: int, timestep: Any) -> tuple[Grid, str | None]:
    """(grid of the loop whose first step was just made, why it must run exactly or None)."""
    name, reason = type(host).__name__, None
    if name.startswith(INTRUSIVE):
        reason = f"{name} looks into the denoiser or its outputs"
    counted, regimes = getattr(host, "_num_timesteps", None), guidance_switches(host, scheduler)
    return read_grid(scheduler, order, timestep, counted=counted, reason=reason, regimes=regimes)


def guidance_switches(host: Any, scheduler: Any) -> list[int]:
    """The timesteps, by index, at which the guidance interval of ACE-Step 1.5 begins and ends.

    Its loop guides where start ≤ 1 − t ≤ end, both variables of its __call__. Other switches are
    seen in the denoiser's calls when they happen, and cost a query each.
    """
    known = variables_of(host)
    start, end = (known.get(f"cfg_interval_{which}") for which in ("start", "end"))
    if not known.get("do_cfg") or start is None or end is None:
        return []
    return switches([start <= 1.0 - t <= end for t in scheduler.timesteps.tolist()])


def load(folder: Path, device: str, dtype: torch.dtype) -> Any:
    try:
        diffusers: Any = import_module("diffusers")
    except ModuleNotFoundError as error:
        how = "pip install 'geoshrink[diffusers]'"
        raise ImportError(f"a model folder needs {error.name}: {how}") from None
    named = "torch_dtype" if diffusers.__version__.startswith("0.") else "dtype"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # late 0.x knows both names, early one
        options = {"local_files_only": True, named: dtype}
        pipe = diffusers.DiffusionPipeline.from_pretrained(str(folder), **options)
    return pipe.to(device)


HOST = Host("diffusers", knows, attach, load=load, files=("model_index.json",))
