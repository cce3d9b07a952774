"""Stand-ins for what the pack needs of ComfyUI: wrappers, a guider, a model, samplers.

Written for these tests, after what ComfyUI's interfaces promise; nothing is copied from it. The
pack is imported as `comfyui` without running its __init__.py, which wants a server:

    from support.fakes import Guider, Model, pack
    seam = pack("seam")
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[3]
PACK = Path(os.environ.get("GEOSHRINK_COMFYUI_PACK", ROOT / "comfyui"))
NAME = "comfyui"  # as pytest names the folder above these tests
SHIFT = 3.0


# ---------------------------------------------------------------------------- wrappers and models


class Executor:
    """Calls one wrapper after another, and then the function."""

    def __init__(self, original: Callable[..., Any], owner: Any, wrappers: Sequence[Any]):
        self.original, self.class_obj, self.wrappers = original, owner, list(wrappers)

    @classmethod
    def new_class_executor(cls, original: Any, owner: Any, wrappers: Sequence[Any]) -> Executor:
        return cls(original, owner, wrappers)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        if not self.wrappers:
            return self.original(*args, **kwargs)
        rest = Executor(self.original, self.class_obj, self.wrappers[1:])
        return self.wrappers[0](rest, *args, **kwargs)

    __call__ = execute


class WrappersMP:
    OUTER_SAMPLE = "outer_sample"
    PREDICT_NOISE = "predict_noise"
    SAMPLER_SAMPLE = "sampler_sample"
    DIFFUSION_MODEL = "diffusion_model"


def copied(options: Any) -> Any:
    """As ComfyUI copies options: dicts and lists anew, all else as it is."""
    if isinstance(options, dict):
        return {key: copied(value) for key, value in options.items()}
    return list(options) if isinstance(options, list) else options


def add_wrapper(kind: str, key: str, function: Any, options: Any, is_model_options: bool) -> None:
    own = options.setdefault("transformer_options", {}) if is_model_options else options
    own.setdefault("wrappers", {}).setdefault(kind, {}).setdefault(key, []).append(function)


def all_wrappers(kind: str, options: Any, is_model_options: bool = False) -> list[Any]:
    own = options.get("transformer_options", {}) if is_model_options else options
    return [f for some in own.get("wrappers", {}).get(kind, {}).values() for f in some]


class Patcher:
    """A MODEL: a network and options, which clones copy."""

    def __init__(self, model: Any, **places: Any):
        self.model = model
        self.model_options: dict[str, Any] = {"transformer_options": {}}
        self.patches: dict[str, Any] = {}
        self.places = places

    def clone(self) -> Patcher:
        other = Patcher(self.model)
        other.model_options, other.patches = copied(self.model_options), copied(self.patches)
        return other

    def add_wrapper_with_key(self, kind: str, key: str, function: Any) -> None:
        add_wrapper(kind, key, function, self.model_options, True)

    def remove_wrappers_with_key(self, kind: str, key: str) -> None:
        wrappers = self.model_options.get("transformer_options", {}).get("wrappers", {})
        wrappers.get(kind, {}).pop(key, None)

    def get_model_object(self, name: str) -> Any:
        return getattr(self.model, name)


class Flow:
    """x = (1 − σ)·x₀ + σ·ε."""

    shift = SHIFT

    def noise_scaling(self, sigma: Any, noise: Tensor, data: Tensor, _: bool = False) -> Tensor:
        return sigma * noise + (1 - sigma) * data

    def signal(self, sigma: Tensor) -> Tensor:
        return 1 - sigma

    def levels(self, steps: int) -> Tensor:
        t = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
        return (self.shift * t / (1 + (self.shift - 1) * t)).float()


class Variance:
    """x = x₀ + σ·ε, from a large σ on."""

    def noise_scaling(self, sigma: Any, noise: Tensor, data: Tensor, _: bool = False) -> Tensor:
        return sigma * noise + data

    def signal(self, sigma: Tensor) -> Tensor:
        return torch.ones_like(sigma)

    def levels(self, steps: int, largest: float = 80.0) -> Tensor:
        ramp = torch.linspace(largest ** (1 / 7), 0.02 ** (1 / 7), steps, dtype=torch.float64) ** 7
        return torch.cat([ramp, torch.zeros(1)]).float()


class Odd(Variance):
    """Levels that nobody knows."""

    def noise_scaling(self, sigma: Any, noise: Tensor, data: Tensor, _: bool = False) -> Tensor:
        return 0.5 * sigma * noise + data


class Model:
    """The exact denoiser of data that is ±μ with some spread, in every coordinate.

    change   change(call, denoised) is what call number n returns instead
    """

    def __init__(self, sampling: Any = None, change: Callable[[int, Tensor], Any] | None = None):
        self.model_sampling = Flow() if sampling is None else sampling
        self.change = change
        self.sigmas: list[float] = []  # of the calls
        self.diffusion_model: nn.Module = nn.Linear(2, 2)
        for weights in self.diffusion_model.parameters():
            nn.init.ones_(weights)

    @property
    def calls(self) -> int:
        return len(self.sigmas)

    def denoised(self, x: Tensor, sigma: Tensor, prompt: float) -> Tensor:
        sigma = sigma.reshape(-1, *[1] * (x.ndim - 1)).to(x)
        a, mean, spread = self.model_sampling.signal(sigma), 1.0 + 0.3 * prompt, 0.3
        v = a**2 * spread**2 + sigma**2
        y = x - a * 0.5 * prompt
        guess = torch.tanh(a * mean * y / v)
        return (spread**2 * a * y + sigma**2 * mean * guess) / v + 0.5 * prompt

    def __call__(self, x: Tensor, sigma: Tensor, prompts: Sequence[float], cfg: float) -> Any:
        n = self.calls
        self.sigmas.append(float(sigma.flatten()[0]))
        with_prompts = sum(self.denoised(x, sigma, p) for p in prompts) / max(1, len(prompts))
        plain = self.denoised(x, sigma, 0.0)
        result = plain + cfg * (with_prompts - plain)
        return result if self.change is None else self.change(n, result)


class Guider:
    """Samples a model; `left` are its options when the outermost wrapper has returned."""

    def __init__(self, patcher: Patcher, conds: Any = None, cfg: float = 2.0):
        self.model_patcher, self.cfg = patcher, cfg
        self.model_options = patcher.model_options
        self.original = {"positive": [{"prompt": 1.0}]} if conds is None else conds
        self.left: Any = None

    def sample(
        self, noise: Tensor, sampler: Any, sigmas: Tensor, mask: Any = None, callback: Any = None
    ) -> Tensor:
        own = self.model_options
        self.conds = {k: [dict(c) for c in v] for k, v in self.original.items()}
        self.model_options = given = copied(own)
        wrappers = all_wrappers(WrappersMP.OUTER_SAMPLE, self.model_options, True)
        executor = Executor(self.outer_sample, self, wrappers)
        data = torch.zeros_like(noise)
        try:
            return executor.execute(
                noise, data, sampler, sigmas, mask, callback, True, 0, latent_shapes=[noise.shape]
            )
        finally:
            left = all_wrappers(WrappersMP.PREDICT_NOISE, given, True)
            assert self.model_options is given, "other options are left behind"
            assert left == all_wrappers(WrappersMP.PREDICT_NOISE, own, True), "so is a wrapper"
            self.model_options = own

    def outer_sample(
        self,
        noise: Tensor,
        latent_image: Tensor,
        sampler: Any,
        sigmas: Tensor,
        denoise_mask: Any = None,
        callback: Any = None,
        disable_pbar: bool = False,
        seed: Any = None,
        latent_shapes: Any = None,
    ) -> Tensor:
        self.inner_model = self.model_patcher.model
        extra = {"model_options": copied(self.model_options), "seed": seed}
        try:
            return sampler.sample(self, sigmas, extra, callback, noise, latent_image, denoise_mask)
        finally:
            del self.inner_model

    def __call__(self, x: Tensor, sigma: Tensor, model_options: Any, seed: Any) -> Tensor:
        wrappers = all_wrappers(WrappersMP.PREDICT_NOISE, self.model_options, True)
        executor = Executor(self.predict_noise, self, wrappers)
        return executor.execute(x, sigma, model_options, seed)

    def predict_noise(self, x: Tensor, sigma: Tensor, model_options: Any, seed: Any = None) -> Any:
        level = sigma.flatten()[0]
        prompts = [c["prompt"] for c in self.conds.get("positive", ()) if acts(c, level)]
        return self.inner_model(x, sigma, prompts, getattr(self, "cfg", 2.0))


def acts(cond: Mapping[str, Any], level: Tensor) -> bool:
    """Whether a prompt acts at σ, which is compared in its own precision, float32."""
    first, last = cond.get("timestep_start"), cond.get("timestep_end")
    return not ((first is not None and level > first) or (last is not None and level < last))


class Blend:
    """What a sampler's function gets as the model: the guider, behind the mask of an inpainting."""

    def __init__(self, guider: Guider, noise: Tensor, data: Tensor):
        self.inner_model, self.noise, self.data = guider, noise, data

    def __call__(
        self, x: Tensor, sigma: Tensor, denoise_mask: Any, model_options: Any, seed: Any
    ) -> Tensor:
        if denoise_mask is None:
            return self.inner_model(x, sigma, model_options, seed)
        sampling, level = self.inner_model.inner_model.model_sampling, sigma.flatten()[0]
        outside = sampling.noise_scaling(level, self.noise, self.data)
        x = x * denoise_mask + outside * (1 - denoise_mask)
        made = self.inner_model(x, sigma, model_options, seed)
        return made * denoise_mask + self.data * (1 - denoise_mask)


