"""Which metrics a model of the zoo is measured by, and what each of them looks at.

The plain ones come first: one for each tensor of a sample, cheap, without weights of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from geoshrink.compare.likeness import psnr, ssim

from ..zoo.modalities.objects import mesh_of
from .audio import LSD, MS_STFT, SI_SDR
from .base import Metric, SetMetric, Skipped
from .frechet import ACCURACY, FID, FRECHET, TO_REAL
from .lpips import LPIPS_ALEX, LPIPS_VGG
from .mel import mel_metrics
from .mesh import CENTER_CD2, HAUSDORFF, IOU, NORMAL, SURFACE_CD2
from .motion import ACC_ERR, GLOBAL_MPJPE, RA_MPJPE, ROOT_ERR, VEL_ERR, mpjpe
from .shape import sdf_error
from .video import FLICKERING, FRAME_LPIPS, FRAME_SSIM, FVD, per_frame
from .weights import there

Scores = list[float] | float | str


def picture_psnr(values: Tensor, reference: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """Of pictures; of films the mean over frames."""
    return per_frame(psnr, values, reference) if values.ndim == 5 else psnr(values, reference)


PSNR = Metric("PSNR", "dB", True, picture_psnr)
SSIM = Metric("SSIM", "", True, lambda x, y, _: ssim(x, y))
MPJPE = Metric("MPJPE", "cm", False, lambda j, r, lengths: 100 * mpjpe(j, r, lengths))
SDF = Metric("SDF error", "‰", False, lambda f, r, _: 1000 * sdf_error(f, r))
RATE = 8000  # Hz, of the zoo's sound


def plain(values: Tensor) -> Tensor:
    return values


def meshes(values: Tensor) -> list[Any]:
    return [mesh_of(field) for field in values.float().cpu().numpy()]


@dataclass(frozen=True)
class Measured:
    """A metric, the tensor of a sample that it looks at, and as what."""

    metric: Metric | SetMetric
    part: int = 0
    view: Callable[[Tensor], Any] = plain
    of_classes: bool = False  # compared with the classes asked for, not with the reference

    @property
    def name(self) -> str:
        return self.metric.name

    def possible(self) -> bool:
        """Whether it needs weights, and all of them are there."""
        return bool(self.metric.needs) and all(map(there, self.metric.needs))

    def of(
        self, values: Sequence[Tensor], reference: Sequence[Tensor], lengths: Any, classes: Any
    ) -> Scores:
        """One number per sample, or one for all; "skipped: reason" where there is none.

        JSON knows no infinity: what agrees to the last bit is 999. What is no number is an error.
        """
        own = self.view(values[self.part])
        other = classes if self.of_classes else self.view(reference[self.part])
        try:
            if isinstance(self.metric, SetMetric):
                return float(self.metric.of(own, other))
            return rounded(self.metric.of(own, other, lengths))
        except Skipped as reason:
            return f"skipped: {reason}"


def rounded(each: Tensor) -> list[float]:
    if each.isnan().any():
        raise ValueError(f"{int(each.isnan().sum())} of {len(each)} samples are no numbers")
    return [999.0 if v == float("inf") else round(v, 5) for v in each.double().tolist()]


def sound(part: int = 0) -> list[Measured]:
    return [Measured(metric, part) for metric in (LSD, MS_STFT, *mel_metrics(RATE))]


def recognised(name: str, part: int = 0) -> list[Measured]:
    """By the zoo's classifier: how often, and how far the features of the set are off, from the
    reference and from real data.
    """
    sets = [Measured(metric[name], part) for metric in (FRECHET, TO_REAL)]
    return [Measured(ACCURACY[name], part, of_classes=True), *sets]


PICTURES = [*map(Measured, (PSNR, SSIM, LPIPS_ALEX, LPIPS_VGG, FID)), *recognised("fruit")]
OF_MODEL = {
    "fruit-video": [
        *map(Measured, (PSNR, FRAME_SSIM, FRAME_LPIPS, FVD, FLICKERING)),
        *recognised("fruit-video"),
    ],
    "digits-audio": [Measured(SI_SDR), *sound(), *recognised("digits-audio")],
    "digits-av": [
        Measured(PSNR),
        Measured(SI_SDR, 1),
        *sound(1),
        *recognised("digits-picture"),
        *recognised("digits-audio", 1),
    ],
    "motion": list(map(Measured, (MPJPE, RA_MPJPE, GLOBAL_MPJPE, ROOT_ERR, VEL_ERR, ACC_ERR))),
    "objects": [
        Measured(SDF),
        *(Measured(m, view=meshes) for m in (CENTER_CD2, SURFACE_CD2, HAUSDORFF, IOU, NORMAL)),
    ],
}


def metrics_of(model: str, chosen: str | Sequence[str] = "plain") -> list[Measured]:
    """ "plain", "all", or those of these names that the model has."""
    every = OF_MODEL.get(model, PICTURES)
    if chosen == "all":
        return list(every)
    if chosen == "plain":
        chosen = {"digits-av": ["PSNR", "SI-SDR"]}.get(model, [every[0].name])
    return [measured for measured in every if measured.name in chosen]


def names() -> list[str]:
    """Of all metrics of the zoo."""
    return list(dict.fromkeys(m.name for part in (PICTURES, *OF_MODEL.values()) for m in part))
