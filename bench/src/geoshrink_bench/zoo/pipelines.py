"""`fruit` and `digits-av` as diffusers pipelines: the diffusers path with trained weights.

    pipe = pipeline("fruit", scheduler="unipc")
    pipe(["Kiwi 1"], num_inference_steps=20, guidance_scale=2.0).images[0].save("kiwi.png")

An example of wrapping one's own model, too: the network is a ModelMixin, so that diffusers can save
and load it, and the pipeline is the usual loop "network, guidance, scheduler.step", which
knows nothing of acceleration. A saved folder is loaded by FruitPipeline.from_pretrained(folder).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoshrink.hosts import Host, diffusers, register_host

from .modalities.pictures import Pictures, picture_of
from .modalities.sound import Sound
from .model import Model, class_numbers, load
from .network import DiT, JointDiT
from .schedulers import as_scheduler, set_timesteps
from .schedulers import flow_scheduler as flow_scheduler

try:
    from diffusers.configuration_utils import ConfigMixin, register_to_config
    from diffusers.models.modeling_utils import ModelMixin
    from diffusers.pipelines.pipeline_utils import DiffusionPipeline
    from diffusers.schedulers.scheduling_utils import SchedulerMixin
    from diffusers.utils.outputs import BaseOutput
    from diffusers.utils.torch_utils import randn_tensor
except ImportError as error:
    raise ImportError("pipelines need diffusers: pip install 'geoshrink[diffusers]'") from error

TRAIN_TIMESTEPS = 1000  # a timestep is 1000·σ
OUTPUT_TYPES = ("pil", "np", "pt", "latent")
Callback = Callable[[Any, int, Any, dict[str, Any]], dict[str, Any]]


# --- the networks ------------------------------------------------------------------------------


class FruitTransformer(ModelMixin, ConfigMixin):
    """The velocity of pictures; class_labels == classes means "no class"."""

    @register_to_config
    def __init__(
        self,
        shape: Sequence[int],
        patch: Sequence[int],
        classes: int,
        width: int = 256,
        depth: int = 6,
        heads: int = 4,
        condition: int = 96,
    ):
        super().__init__()
        size = dict(width=width, depth=depth, heads=heads, condition=condition)
        self.network = DiT(shape, patch, classes, **size)

    def forward(
        self, hidden_states: Tensor, timestep: Tensor, class_labels: Tensor
    ) -> tuple[Tensor]:
        return (self.network(hidden_states, timestep / TRAIN_TIMESTEPS, class_labels),)


class DigitsTransformer(ModelMixin, ConfigMixin):
    """The velocities of pictures and waveforms, each at its own time."""

    @register_to_config
    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        patches: Sequence[Sequence[int]],
        classes: int,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        condition: int = 96,
    ):
        super().__init__()
        size = dict(width=width, depth=depth, heads=heads, condition=condition)
        self.network = JointDiT(shapes, patches, classes, **size)

    def forward(
        self,
        hidden_states: Tensor,
        audio_hidden_states: Tensor,
        timestep: Tensor,
        audio_timestep: Tensor,
        class_labels: Tensor,
    ) -> tuple[Tensor, ...]:
        sigma = torch.stack([timestep, audio_timestep], 1) / TRAIN_TIMESTEPS
        return self.network((hidden_states, audio_hidden_states), sigma, class_labels)


# --- the pipelines -----------------------------------------------------------------------------


@dataclass
class ZooOutput(BaseOutput):
    images: Any  # PIL images, an array (n, height, width, channels), or a tensor
    audios: Any = None  # an array or a tensor (n, samples) at 8 kHz; latents are (n, 1, samples)


class ZooPipeline(DiffusionPipeline):
    """The loop of both: network, guidance, a step of each part's scheduler.

    parts   one prefix for each part, for its latents, scheduler, hidden_states and timestep
    """

    parts: tuple[str, ...] = ("",)
    model, network = "fruit", FruitTransformer
    model_cpu_offload_seq = "transformer"
    transformer: Any
    scheduler: Any
    _guidance_scale = 1.0
    _num_timesteps = 0

    @classmethod
    def of(
        cls, name: str = "", scheduler: Any = None, audio_scheduler: Any = None, **options: Any
    ) -> Any:
        """From the zoo; `options` are those of zoo.load. A kind of scheduler serves all parts."""
        name = name or cls.model
        if not issubclass(cls, PIPELINES.get(name, ())):
            raise ValueError(f"{cls.__name__} does not fit {name!r}: see zoo.pipelines.PIPELINES")
        model = load(name, **options)
        shift = model.judged_at["shift"]
        shifts = shift if isinstance(shift, (tuple, list)) else [shift]
        if audio_scheduler is None and isinstance(scheduler, str):
            audio_scheduler = scheduler
        schedulers = map(as_scheduler, (scheduler, audio_scheduler), shifts)
        return cls(filled(cls.network, model), *schedulers, model.classes)  # type: ignore[call-arg]

    @property
    def guidance_scale(self) -> float:
        return self._guidance_scale

    @property
    def do_classifier_free_guidance(self) -> bool:
        return self._guidance_scale > 1

    @property
    def num_timesteps(self) -> int:
        return self._num_timesteps

    def encode_labels(self, labels: int | str | Sequence[int | str]) -> Tensor:
        """Class numbers from numbers or names, after as many "no class" where guidance needs it."""
        several = [labels] if isinstance(labels, (int, str)) else labels
        none = self.transformer.config.classes
        numbers = class_numbers(several, list(self.config["classes"]), "the pipeline", none)
        free = [none] * len(numbers) * self.do_classifier_free_guidance
        return torch.tensor(free + numbers, device=self._execution_device)

    def prepare_latents(self, shape: Sequence[int], generator: Any, latents: Any) -> Tensor:
        device, dtype = self._execution_device, self.transformer.dtype
        if latents is None:
            return randn_tensor(tuple(shape), generator, device, dtype)
        if tuple(latents.shape) != tuple(shape):
            raise ValueError(f"latents must be of shape {tuple(shape)}, got {tuple(latents.shape)}")
        return latents.to(device, dtype)

    def twice(self, x: Tensor) -> Tensor:
        """Both branches of guidance in one batch."""
        return torch.cat([x, x]) if self.do_classifier_free_guidance else x

    def guided(self, velocity: Tensor) -> Tensor:
        if not self.do_classifier_free_guidance:
            return velocity
        free, given = velocity.chunk(2)
        return free + self.guidance_scale * (given - free)

    def made(self, labels: Any, given: Any, output_type: str, return_dict: bool) -> Any:
        """What a call returns; `given` is what denoise() takes besides the labels."""
        if output_type not in OUTPUT_TYPES:
            known = ", ".join(OUTPUT_TYPES)
            raise ValueError(f"no output_type {output_type!r}; choose one of {known}")
        parts = zip((pictures, waves), self.denoise(labels, *given))
        shown = [of(latents, output_type) for of, latents in parts]
        self.maybe_free_model_hooks()
        return ZooOutput(*shown) if return_dict else tuple(shown)

    def denoise(
        self,
        labels: Any,
        steps: int,
        guidance_scale: float,
        generator: Any,
        given: Sequence[Any],
        callback: Callback | None,
    ) -> list[Tensor]:
        """The latents of each part at the end; `given` are those at the start, or None."""
        self._guidance_scale = guidance_scale
        class_labels = self.encode_labels(labels)
        n = len(class_labels) // (1 + self.do_classifier_free_guidance)
        config = self.transformer.config
        shapes = config.shapes if "shapes" in config else [config.shape]
        names = [f"{part}latents" for part in self.parts]
        latents = {
            name: self.prepare_latents((n, *shape), generator, x)
            for name, shape, x in zip(names, shapes, given)
        }
        schedulers = [getattr(self, f"{part}scheduler") for part in self.parts]
        timesteps = [set_timesteps(s, steps, self._execution_device) for s in schedulers]
        self._num_timesteps = len(timesteps[0])
        with self.progress_bar(total=len(timesteps[0])) as bar:  # type: ignore[call-arg]
            for i, times in enumerate(zip(*timesteps)):
                inputs: dict[str, Tensor] = {"class_labels": class_labels}
                for part, name, t in zip(self.parts, names, times):
                    inputs[f"{part}hidden_states"] = self.twice(latents[name])
                    inputs[f"{part}timestep"] = t.expand(len(class_labels))
                velocities = map(self.guided, self.transformer(**inputs))
                for name, scheduler, velocity, t in zip(names, schedulers, velocities, times):
                    stepped = scheduler.step(velocity, t, latents[name], return_dict=False)
                    latents[name] = stepped[0]
                if callback is not None:
                    changed = callback(self, i, times[0], dict(latents))
                    latents = {name: changed.get(name, latents[name]) for name in names}
                bar.update()
        return [latents[name] for name in names]


# A prompt of these pipelines is the name of a class.
register_host(
    Host("zoo", lambda host: isinstance(host, ZooPipeline), diffusers.attach, prompt=("labels",))
)


class FruitPipeline(ZooPipeline):
    """A picture of each label."""

    def __init__(
        self, transformer: FruitTransformer, scheduler: SchedulerMixin, classes: Sequence[str] = ()
    ):
        super().__init__()
        self.register_modules(transformer=transformer, scheduler=scheduler)
        self.register_to_config(classes=list(classes))

    @torch.no_grad()
    def __call__(
        self,
        labels: int | str | Sequence[int | str],
        num_inference_steps: int = 50,
        guidance_scale: float = 3.0,
        generator: Any = None,
        latents: Any = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callback | None = None,
    ) -> Any:
        given = num_inference_steps, guidance_scale, generator, [latents], callback_on_step_end
        return self.made(labels, given, output_type, return_dict)


class DigitsPipeline(ZooPipeline):
    """A handwritten and a spoken digit of each label, made together on two grids of σ."""

    parts = ("", "audio_")
    model, network = "digits-av", DigitsTransformer
    audio_scheduler: Any

    def __init__(
        self,
        transformer: DigitsTransformer,
        scheduler: SchedulerMixin,
        audio_scheduler: SchedulerMixin,
        classes: Sequence[str] = (),
    ):
        super().__init__()
        self.register_modules(
            transformer=transformer, scheduler=scheduler, audio_scheduler=audio_scheduler
        )
        self.register_to_config(classes=list(classes))

    @torch.no_grad()
    def __call__(
        self,
        labels: int | str | Sequence[int | str],
        num_inference_steps: int = 30,
        guidance_scale: float = 3.0,
        generator: Any = None,
        latents: Any = None,
        audio_latents: Any = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callback | None = None,
    ) -> Any:
        starts = [latents, audio_latents]
        given = num_inference_steps, guidance_scale, generator, starts, callback_on_step_end
        return self.made(labels, given, output_type, return_dict)


PIPELINES = {"fruit": FruitPipeline, "digits-av": DigitsPipeline}


def pipeline(name: str = "fruit", scheduler: Any = None, **options: Any) -> Any:
    """A model of the zoo as a pipeline; the scheduler is "euler", "unipc", "dpm++" or your own."""
    if name not in PIPELINES:
        raise ValueError(f"no pipeline for {name!r}; there is one for {', '.join(PIPELINES)}")
    return PIPELINES[name].of(name, scheduler, **options)


# --- weights, outputs --------------------------------------------------------------


def filled(kind: Any, model: Model) -> Any:
    """The transformer with the weights of a model of the zoo."""
    transformer = kind(classes=len(model.classes), **model.recipe.network)
    transformer.network.load_state_dict(model.network.state_dict())
    return transformer.to(model.device).eval().requires_grad_(False)


def pictures(latents: Tensor, output_type: str) -> Any:
    if output_type == "latent":
        return latents
    pixels = Pictures().values(latents, {})
    if output_type == "pil":
        return [picture_of(p) for p in pixels]
    return pixels.permute(0, 2, 3, 1).cpu().numpy() if output_type == "np" else pixels


def waves(latents: Tensor, output_type: str) -> Any:
    if output_type == "latent":
        return latents
    values = Sound().values(latents, {}).clamp(-1, 1)
    return values if output_type == "pt" else values.cpu().numpy()