class KSampler:
    """A sampler that has a function."""

    SAMPLERS: tuple[str, ...] = ("euler", "dpmpp_2m", "heun")
    SCHEDULERS: tuple[str, ...] = ("simple", "normal")

    def __init__(self, function: Any, extra_options: Any = None, inpaint_options: Any = None):
        self.sampler_function = function
        self.extra_options = extra_options or {}

    def sample(
        self,
        guider: Guider,
        sigmas: Tensor,
        extra: dict[str, Any],
        callback: Any,
        noise: Tensor,
        data: Tensor,
        mask: Any,
    ) -> Tensor:
        model = Blend(guider, noise, data)
        x = guider.inner_model.model_sampling.noise_scaling(sigmas[0], noise, data)
        extra["denoise_mask"] = mask
        return self.sampler_function(
            model,
            x,
            sigmas,
            extra_args=extra,
            callback=callback,
            disable=True,
            **self.extra_options,
        )


# ------------------------------------------------------------------------------------- samplers


def named(name: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Gives a function the name of one of ComfyUI's."""

    def rename(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        function.__name__ = f"sample_{name}"
        return function

    return rename


def asked(model: Any, x: Tensor, sigma: Any, extra: Any) -> Tensor:
    return model(x, sigma * x.new_ones(len(x)), **(extra or {}))


def told(callback: Any, i: int, x: Tensor, denoised: Tensor) -> None:
    if callback is not None:
        callback({"i": i, "x": x, "denoised": denoised})


@named("euler")
def euler(model, x, sigmas, extra_args=None, callback=None, disable=None):
    for i, (sigma, after) in enumerate(itertools.pairwise(sigmas)):
        denoised = asked(model, x, sigma, extra_args)
        told(callback, i, x, denoised)
        x = x + (x - denoised) / sigma * (after - sigma)
    return x


@named("euler")
def euler_in_place(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """Writes into x, and into what the model returned."""
    for sigma, after in itertools.pairwise(sigmas):
        denoised = asked(model, x, sigma, extra_args)
        x.add_(denoised.sub_(x).div_(sigma).mul_(sigma - after))
    return x


def multistep(sigmas: Tensor, i: int, data: Sequence[Tensor]) -> Tensor:
    """The data that DPM-Solver++(2M) goes to, from what was denoised, the latest first."""
    if len(data) < 2 or sigmas[i + 1] == 0:
        return data[0]
    now, before = ((sigmas[j] / sigmas[j + 1]).log() for j in (i, i - 1))
    return data[0] + (data[0] - data[1]) * now / (2 * before)


@named("dpmpp_2m")
def dpmpp_2m(model, x, sigmas, extra_args=None, callback=None, disable=None):
    kept = ()
    for i, (sigma, after) in enumerate(itertools.pairwise(sigmas)):
        denoised = asked(model, x, sigma, extra_args)
        told(callback, i, x, denoised)
        data = multistep(sigmas, i, (denoised, *kept))
        x = data + (x - data) * after / sigma
        kept = (denoised,)
    return x


def remembering(count: int) -> Callable[..., Tensor]:
    """A sampler whose step needs `count` results before the latest."""

    @named("res_multistep")
    def sample(model, x, sigmas, extra_args=None, callback=None, disable=None):
        kept: list[Tensor] = []
        for sigma, after in itertools.pairwise(sigmas):
            kept = [asked(model, x, sigma, extra_args), *kept[:count]]
            data = kept[0] + sum((0.1 / (j + 1)) * (kept[0] - b) for j, b in enumerate(kept[1:]))
            x = data + (x - data) * after / sigma
        return x

    return sample


@named("ipndm")
def ipndm(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """Keeps derivatives that it has computed: nobody else holds them."""
    old = None
    for sigma, after in itertools.pairwise(sigmas):
        d = (x - asked(model, x, sigma, extra_args)) / sigma
        x = x + (after - sigma) * (d if old is None else 1.5 * d - 0.5 * old)
        old = d
    return x


@named("lms")
def keeps_x(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """Keeps an older x."""
    older = x
    for sigma, after in itertools.pairwise(sigmas):
        d = (x - asked(model, x, sigma, extra_args)) / sigma
        x, older = x + (after - sigma) * d + 0.01 * (x - older), x
    return x


@named("deis")
def clipped(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """Not linear in the outputs."""
    for sigma, after in itertools.pairwise(sigmas):
        denoised = asked(model, x, sigma, extra_args).clamp(-4, 4)
        x = denoised + (x - denoised) * after / sigma
    return x


def noisy(kept_results: int) -> Callable[..., Tensor]:
    def sample(
        model, x, sigmas, extra_args=None, callback=None, disable=None, eta=0.5, noise_sampler=None
    ):
        made = torch.Generator().manual_seed((extra_args or {}).get("seed") or 0)
        if noise_sampler is None:
            noise_sampler = lambda *_: torch.randn(x.shape, generator=made, dtype=x.dtype)  # noqa: E731
        kept = ()
        for i, (sigma, after) in enumerate(itertools.pairwise(sigmas)):
            denoised = asked(model, x, sigma, extra_args)
            data = multistep(sigmas, i, (denoised, *kept))
            up = eta * after * (1 - (after / sigma) ** 2).sqrt()
            down = (after**2 - up**2).sqrt()
            x = data + (x - data) * down / sigma
            if after > 0:
                x = x + up * noise_sampler(sigma, after)
            kept = (denoised,) * kept_results
        return x

    return sample


euler_ancestral = named("euler_ancestral")(noisy(0))
dpmpp_2m_sde = named("dpmpp_2m_sde")(noisy(1))


@named("heun")
def heun(model, x, sigmas, extra_args=None, callback=None, disable=None):
    for sigma, after in itertools.pairwise(sigmas):
        d = (x - asked(model, x, sigma, extra_args)) / sigma
        ahead = x + (after - sigma) * d
        if after > 0:
            d = (d + (ahead - asked(model, ahead, after, extra_args)) / after) / 2
        x = x + (after - sigma) * d
    return x


@named("dpm_2")
def between(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """Calls half-way between the steps."""
    for sigma, after in itertools.pairwise(sigmas):
        middle = (sigma + after) / 2
        denoised = asked(model, x, middle, extra_args)
        x = x + (x - denoised) / middle * (after - sigma)
    return x


@named("euler_cfg_pp")
def cfg_pp(model, x, sigmas, extra_args, callback=None, disable=None):
    """Wants to see the unconditional output."""
    functions = {"sampler_post_cfg_function": [lambda a: a["denoised"]]}
    options = {**extra_args["model_options"], **functions}
    return euler(model, x, sigmas, {**extra_args, "model_options": options})


@named("dpmpp_2m")
def raising(model, x, sigmas, extra_args=None, callback=None, disable=None):
    raise KeyError("no such thing")


@named("euler")
def twice(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """Calls twice at every σ."""
    for sigma, after in itertools.pairwise(sigmas):
        asked(model, x, sigma, extra_args)
        x = x + (x - asked(model, x, sigma, extra_args)) / sigma * (after - sigma)
    return x


@named("euler")
def never(model, x, sigmas, extra_args=None, callback=None, disable=None):
    return x


@named("euler")
def every_second(model, x, sigmas, extra_args=None, callback=None, disable=None):
    return euler(model, x, sigmas[::2], extra_args)


# --------------------------------------------------------------------------- modules of ComfyUI


class Told:
    """A server that keeps what it is told."""

    texts: list[tuple[str, str]] = []  # noqa: RUF012
    instance: Any = None

    def send_progress_text(self, text: str, node_id: str) -> None:
        self.texts.append((node_id, text))


class ProgressBar:
    made: list[ProgressBar] = []  # noqa: RUF012

    def __init__(self, total: int):
        self.total, self.done = total, 0
        self.made.append(self)

    def update(self, count: int) -> None:
        self.done += count

    def update_absolute(self, count: int) -> None:
        self.done = count


FUNCTIONS = {"euler": euler, "dpmpp_2m": dpmpp_2m, "heun": heun}


def prepare_noise(latent: Tensor, seed: int, batch: Any = None) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(latent.shape, generator=made, dtype=latent.dtype)


def sample(
    model: Patcher,
    noise: Tensor,
    steps: int,
    cfg: float,
    sampler_name: str,
    scheduler: str,
    positive: Any,
    negative: Any,
    latent: Tensor,
    *,
    denoise: float = 1.0,
    noise_mask: Any = None,
    callback: Any = None,
    **_: Any,
) -> Tensor:
    whole = model.model.model_sampling.levels(round(steps / denoise))
    sigmas = whole[-(steps + 1) :]
    return sample_custom(
        model, noise, cfg, KSampler(FUNCTIONS[sampler_name]), sigmas, positive, negative, latent,
        noise_mask=noise_mask, callback=callback,
    )  # fmt: skip


def sample_custom(
    model: Patcher,
    noise: Tensor,
    cfg: float,
    sampler: Any,
    sigmas: Tensor,
    positive: Any,
    negative: Any,
    latent: Tensor,
    *,
    noise_mask: Any = None,
    callback: Any = None,
    **_: Any,
) -> Tensor:
    guider = Guider(model, {"positive": positive, "negative": negative}, cfg)
    told = None if callback is None else lambda s: callback(s["i"], s["denoised"], s["x"], 0)
    return guider.sample(noise, sampler, sigmas, noise_mask, told)


def modules() -> dict[str, ModuleType]:
    """The modules of ComfyUI that the pack imports, by name."""
    base = type("Base", (), {"extra_conds": lambda self, **_: {}})
    contents: dict[str, dict[str, Any]] = {
        "comfy": {},
        "comfy.patcher_extension": dict(
            WrappersMP=WrappersMP,
            WrapperExecutor=Executor,
            add_wrapper_with_key=add_wrapper,
            get_all_wrappers=all_wrappers,
        ),
        "comfy.model_patcher": dict(create_model_options_clone=copied, ModelPatcher=Patcher),
        "comfy.samplers": dict(
            KSAMPLER=KSampler,
            KSampler=KSampler,
            calculate_sigmas=lambda sampling, scheduler, steps: sampling.levels(steps),
        ),
        "comfy.sample": dict(
            sample=sample,
            sample_custom=sample_custom,
            prepare_noise=prepare_noise,
            fix_empty_latent_channels=lambda model, samples: samples,
        ),
        "comfy.utils": dict(ProgressBar=ProgressBar),
        "comfy.conds": dict(CONDRegular=lambda value: ("regular", value)),
        "comfy.latent_formats": dict(LatentFormat=type("LatentFormat", (), {})),
        "comfy.supported_models_base": dict(
            BASE=type("BASE", (), {"__init__": lambda self, config: None})
        ),
        "comfy.model_base": dict(
            BaseModel=type("BaseModel", (base,), {"__init__": lambda self, *_: None}),
            ModelType=SimpleNamespace(FLOW="flow"),
        ),
        "comfy.model_management": dict(
            get_torch_device=lambda: torch.device("cpu"),
            unet_offload_device=lambda: torch.device("cpu"),
        ),
        "folder_paths": dict(get_temp_directory=lambda: "", get_output_directory=lambda: ""),
        "server": dict(PromptServer=Told),
    }
    made: dict[str, ModuleType] = {}
    for name, names in contents.items():
        made[name] = module = ModuleType(name)
        vars(module).update(names)
        above, _, own = name.rpartition(".")
        if above:
            setattr(made[above], own, module)
    made["comfy"].__path__ = []
    return made


MODULES = modules()


@contextlib.contextmanager
def installed(more: Mapping[str, ModuleType] | None = None) -> Iterator[None]:
    """The stand-ins are there to be imported."""
    wanted = {**MODULES, **(more or {})}
    before = {name: sys.modules.get(name) for name in wanted}
    sys.modules.update(wanted)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def pack(name: str) -> Any:
    """A module of the pack, on the stand-ins."""
    if NAME not in sys.modules:
        package = ModuleType(NAME)
        package.__path__, package.__file__ = [str(PACK)], str(ROOT / "comfyui" / "__init__.py")
        sys.modules[NAME] = package
    with installed():
        return importlib.import_module(f"{NAME}.{name}")


def noise_like(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(shape or (2, 3, 4, 5), generator=made, dtype=torch.float64).to(dtype)


@dataclass
class Sampled:
    """One sampling; `node` is what the GeoShrink node has left in the model."""

    latent: Tensor
    model: Model
    guider: Guider
    node: Any

    @property
    def calls(self) -> int:
        return self.model.calls

    @property
    def text(self) -> str:
        return self.node.text


def sampled(
    function: Callable[..., Tensor] = euler,
    *,
    steps: int = 20,
    sigmas: Tensor | None = None,
    model: Model | None = None,
    conds: Any = None,
    cfg: float = 2.0,
    mask: Tensor | None = None,
    noise: Tensor | None = None,
    patch: Callable[[Patcher], None] | None = None,
    guider: type[Guider] = Guider,
    extra: Mapping[str, Any] | None = None,
    **options: Any,
) -> Sampled:
    """Samples with the node's options; without any of them there is no node."""
    model = Model() if model is None else model
    patcher, node = Patcher(model), None
    if patch is not None:
        patch(patcher)
    if options:
        seam = pack("seam")
        node = seam.Accelerated(pack("options").Options(**options), lambda text: None)
        patcher = node.attach(patcher)
    own = guider(patcher, conds, cfg)
    grid = model.model_sampling.levels(steps) if sigmas is None else sigmas
    noise = noise_like() if noise is None else noise.clone()
    latent = own.sample(noise, KSampler(function, extra), grid, mask)
    return Sampled(latent, model, own, node)


def distance(one: Tensor, other: Tensor) -> float:
    """‖one − other‖/‖other‖."""
    return float((one.double() - other.double()).norm() / other.double().norm())
