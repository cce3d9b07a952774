"""Your own pipeline: full, direct and GeoShrink from the same noise, measured, as one page."""

from __future__ import annotations

import inspect
import json
import logging
import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import comparing
from .adapters import accelerate
from .adapters.diffusers import find_denoisers, find_schedulers
from .bench.metrics.image import psnr, ssim
from .comparing import DIRECT, FULL, GEOSHRINK, OURS, middle, png
from .page import Column, Page, Picture, Table
from .page.media import Animation, Media
from .plan import METHODS
from .report import ADVICE, Report

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
#: Arguments of a call that compare sets itself, and those that would take the steps from it.
OURS_TO_SET = ("num_inference_steps", "generator", "output_type", "return_dict")
GRIDS = ("sigmas", "timesteps")
#: Where diffusers' outputs hold what they show; the first three are video.
SHOWN = ("frames", "videos", "video", "images", "image")
CHANNELS = (1, 3, 4)
Scores = tuple[list[float], list[float]]  # PSNR and SSIM of each sample
FPS, WIDEST = 16.0, 512  # of an animation, where the call names no frame rate; pixels on the page


@dataclass(frozen=True)
class Settings:
    """`model` is a folder that diffusers saved, or a builder 'package.module:function'."""

    model: str
    prompts: tuple[str, ...] = ()
    steps: int = 50
    budgets: tuple[int, ...] = (7, 10, 15)
    guidance: float | None = None
    seed: int = 0
    height: int | None = None
    width: int | None = None
    frames: int | None = None
    dtype: str | None = None
    device: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Everything that can be refused without loading a model."""
        if not self.budgets:
            raise ValueError("no budgets: give at least one")
        for budget in self.budgets:
            if budget < 4:
                raise ValueError(f"budget {budget} is too small: at least 4 stages are queried")
            if budget >= self.steps:
                raise ValueError(f"budget {budget} is not below the {self.steps} steps")
        for what in ("budgets", "prompts"):
            object.__setattr__(self, what, tuple(dict.fromkeys(getattr(self, what))))
        if not all(prompt.strip() for prompt in self.prompts):
            raise ValueError("a prompt is empty")
        if self.dtype not in (None, *DTYPES):
            raise ValueError(f"unknown dtype {self.dtype!r}; choose one of {', '.join(DTYPES)}")
        check_device(self.device)
        for name in (*OURS_TO_SET, *GRIDS):
            if name in self.kwargs:
                raise ValueError(f"compare sets the steps and the output: leave out {name!r}")

    @property
    def name(self) -> str:
        folder = Path(self.model)
        return folder.resolve().name if folder.is_dir() else self.model

    def command(self) -> str:
        words = ["geoshrink", "compare", self.model]
        words += ["--prompts", *self.prompts] if self.prompts else []
        words += ["--steps", str(self.steps), "--budgets", *map(str, self.budgets)]
        words += ["--seed", str(self.seed)]
        for name in ("guidance", "height", "width", "frames", "dtype", "device"):
            if (value := getattr(self, name)) is not None:
                words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
        words += ["--kwargs", json.dumps(dict(self.kwargs))] if self.kwargs else []
        return shlex.join(words)


# -- what people pass in


def read_prompts(path: Path) -> list[str]:
    """One prompt a line; blank lines are left out."""
    prompts = [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    if not prompts:
        raise ValueError(f"{path} holds no prompts: write one on each line")
    return prompts


def read_kwargs(text: str) -> dict[str, Any]:
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"--kwargs is no JSON: {error}; got {text!r}") from None
    if not isinstance(kwargs, dict):
        raise ValueError(f'--kwargs must be a JSON object like {{"eta": 0.5}}, got {text!r}')
    return kwargs


def check_device(device: str | None) -> None:
    try:
        kind = torch.device(device or "cpu").type
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}: cuda, cuda:1, mps or cpu") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!r}: torch sees no CUDA device here")


def check_out(out: Path) -> None:
    """The page can be written, as far as can be told without writing."""
    if out.is_dir():
        raise ValueError(f"{out} is a folder: name the page, like {out / 'index.html'}")
    above = next(p for p in out.absolute().parents if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ValueError(f"{out} cannot be written: {above} is no folder to write to")


# -- the pipeline


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


# -- one run


class Watch:
    """Counts and times the denoisers' real calls, until it is left.

    It stands where the seam does, outside hooks, offloading and compilation, and inside the seam:
    a skipped call does not reach it.
    """

    def __init__(self, denoisers: Sequence[nn.Module], tick: Callable[[], Any]):
        self.denoisers, self.tick = denoisers, tick
        self.calls, self.seconds = 0, 0.0
        self._saved: list[tuple[nn.Module, str, Any]] = []
        self._inside = False

    def __enter__(self) -> Watch:
        for module in self.denoisers:
            compiled = getattr(module, "_compiled_call_impl", None) is not None
            name = "_compiled_call_impl" if compiled else "_call_impl"
            self._saved.append((module, name, vars(module).get(name)))
            vars(module)[name] = partial(self._call, getattr(module, name))
        return self

    def __exit__(self, *exception: object) -> None:
        for module, name, before in reversed(self._saved):
            vars(module).pop(name, None)
            if before is not None:
                vars(module)[name] = before

    def _call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._inside:  # one denoiser calls another: that is its own affair
            return call(*args, **kwargs)
        began, self._inside = now(), True
        try:
            return call(*args, **kwargs)
        finally:
            self._inside = False
            self.seconds += now() - began
            self.calls += 1
            self.tick()


def now() -> float:
    """The time when the device has done all that it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class Cost:
    """What one call took, and the report where it was accelerated."""

    seconds: float
    share: float  # of the seconds that were spent in the denoisers
    calls: int
    report: Report | None


