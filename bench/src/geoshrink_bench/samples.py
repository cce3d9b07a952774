"""What cells keep to be looked at and measured later: samples, in a file each or some in one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoshrink.page import Media

from .kinds.films import Films
from .kinds.meshes import Meshes
from .kinds.sounds import Sounds
from .metrics import mesh
from .store import put_tensors, tensors_in
from .zoo.modalities import Modality


@dataclass(frozen=True)
class Sample:
    """One decoded sample: parts by name, and facts such as the rate of its sound.

    frames      (frames, channels, height, width), bytes or numbers in [0, 1]; a picture has one
    wave        (samples,) in float32, of `rate` per second
    joints      (frames, joints, 3) in metres
    vertices, faces     of a mesh
    centres     (n, 3) of Gaussians

    seen        how it is shown on a page, given words for it, if its modality knows
    """

    parts: dict[str, Tensor]
    facts: dict[str, Any] = field(default_factory=dict)
    seen: Callable[[str], Media] | None = None

    @property
    def rate(self) -> int | None:
        return self.facts.get("rate")

    def part(self, name: str) -> Tensor:
        if name not in self.parts:
            raise ValueError(f"the sample has {', '.join(self.parts)}, not {name}")
        return self.parts[name]

    @cached_property
    def surface(self) -> Any:
        """The mesh, as trimesh has it."""
        import trimesh

        return trimesh.Trimesh(self.part("vertices").numpy(), self.part("faces").numpy())

    @cached_property
    def views(self) -> Tensor:
        """Pictures of the mesh, in [0, 1]."""
        return mesh.render(self.surface)

    @classmethod
    def of(cls, made: Any) -> Sample:
        """The first of what geoshrink.compare shows: Pictures, Sounds, Films or Meshes."""
        if isinstance(made, Films):
            seen, heard = cls.of(made.video), cls.of(made.sound)
            return cls(seen.parts | heard.parts, heard.facts)
        if isinstance(made, Sounds):
            return cls({"wave": mono(made.waves[0])}, {"rate": made.rate})
        if isinstance(made, Meshes):
            return cls(surface_of(*made.meshes[0]))
        return cls({"frames": bytes_of(made.values[0])})

    def save(self, path: Path) -> None:
        put_tensors(path, self.parts, json.dumps(self.facts))

    @classmethod
    def load(cls, path: Path) -> Sample | None:
        """The sample of a file; None where it is missing or damaged."""
        found = tensors_in(path)
        if found is None:
            return None
        parts, texts = found
        facts = json.loads(texts.get("about", "{}"))
        if texts.get("rate"):  # as the first files said it
            facts["rate"] = int(texts["rate"])
        return cls(parts, facts)


def write_samples(path: Path, case: Any, values: Sequence[Tensor], count: int) -> None:
    """The first samples of a ZooCase in half precision, with what is needed to draw them without
    the model.
    """
    known = case.model.facts.get("data", {})
    about = dict(
        labels=[case.model.classes[int(i)] for i in case.model.labels(case.labels[:count])],
        lengths=case.lengths and list(case.lengths[:count]),
        facts={key: known[key] for key in case.model.recipe.modality.drawn_with if key in known},
    )
    tensors = {str(i): part[:count].half().cpu() for i, part in enumerate(values)}
    put_tensors(path, tensors, json.dumps(about, ensure_ascii=False))


@dataclass(frozen=True)
class Samples:
    """Some samples of a model of the zoo: a tensor for each part, labels, lengths, facts."""

    values: list[Tensor]
    labels: list[str]
    lengths: list[int] | None
    facts: dict[str, Any]

    def sample(self, i: int, modality: Modality) -> Sample:
        """One sample, shown as the modality does."""
        length = None if self.lengths is None else self.lengths[i]
        values = [part[i] for part in self.values]
        return Sample({}, self.facts, partial(modality.medium, values, self.facts, length))


def read_samples(path: Path) -> Samples | None:
    """None where they were not kept, or the file is damaged."""
    found = tensors_in(path)
    if found is None:
        return None
    tensors, texts = found
    try:
        about = json.loads(texts["about"])
        values = [tensors[str(i)].float() for i in range(len(tensors))]
        return Samples(values, about["labels"], about["lengths"], about["facts"])
    except (KeyError, TypeError, ValueError):
        return None


def bytes_of(frames: Tensor) -> Tensor:
    """Pictures in [0, 1] in 8 bits; what is not finite is an error."""
    if not frames.isfinite().all():
        raise ValueError("the pictures have pixels that are infinite or no number: another dtype?")
    return (255 * frames.clamp(0, 1)).round().byte().cpu()


def mono(waves: Tensor) -> Tensor:
    """(channels, samples) mixed to one; what is not finite is an error."""
    if not waves.isfinite().all():
        raise ValueError("the sound is infinite or no number: another dtype?")
    return waves.float().mean(0).cpu()


def surface_of(vertices: Any, faces: Any) -> dict[str, Tensor]:
    """The parts of a mesh, which must have a surface."""
    corners, triangles = torch.as_tensor(vertices).float(), torch.as_tensor(faces).long()
    if not len(triangles):
        raise ValueError("the model made no surface")
    if not corners.isfinite().all():
        raise ValueError("the surface has corners that are infinite or no number: another dtype?")
    return {"vertices": corners, "faces": triangles}
