"""One decoded sample: the parts of it that were made, as tensors, and its file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from ..metrics import mesh
from ..store import put


@dataclass(frozen=True)
class Sample:
    """parts by name:

    frames      (frames, channels, height, width) in bytes; a picture has one
    wave        (samples,) in float32, of `rate` per second
    joints      (frames, joints, 3) in metres
    vertices, faces     of a mesh
    centres     (n, 3) of Gaussians
    """

    parts: dict[str, Tensor]
    rate: int | None = None

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

    def save(self, path: Path) -> None:
        from safetensors.torch import save

        parts = {name: part.contiguous() for name, part in self.parts.items()}
        put(path, save(parts, {"rate": str(self.rate or "")}))

    @classmethod
    def load(cls, path: Path) -> Sample | None:
        """The sample of a file; None where there is none, or a damaged one."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                rate = (file.metadata() or {}).get("rate")
                parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            return None
        return cls(parts, int(rate) if rate else None)


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