def measure(
    pipe: Any,
    call: Mapping[str, Any],
    steps: int,
    seed: int,
    options: Mapping[str, Any] | None = None,
    tick: Callable[[], Any] = lambda: None,
) -> tuple[Any, Cost]:
    """(output, cost) of one call from the seed's noise, accelerated where there are options."""
    noise = torch.Generator().manual_seed(seed)
    own = {"num_inference_steps": steps, "generator": noise, "output_type": "np"}
    own = {name: value for name, value in own.items() if name in parameters(pipe)}
    with (
        Watch(find_denoisers(pipe), tick) as watch,  # left last: the seam stands outside it
        accelerate(pipe, **options) if options else nullcontext() as handle,
    ):
        torch.manual_seed(seed)  # some pipelines draw from the global generator
        began = now()
        output = pipe(**call, **own)
        seconds = now() - began
        report = handle.report if handle else None
    return output, Cost(seconds, watch.seconds / seconds, watch.calls, report)


# -- what it made


def shown(output: Any, kind: str) -> tuple[Tensor, bool]:
    """(float pictures in [0, 1] as (samples, frames, channels, height, width), whether video)."""
    name = next((n for n in SHOWN if getattr(output, n, None) is not None), None)
    found = floats(output if name is None else getattr(output, name))
    moving = found is not None and (found.ndim == 5 or name in SHOWN[:3])
    if found is None or found.ndim not in (4, 5):
        fields = [*output] if isinstance(output, Mapping) else [type(output).__name__]
        raise TypeError(
            f"{kind} returns {', '.join(map(str, fields))}: compare shows pictures and video only, "
            "not that yet"
        )
    if found.ndim == 4:
        found = found[None] if moving else found[:, None]
    return found.clamp(0, 1), moving


def floats(value: Any) -> Tensor | None:
    """Arrays, tensors, PIL pictures and lists of them as one tensor (…, channels, height, width).

    None where they are no pictures.
    """
    if isinstance(value, (list, tuple)):
        parts = [part for part in map(floats, value) if part is not None]
        same = len(parts) == len(value) and len({part.shape for part in parts}) == 1
        return torch.stack(parts) if same else None
    if hasattr(value, "convert") and hasattr(value, "mode"):
        mode = value.mode if value.mode in ("L", "RGB", "RGBA") else "RGB"
        pixels = np.array(value.convert(mode))
        return floats(pixels if pixels.ndim == 3 else pixels[..., None])
    last = isinstance(value, np.ndarray)
    if last:
        value = torch.from_numpy(np.ascontiguousarray(value))
    if not isinstance(value, Tensor) or value.ndim not in (3, 4, 5):
        return None
    value = value.detach().cpu()
    value = value.float() if value.is_floating_point() else value.float() / 255
    at = channels_at(value.shape, last)
    return None if at is None else value.movedim(at, -3)


def channels_at(shape: Sequence[int], last: bool) -> int | None:
    """Which dimension the channels are: NumPy has them last, torch before the pixels."""
    usual = (-1, -3) if last else (-3, -1)
    places = (*usual, -4) if len(shape) == 5 else usual
    return next((at for at in places if shape[at] in CHANNELS), None)


