"""Checkpoints of the paper's models with random weights: they show that a suite runs from its
folder to its table, and nothing of quality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from . import doubles, hunyuan3d, hymotion, pipelines, tangoflux, trellis

PROMPTS = ("a red cat", "a dog", "the house", "a photo of a cat")
LIBRARIES = ("diffusers", "transformers")
NONE = "no tiny model of it comes with the package"


@dataclass(frozen=True)
class Tiny:
    """A maker of a checkpoint's folder, the arguments of its call, and what must be installed."""

    make: Callable[[Path], None]
    call: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = LIBRARIES

    def lacks(self) -> str:
        """What is missing to make it, in words; nothing where it can be made."""
        missing = [name for name in self.needs if find_spec(name) is None]
        return f"pip install {' '.join(missing)}" if missing else ""


def saved(build: Callable[[], Any]) -> Callable[[Path], None]:
    return lambda folder: pipelines.save(build(), folder)


SQUARE = {"height": 32, "width": 32}
TINY = {
    "sd3": Tiny(saved(pipelines.sd3), SQUARE),
    "flux": Tiny(saved(pipelines.flux), SQUARE),
    "hunyuan-video": Tiny(saved(pipelines.hunyuan_video), {**SQUARE, "num_frames": 5}),
    "minimax-h3": Tiny(saved(pipelines.minimax_h3), SQUARE),
    "ace-step": Tiny(saved(pipelines.ace_step), {"audio_duration": 4.0}),
    "trellis": Tiny(trellis.make, {"sparse_structure_steps": 4}, ("trimesh",)),
    "hunyuan3d": Tiny(hunyuan3d.make, {}, ("trimesh",)),
    "hy-motion": Tiny(hymotion.make, {}, ("torchdiffeq",)),
    "tangoflux": Tiny(tangoflux.make, {"duration": 4}),
}


def make(host: str, folder: Path) -> None:
    """The checkpoint of a host, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        folder.mkdir(parents=True, exist_ok=True)
        TINY[host].make(folder)


def write_prompts(place: Path, count: int, pictures: bool) -> None:
    """So many texts in a file, or pictures in a folder."""
    if not pictures:
        words = [f"{PROMPTS[i % len(PROMPTS)]} {i}" for i in range(count)]
        place.with_suffix(".txt").write_text("\n".join(words), encoding="utf-8")
        return
    place.mkdir()
    for i in range(count):
        Image.new("RGB", (2, 2), (i % 256, 200, 90)).save(place / f"{i:04}.png")


@contextmanager
def surroundings() -> Iterator[None]:
    """What tiny checkpoints need to be loaded: doubles of libraries, a processor for MiniMax-H3,
    one thread.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with doubles.pretended(), processor():
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def processor() -> Iterator[None]:
    if find_spec("diffusers") is None:
        yield
        return
    kind = pipelines.diffusers().ModularPipeline
    load = kind.load_components

    def with_processor(pipe: Any, *args: Any, **kwargs: Any) -> None:
        load(pipe, *args, **kwargs)
        pipe.update_components(processor=pipelines.Processor())

    kind.load_components = with_processor
    try:
        yield
    finally:
        kind.load_components = load
