"""What a host returned, recognised: pictures, video, film with sound, sound, meshes, motion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..hosts.host import HEARD, RATES, SEEN
from .kinds import Made, kind_of
from .pictures import FPS, Pictures, floats

SHAPES = ("meshes", "mesh")


def shown(output: Any, kind: str, host: Any = None, fps: float = FPS) -> Made:
    """The output of a host of this kind, as what compare can score and show."""
    if isinstance(output, Made):
        return output
    pictures = pictures_of(output, fps)
    waves = field(output, HEARD)
    if waves is None and pictures is None and is_wave(output):
        waves = output[0]
    if waves is not None:
        rate = rate_of(output) or rate_of(host)
        if rate is None:
            raise TypeError(
                f"{kind} does not say the sampling rate of its sound: let a builder return it with "
                "a function that returns geoshrink.compare.Sounds(waves, rate)"
            )
        sounds: Any = kind_of("Sounds")(batch_of(waves), rate)
        if pictures is None:
            return sounds
        seconds = sounds.waves.shape[-1] / sounds.rate
        return kind_of("Films")(replace(pictures, fps=pictures.values.shape[1] / seconds), sounds)
    if pictures is not None:
        return pictures
    found = field(output, SHAPES)
    meshes = flat(output if found is None else found)
    if meshes:
        return kind_of("Meshes")(meshes)
    fields = [*output] if isinstance(output, Mapping) else [type(output).__name__]
    raise TypeError(
        f"{kind} returns {', '.join(map(str, fields))}, which compare cannot show: let a builder "
        "return it with a function that returns Pictures, Films, Sounds, Meshes or Motions of "
        "geoshrink.compare"
    )


def field(output: Any, names: tuple[str, ...]) -> Any:
    """The first of these attributes, or keys of a dict, that holds something."""
    get = output.get if isinstance(output, Mapping) else lambda name: getattr(output, name, None)
    return next((found for name in names if (found := get(name)) is not None), None)


def pictures_of(output: Any, fps: float) -> Pictures | None:
    """As (samples, frames, channels, height, width)."""
    seen, video = field(output, SEEN), field(output, SEEN[:3]) is not None
    found = floats(output if seen is None else seen)
    if found is None or found.ndim not in (4, 5):
        return None
    moving = found.ndim == 5 or video
    if found.ndim == 4:
        found = found[None] if moving else found[:, None]
    return Pictures(found.clamp(0, 1), moving, fps)


def is_wave(output: Any) -> bool:
    """(wave, rate)."""
    return isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], int)


def rate_of(found: Any) -> int | None:
    """The sampling rate that an output names, or the parts of a host, in hertz."""
    if is_wave(found):
        return found[1]
    parts = [getattr(found, name, None) for name in ("vocoder", "audio_vae", "vae")]
    configs = [getattr(part, "config", None) for part in parts]
    owners = [owner for owner in (found, *parts, *configs) if owner is not None]
    return next((rate for o in owners if isinstance(rate := field(o, RATES), int)), None)


def batch_of(waves: Any) -> Tensor:
    """Waves of one length, alone or in a list, as (samples, …)."""
    if isinstance(waves, (list, tuple)):
        return torch.stack([torch.as_tensor(wave) for wave in waves])
    waves = torch.as_tensor(waves)
    return waves[None] if waves.ndim == 1 else waves


def flat(found: Any) -> list[Any]:
    """Meshes of a list of lists, or one mesh alone; an empty list if there are none."""
    if hasattr(found, "vertices") and hasattr(found, "faces"):
        return [found]
    if not isinstance(found, (list, tuple)):
        return []
    each = [[part] if part is None else flat(part) for part in found]
    meshes = [mesh for part in each for mesh in part] if all(each) else []
    return meshes if any(mesh is not None for mesh in meshes) else []