def score(pictures: Tensor, reference: Tensor) -> Scores:
    """PSNR and SSIM of each sample, mean over its frames."""
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    scores: Scores = [], []
    for sample, wanted in zip(pictures, reference, strict=True):
        pairs = [(a[None].to(device), b[None].to(device)) for a, b in zip(sample, wanted)]
        for metric, values in zip((psnr, ssim), scores):
            values.append(sum(float(metric(a, b)) for a, b in pairs) / len(pairs))
    return scores


def medium(sample: Tensor, moving: bool, alt: str, fps: float) -> Media:
    """A sample's frames as something the page shows."""
    from PIL import Image

    pixels = (255 * sample.nan_to_num(0)).round().byte().movedim(1, -1).numpy()
    images = [Image.fromarray(p.squeeze(-1) if p.shape[-1] == 1 else p) for p in pixels]
    if not moving:
        return Picture(png(images[0], optimize=False), alt)
    for image in images:
        image.thumbnail((WIDEST, WIDEST))
    return Animation.of(images, alt, fps)


# -- all runs


@dataclass(frozen=True)
class Outcome(comparing.Outcome):
    """One method at one budget over all prompts: means of its costs, scores of each sample."""

    share: float
    psnr: tuple[float, ...]
    ssim: tuple[float, ...]

    @classmethod
    def of(cls, method: str, budget: int, runs: Sequence[tuple[Cost, Scores]]) -> Outcome:
        costs, scores = zip(*runs)
        calls = mean([cost.calls for cost in costs])
        return cls(
            method,
            budget,
            int(calls) if calls == int(calls) else calls,
            mean([cost.seconds for cost in costs]),
            tuple(cost.report for cost in costs if cost.report is not None),
            mean([cost.share for cost in costs]),
            tuple(value for values, _ in scores for value in values),
            tuple(value for _, values in scores for value in values),
        )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class Compared:
    """The outcomes of all prompts: a table, a verdict in words, warnings, a page."""

    settings: Settings
    kind: str
    subjects: list[str]
    outcomes: list[Outcome]
    media: dict[tuple[str, str], Media]
    moving: bool

    def verdict(self) -> list[str]:
        return comparing.verdict(
            self.settings.budgets, self.outcomes, {o.label: mean(o.psnr) for o in self.outcomes}
        )

    def warnings(self) -> list[str]:
        """Runs that were not accelerated, or are not to be trusted, or did not cost the same."""
        lines = []
        for o in self.outcomes:
            doubtful = [r.self_check or 0 for r in o.reports if r.doubtful]
            extra = {why for r in o.reports if r.extra for _, why in r.reasons}
            if o.not_accelerated is not None:
                lines.append(f"{o.label} was not accelerated: {o.not_accelerated}.")
            elif extra:
                lines.append(f"{o.label} queried more than planned: {'; '.join(sorted(extra))}.")
            if doubtful:
                where = f"in {len(doubtful)} of {len(o.reports)} runs"
                lines.append(f"{o.label}: self-check {max(doubtful):.0%} {where}: {ADVICE}.")
        calls = {(o.method, o.budget): o.calls for o in self.outcomes if not o.not_accelerated}
        for budget in self.settings.budgets:
            ours, direct = calls.get((OURS, budget)), calls[DIRECT, budget]
            if ours not in (None, direct):
                lines.append(
                    f"B = {budget}: direct made {direct:g} model calls, {OURS} {ours:g}: not the "
                    "same cost."
                )
        return lines

    def table(self) -> Table:
        s, count = self.settings, len(self.subjects)
        caption = (
            f"Against the full {s.steps}-step run from the same noise (seed {s.seed}), mean over "
            f"{count} {'video' if self.moving else 'picture'}{'s' * (count > 1)}"
            f"{', frame by frame' if self.moving else ''}. Time is that of a whole call; denoiser "
            "is the part of it spent in the model, which is all that fewer model calls can save."
        )
        return comparing.results(
            self.outcomes,
            {o.label: (mean(o.psnr), mean(o.ssim)) for o in self.outcomes},
            "\n\n".join([caption, *self.verdict(), *self.warnings()]),
            s.command(),
            (Column("denoiser", "%", digits=0), {o.label: 100 * o.share for o in self.outcomes}),
        )

    def page(self) -> Page:
        s, budget = self.settings, middle(self.settings.budgets)
        stages = [r.steps for o in self.outcomes for r in o.reports]
        scores = {
            (subject, o.label): value
            for o in self.outcomes
            if o.method != FULL
            for subject, value in zip(self.subjects, o.psnr)
        }
        return Page(
            f"GeoShrink on {s.name}",
            f"{self.kind} in {s.steps} solver steps. Direct step reduction takes fewer, longer "
            "steps. GeoShrink keeps all steps and predicts the model at most of them.",
            [
                comparing.comparison(self.subjects, self.outcomes, self.media, scores, budget),
                self.table(),
                *comparing.charts(self.outcomes, budget, max(stages, default=s.steps)),
            ],
            footer="Made by `geoshrink compare`. Closeness is not quality: a picture can differ "
            "from the full run and be as good.",
        )


