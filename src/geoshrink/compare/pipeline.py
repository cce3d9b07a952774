"""The pipeline to compare: from a folder that diffusers saved, or from a builder."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ..adapters import accelerate
from ..adapters.diffusers import find_schedulers
from .inputs import DTYPES, GRIDS, OURS_TO_SET, Settings


def load(settings: Settings) -> tuple[Any, dict[str, Any]]:
    """(pipeline, arguments of a call) of a folder or a builder, checked."""
    folder, call = Path(settings.model), {}
    if folder.is_dir():
        pipe = from_folder(folder, settings)
    elif ":" in settings.model:
        pipe, call = from_builder(settings)
    else:
        raise ValueError(
            f"no folder {settings.model!r} here, and a builder is 'package.module:function'; "
            "compare downloads nothing"
        )
    accelerate(pipe, min(settings.budgets)).remove()  # what cannot be accelerated says so now
    return pipe, arguments(pipe, call, settings)


def from_folder(folder: Path, settings: Settings) -> Any:
    if not (folder / "model_index.json").is_file():
        raise ValueError(f"{folder} holds no model_index.json: it is no diffusers pipeline")
    try:
        diffusers: Any = import_module("diffusers")
    except ModuleNotFoundError as error:
        raise ImportError(f"a model folder needs {error.name}: pip install diffusers") from None
    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = settings.dtype or ("bf16" if device.startswith("cuda") else "fp32")
    named = "torch_dtype" if diffusers.__version__.startswith("0.") else "dtype"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # late 0.x knows both names, early one
        options = {"local_files_only": True, named: DTYPES[dtype]}
        pipe = diffusers.DiffusionPipeline.from_pretrained(str(folder), **options)
    return pipe.to(device)


def from_builder(settings: Settings) -> tuple[Any, dict[str, Any]]:
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
    built: Any = build()
    pipe: Any = built
    call: Any = {}
    if isinstance(built, tuple) and len(built) == 2:
        pipe, call = built
    if not (is_pipeline(pipe) and isinstance(call, Mapping)):
        raise TypeError(
            f"the builder {settings.model!r} returned a {type(built).__name__}: it must return a "
            "pipeline, or a pipeline and a dict of its call's arguments"
        )
    if settings.device is not None:
        pipe = pipe.to(settings.device)
    if settings.dtype is not None:
        pipe = pipe.to(DTYPES[settings.dtype])
    return pipe, {name: call[name] for name in call if name not in OURS_TO_SET}


def is_pipeline(found: Any) -> bool:
    return callable(found) and hasattr(found, "__dict__") and bool(find_schedulers(found))


def arguments(pipe: Any, call: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """What every call is given besides the prompt and what compare sets; strange names refused."""
    kind, takes = type(pipe).__name__, parameters(pipe)
    if "num_inference_steps" not in takes:
        raise ValueError(f"{kind} takes no num_inference_steps: compare cannot reduce its steps")
    if grids := [name for name in GRIDS if call.get(name) is not None]:
        raise ValueError(f"the builder gives {grids[0]!r}: compare must set the steps itself")
    frames = next((name for name in ("num_frames", "video_length") if name in takes), "num_frames")
    flags = dict(guidance_scale=settings.guidance, height=settings.height, width=settings.width)
    flags = {**flags, frames: settings.frames}
    given = {**settings.kwargs, **{k: v for k, v in flags.items() if v is not None}}
    for name in (*given, *["prompt"] * bool(settings.prompts)):
        if name not in takes:
            raise ValueError(f"{kind} takes no {name!r} in its call")
    call = {**call, **given}
    if settings.prompts and "prompt_embeds" in call:
        raise ValueError("the call has its prompt_embeds already: leave out the prompts")
    if "prompt" in takes and not (settings.prompts or {"prompt", "prompt_embeds"} & {*call}):
        raise ValueError(f"{kind} needs prompts: give --prompts or --prompts-file")
    return call


def parameters(pipe: Any) -> set[str]:
    return {*inspect.signature(pipe.__call__).parameters}


@contextmanager
def quiet(pipe: Any) -> Iterator[None]:
    """No bar of the pipeline's and no line of ours while compare's own bar stands."""
    logger, name = logging.getLogger("geoshrink"), "_progress_bar_config"
    level, before = logger.level, vars(pipe).get(name)
    logger.setLevel(logging.ERROR)
    vars(pipe)[name] = {**(before or {}), "disable": True}
    try:
        yield
    finally:
        logger.setLevel(level)
        vars(pipe).pop(name)
        if before is not None:
            vars(pipe)[name] = before
