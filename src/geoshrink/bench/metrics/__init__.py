"""Metrics, one file per modality. fidelity(model) are the plain ones of a model of the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...zoo.model import Model
from .audio import si_sdr
from .base import Metric, SetMetric, Skipped
from .image import psnr
from .motion import mpjpe
from .shape import sdf_error


def frames_psnr(clips: Tensor, reference: Tensor) -> Tensor:
    """The mean over frames of their PSNR, of clips (n, channels, frames, height, width)."""
    flat, other = (c.transpose(1, 2).flatten(0, 1) for c in (clips, reference))
    return psnr(flat, other).reshape(len(clips), -1).mean(1)


def picture_psnr(values: Tensor, reference: Tensor, lengths: Sequence[int] | None) -> Tensor:
    return (frames_psnr if values.ndim == 5 else psnr)(values, reference)


PSNR = Metric("PSNR", "dB", True, picture_psnr)
SI_SDR = Metric("SI-SDR", "dB", True, lambda w, r, _: si_sdr(w, r))
MPJPE = Metric("MPJPE", "cm", False, lambda j, r, lengths: 100 * mpjpe(j, r, lengths))
SDF = Metric("SDF error", "‰", False, lambda f, r, _: 1000 * sdf_error(f, r))

OF_MODEL = {
    "digits-audio": [SI_SDR],
    "digits-av": [PSNR, SI_SDR],
    "motion": [MPJPE],
    "objects": [SDF],
}


def fidelity(model: Model) -> list[Metric]:
    """One metric per tensor of model.values(x)."""
    return OF_MODEL.get(model.name, [PSNR])


def values_of(model: Model, x: Any, lengths: Sequence[int] | None = None) -> list[Tensor]:
    """model.values(x) as a list, one tensor per metric of fidelity(model)."""
    values = model.values(x, lengths)
    return list(values) if isinstance(values, tuple) else [values]
