"""Hosts that diffusers loads and runs."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from geoshrink.compare.inputs import DTYPES, Settings
from geoshrink.compare.pipeline import from_folder
from geoshrink.hosts.diffusers import find_schedulers
from geoshrink.hosts.host import arguments_of

from .host import Host


class Pipeline(Host):
    """A pipeline of one class, in a folder as diffusers saves it."""

    index, blocks = "model_index.json", True  # the file that names the class

    def check(self, folder: str | Path) -> Path:
        path = super().check(folder) / self.index
        if not path.is_file():
            raise ValueError(f"{folder} holds no {self.index}: it is no pipeline of diffusers")
        found = json.loads(path.read_text(encoding="utf-8")).get("_class_name")
        if found not in (self.kind, [self.kind]):
            raise ValueError(f"{folder} holds a {found}, the suite needs a {self.kind}")
        return Path(folder)

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        device = "cpu" if offload else str(self.device)
        pipe = from_folder(folder, Settings(str(folder), device=device, dtype=dtype))
        if offload:
            pipe.enable_model_cpu_offload(device=self.device)
        pipe.set_progress_bar_config(disable=True)
        return pipe

    def ends(self) -> list[tuple[Any, str]]:
        return [(scheduler, "step") for scheduler in find_schedulers(self.pipe)]

    def call(self, prompt: str, seed: int, steps: int, **arguments: Any) -> Any:
        takes = arguments_of(self.pipe)
        strange = [name for name in arguments if name not in takes]
        if strange:
            raise ValueError(f"{self.kind} takes no {strange[0]!r} in its call")
        return super().call(prompt, seed, steps, **arguments)


class SD3(Pipeline):
    kind = "StableDiffusion3Pipeline"


class Flux(Pipeline):
    kind = "FluxPipeline"


class HunyuanVideo(Pipeline):
    """Decoded tile by tile: a whole film does not fit into the memory."""

    kind = "HunyuanVideoPipeline"

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        pipe = super().build(folder, dtype, offload)
        pipe.vae.enable_tiling()
        return pipe


class AceStep(Pipeline):
    kind = "AceStepPipeline"


class MiniMaxH3(Pipeline):
    """A modular pipeline; its grid holds the last σ, so that N steps are N − 1 evaluations."""

    index, kind, beyond = "modular_model_index.json", "MiniMaxH3ModularPipeline", 1

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        diffusers: Any = import_module("diffusers")
        manager = None
        if offload:
            manager = diffusers.ComponentsManager()
            manager.enable_auto_cpu_offload(device=str(self.device), memory_reserve_margin=offload)
        pipe = diffusers.ModularPipeline.from_pretrained(
            str(folder), workflow="t2va", components_manager=manager, local_files_only=True
        )
        own = {name: str(folder) for name in pipe.component_names if (folder / name).is_dir()}
        pipe.load_components(
            dtype=DTYPES[dtype], pretrained_model_name_or_path=own, local_files_only=True
        )
        missing = [name for name, part in pipe.components.items() if part is None]
        if missing:
            raise ValueError(f"{folder}: the component {missing[0]!r} could not be loaded")
        if not offload:
            pipe.to(self.device)
        pipe.set_progress_bar_config(disable=True)
        return pipe