class Bench:
    """Runs every method on one pipeline and gathers what it made; pictures are kept encoded."""

    def __init__(self, pipe: Any, call: Mapping[str, Any], settings: Settings, bar: Any):
        self.pipe, self.call, self.settings, self.bar = pipe, call, settings, bar
        self.kind = type(pipe).__name__
        self.fps = float(call.get("frame_rate") or call.get("fps") or FPS)
        self.methods = [(FULL, settings.steps)]
        self.methods += [(m, b) for b in settings.budgets for m in (DIRECT, *GEOSHRINK)]
        self.runs: dict[tuple[str, int], list[tuple[Cost, Scores]]] = {}
        self.media: dict[tuple[str, str], Media] = {}
        self.subjects: list[str] = []
        self.moving = False
        self.rate = 1.0  # model calls a step

    def run(self) -> Compared:
        s = self.settings
        least, prompts = min(s.budgets), s.prompts or (None,)
        self.bar.total = least + len(prompts) * sum(budget for _, budget in self.methods)
        pictures, cost = self.make(prompts[0], "warm-up", least)
        score(pictures[:1, :1], pictures[:1, :1])  # what has no score says so before the rest runs
        self.rate = cost.calls / least
        self.bar.total = round(self.rate * self.bar.total)
        for prompt in prompts:
            self.run_prompt(prompt)
        outcomes = [Outcome.of(*method, self.runs[method]) for method in self.methods]
        return Compared(s, self.kind, self.subjects, outcomes, self.media, self.moving)

    def run_prompt(self, prompt: str | None) -> None:
        """The full run first: the others are scored against it at once."""
        reference, names = None, []
        for method, budget in self.methods:
            pictures, cost = self.make(prompt, method, budget)
            self.bar.total += cost.calls - round(self.rate * budget)
            if reference is None:
                reference = finite(pictures)
                names = distinct(prompt or "sample", len(reference), self.subjects)
                self.subjects += names
            label = comparing.label_of(method, budget)
            for name, sample in zip(names, pictures, strict=True):
                alt = f"{name}, {label}"
                self.media[name, label] = medium(sample, self.moving, alt, self.fps)
            scored = cost, score(pictures, reference)
            self.runs.setdefault((method, budget), []).append(scored)

    def make(self, prompt: str | None, method: str, budget: int) -> tuple[Tensor, Cost]:
        self.bar.set_description(method)
        call = self.call if prompt is None else {**self.call, "prompt": prompt}
        steps, options = budget, None
        if method in GEOSHRINK:
            steps = self.settings.steps
            options = {"budget": budget, **METHODS[GEOSHRINK[method]]}
        seed, tick = self.settings.seed, self.bar.update
        output, cost = measure(self.pipe, call, steps, seed, options, tick)
        pictures, self.moving = shown(output, self.kind)
        return pictures, cost


def finite(pictures: Tensor) -> Tensor:
    if not pictures.isfinite().all():
        raise ValueError("the full run's pictures are not finite numbers: try another --dtype")
    return pictures


def distinct(prompt: str, count: int, taken: Sequence[str]) -> list[str]:
    """A short name for each sample of a prompt that no other bears."""
    line = " ".join(prompt.split())
    short = line if len(line) <= 80 else f"{line[:79]}…"
    names = [f"{short} ({i + 1})" if count > 1 else short for i in range(count)]
    clash = any(name in taken for name in names)
    return [f"{name} [{len(taken) + i + 1}]" if clash else name for i, name in enumerate(names)]


def run_compare(settings: Settings, out: Path, progress: bool = True) -> Compared:
    """Runs everything, prints the table, the verdict and the warnings, writes the page."""
    check_out(out)
    tqdm = comparing.progress_bar("comparison")
    pipe, call = load(settings)
    with quiet(pipe), tqdm(total=1, unit="call", disable=not progress) as bar:
        compared = Bench(pipe, call, settings, bar).run()
    print(compared.table().text())
    print(f"pictures, slider and charts: {compared.page().write(out)}")
    return compared
