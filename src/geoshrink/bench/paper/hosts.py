"""How the paper's models are loaded from a folder and called, one host for each class of pipeline.

A host for another model is a class with load() and sample() here, in HOSTS under its name. What has
no adapter of geoshrink's yet is Absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ...adapters.diffusers import find_schedulers
from ...compare.inputs import DTYPES, Settings
from ...compare.pipeline import from_folder, parameters
from ...compare.showing import shown
from ..metrics.base import Skipped
from .loop import Loop
from .sample import Sample, bytes_of, mono


@dataclass(frozen=True)
class Made:
    """One run: what it made, what came out of its last step, and what the loop took."""

    sample: Sample
    latents: tuple[torch.Tensor, ...]
    seconds: float
    forwards: int
    stages: int


class Host:
    """A pipeline of one class: load(folder) once, sample(prompt, seed, steps) many times."""

    index, kind = "model_index.json", ""  # the file that names the class, and the class

    def __init__(self) -> None:
        self.pipe: Any = None
        self.device = torch.device("cpu")

    def check(self, folder: str | Path) -> Path:
        """The folder, if it holds a pipeline of this class."""
        path = Path(folder) / self.index
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"there is no folder {str(folder)!r} with the checkpoint")
        if not path.is_file():
            raise ValueError(f"{folder} holds no {self.index}: it is no pipeline of diffusers")
        found = json.loads(path.read_text(encoding="utf-8")).get("_class_name")
        if found not in (self.kind, [self.kind]):
            raise ValueError(f"{folder} holds a {found}, the suite needs a {self.kind}")
        return Path(folder)

    def load(self, folder: str | Path, device: str, dtype: str, offload: str | None = None) -> None:
        path = self.check(folder)
        self.device = torch.device(device)
        settings = Settings(str(path), device="cpu" if offload else device, dtype=dtype)
        self.pipe = from_folder(path, settings)
        if offload:
            self.pipe.enable_model_cpu_offload(device=self.device)
        self.pipe.set_progress_bar_config(disable=True)

    def steps_for(self, evaluations: int) -> int:
        """The argument of a call that makes so many evaluations."""
        return evaluations

    def stages(self, steps: int) -> int:
        """The evaluations that a call with this argument makes."""
        return steps

    def sample(
        self,
        prompt: str,
        seed: int,
        steps: int,
        call: Mapping[str, Any],
        opened: Callable[[], Any] = lambda: None,
        within: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Made:
        """One run from the seed's noise.

        opened    called as each stage begins
        within    what is attached to the pipeline for this run
        """
        network, schedulers = self.pipe.transformer, find_schedulers(self.pipe)
        torch.manual_seed(seed)  # some pipelines draw from the global generator
        with Loop(network, schedulers, self.device, opened) as loop, within():
            output = self.call(
                prompt=prompt,
                num_inference_steps=steps,
                generator=torch.Generator().manual_seed(seed),
                **call,
            )
        latents = tuple(loop.latents.values())
        return Made(self.read(output), latents, loop.seconds, loop.forwards, loop.stages)

    def call(self, **arguments: Any) -> Any:
        strange = [name for name in arguments if name not in parameters(self.pipe)]
        if strange:
            raise ValueError(f"{self.kind} takes no {strange[0]!r} in its call")
        return self.pipe(**arguments, output_type="np")

    def read(self, output: Any) -> Sample:
        """The decoded pictures of the one sample."""
        pictures, _ = shown(output, self.kind)
        return Sample({"frames": bytes_of(pictures[0])})


class SD3(Host):
    kind = "StableDiffusion3Pipeline"


class Flux(Host):
    kind = "FluxPipeline"


class HunyuanVideo(Host):
    """Decoded tile by tile: a whole film does not fit into the memory."""

    kind = "HunyuanVideoPipeline"

    def load(self, folder: str | Path, device: str, dtype: str, offload: str | None = None) -> None:
        super().load(folder, device, dtype, offload)
        self.pipe.vae.enable_tiling()


class AceStep(Host):
    kind = "AceStepPipeline"

    def read(self, output: Any) -> Sample:
        return Sample({"wave": mono(torch.as_tensor(output.audios[0]))}, self.pipe.sample_rate)


class MiniMaxH3(Host):
    """A modular pipeline; its grid holds the last σ, so that N steps are N − 1 evaluations."""

    index, kind = "modular_model_index.json", "MiniMaxH3ModularPipeline"

    def load(self, folder: str | Path, device: str, dtype: str, offload: str | None = None) -> None:
        path = self.check(folder)
        diffusers: Any = import_module("diffusers")
        self.device = torch.device(device)
        manager = None
        if offload:
            manager = diffusers.ComponentsManager()
            manager.enable_auto_cpu_offload(device=device, memory_reserve_margin=offload)
        self.pipe = diffusers.ModularPipeline.from_pretrained(
            str(path), workflow="t2va", components_manager=manager, local_files_only=True
        )
        own = {name: str(path) for name in self.pipe.component_names if (path / name).is_dir()}
        self.pipe.load_components(
            dtype=DTYPES[dtype], pretrained_model_name_or_path=own, local_files_only=True
        )
        missing = [name for name, part in self.pipe.components.items() if part is None]
        if missing:
            raise ValueError(f"{path}: the component {missing[0]!r} could not be loaded")
        if not offload:
            self.pipe.to(device)
        self.pipe.set_progress_bar_config(disable=True)

    def steps_for(self, evaluations: int) -> int:
        return evaluations + 1

    def stages(self, steps: int) -> int:
        return steps - 1

    def call(self, **arguments: Any) -> Any:
        made = ["videos", "audio", "sampling_rate"]
        return self.pipe(**arguments, output_type="np", output=made)

    def read(self, output: Any) -> Sample:
        frames, _ = shown(output["videos"], self.kind)
        wave = mono(output["audio"][0])
        return Sample({"frames": bytes_of(frames[0]), "wave": wave}, int(output["sampling_rate"]))


class Absent(Host):
    """A model that geoshrink has no adapter for yet."""

    def __init__(self, model: str):
        super().__init__()
        self.reason = f"no adapter for {model} yet"

    def check(self, folder: str | Path) -> Path:
        raise Skipped(self.reason)


HOSTS = {
    "sd3": SD3,
    "flux": Flux,
    "hunyuan-video": HunyuanVideo,
    "minimax-h3": MiniMaxH3,
    "ace-step": AceStep,
    "hy-motion": lambda: Absent("HY-Motion"),
    "trellis": lambda: Absent("TRELLIS"),
    "hunyuan3d": lambda: Absent("Hunyuan3D-2"),
    "tangoflux": lambda: Absent("TangoFlux"),
}
