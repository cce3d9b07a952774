"""The columns of the paper's tables by name, in the paper's units, over bench/metrics.

Three kinds: a score of every sample, a distance between sets of samples, and what a tool in an
environment of its own says of exported samples. Missing weights raise Skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..metrics import audio, mel, mesh, motion
from ..metrics.base import Metric, Skipped
from ..metrics.clap import clap
from ..metrics.clip import clip_metrics
from ..metrics.external import IMAGE_REWARD, MTSCORE, VBENCH, chronomagic, imagereward, vbench
from ..metrics.frechet import frechet_distance
from ..metrics.lpips import LPIPS_ALEX
from ..metrics.video import FVD, i3d_logits
from ..metrics.weights import load
from ..metrics.zoo import PSNR, SSIM
from ..samples import Sample
from .prompts import Prompt

AT_ONCE = 8  # frames that a metric sees together


@dataclass(frozen=True)
class Tools:
    """What metrics are computed with: folders of checkpoints, and the device."""

    clip: str | Path | None = None
    clap: str | Path | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Column:
    """`higher` is better; another version is another metric."""

    name: str
    unit: str
    higher: bool
    version: str


@dataclass(frozen=True)
class Each(Column):
    """of(sample, full run's sample, prompt, tools): one number."""

    of: Callable[[Sample, Sample, Prompt, Tools], float]
    alone: bool = False  # needs no full run to compare with


@dataclass(frozen=True)
class Whole(Column):
    """of(features, the full runs' features); the features of each sample are kept."""

    features: Callable[[Sample, Tools], Tensor]
    of: Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Outside(Column):
    """export(folder, samples, prompts, fps) for a tool, then read(folder): one number for each
    sample, or one for all.
    """

    export: Callable[[Path, Iterable[Sample], Sequence[Prompt], float], None]
    read: Callable[[Path], list[float]]


def frames(sample: Sample, tools: Tools) -> Tensor:
    """Pictures in [0, 1]; of a mesh, its views."""
    if "vertices" in sample.parts:
        return sample.views.to(tools.device)
    return sample.part("frames").to(tools.device).float() / 255


def wave(sample: Sample, tools: Tools) -> Tensor:
    return sample.part("wave")[None].to(tools.device)


def joints(sample: Sample, tools: Tools) -> Tensor:
    return sample.part("joints")[None]


def meshes(sample: Sample, tools: Tools) -> list[Any]:
    return [sample.surface]


def centres(sample: Sample, tools: Tools) -> list[Any]:
    """Of Gaussians, where the sample has them, or of triangles."""
    if "centres" in sample.parts:
        return [sample.part("centres").numpy()]
    return meshes(sample, tools)


def iou(made: Sample, full: Sample, prompt: Prompt, tools: Tools) -> float:
    return mesh.iou(meshes(made, tools)[0], meshes(full, tools)[0])[0]


def visual(name: str, metric: Metric) -> Each:
    """The mean over frames."""

    def of(made: Sample, full: Sample, prompt: Prompt, tools: Tools) -> float:
        pairs = zip(frames(made, tools).split(AT_ONCE), frames(full, tools).split(AT_ONCE))
        return float(torch.cat([metric.of(a, b, None) for a, b in pairs]).mean())

    return Each(name, metric.unit, metric.higher, metric.version, of)


def paired(name: str, metric: Metric, values: Any, scale: float = 1.0, unit: str = "") -> Each:
    """scale: from the metric's unit to the paper's."""

    def of(made: Sample, full: Sample, prompt: Prompt, tools: Tools) -> float:
        return scale * float(metric.of(values(made, tools), values(full, tools), None).mean())

    return Each(name, unit or metric.unit, metric.higher, metric.version, of)


def mel_metric(i: int, made: Sample, full: Sample, prompt: Prompt, tools: Tools) -> float:
    metric = mel.mel_metrics(rate_of(made), full.rate)[i]
    return float(metric.of(wave(made, tools), wave(full, tools), None))


def clap_of(made: Sample, full: Sample, prompt: Prompt, tools: Tools) -> float:
    metric = clap(rate_of(made), tools.clap)
    return float(metric.of(wave(made, tools), [prompt.text], None))


def rate_of(sample: Sample) -> int:
    if sample.rate is None:
        raise ValueError("the sample does not say how many values of its sound are a second")
    return sample.rate


def clip_of(made: Sample, full: Sample, prompt: Prompt, tools: Tools) -> float:
    pictures = frames(made, tools)
    return float(
        clip_metrics(tools.clip)[0].of(pictures, [prompt.text] * len(pictures), None).mean()
    )


def clip_image(made: Sample, full: Sample, prompt: Prompt, tools: Tools) -> float:
    metric = clip_metrics(tools.clip)[1]
    return float(metric.of(frames(made, tools), frames(full, tools), None).mean())


def i3d(made: Sample, tools: Tools) -> Tensor:
    weights = load("i3d", device=tools.device)
    return i3d_logits(frames(made, tools).transpose(0, 1)[None], weights)[0].cpu()


def unknown(made: Sample, full: Sample, prompt: Prompt, tools: Tools) -> float:
    raise Skipped("needs the paper's embedder of motions and texts, which is not published")


def pictures(samples: Iterable[Sample]) -> Iterable[Tensor]:
    return (sample.part("frames")[0].float() / 255 for sample in samples)


def films(samples: Iterable[Sample]) -> Iterable[Tensor]:
    return (sample.part("frames").transpose(0, 1).float() / 255 for sample in samples)


def to_imagereward(folder: Path, samples: Iterable[Sample], prompts: Sequence[Prompt], _: float):
    imagereward.export(folder, pictures(samples), [p.text for p in prompts])


def to_mtscore(folder: Path, samples: Iterable[Sample], prompts: Sequence[Prompt], fps: float):
    chronomagic.export(folder, films(samples), [p.identifier for p in prompts], fps)


def to_vbench(folder: Path, samples: Iterable[Sample], prompts: Sequence[Prompt], fps: float):
    vbench.export(folder, films(samples), [p.text for p in prompts], fps)


def read_each(metric: Metric, folder: Path) -> list[float]:
    return metric.of(folder, None, None).tolist()


SHARE = 1e-4  # of mesh.CENTER_CD2 and mesh.SURFACE_CD2
COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        visual("PSNR", PSNR),
        visual("SSIM", SSIM),
        visual("LPIPS", LPIPS_ALEX),
        Each("CLIP", "", True, "1: text, mean over frames", clip_of, alone=True),
        Each("CLIP image", "", True, "1: image, mean over views", clip_image),
        Whole("FVD", "", False, FVD.version, i3d, frechet_distance),
        Outside("ImageReward", "", True, "1", to_imagereward, partial(read_each, IMAGE_REWARD)),
        Outside("MTScore", "%", True, "1", to_mtscore, partial(read_each, MTSCORE)),
        Outside("VBench", "%", True, VBENCH.version, to_vbench, lambda f: [VBENCH.of(f, None)]),
        Each("Mel Cos", "", True, "1", partial(mel_metric, 0)),
        Each("LogMel L1", "", False, "1", partial(mel_metric, 1)),
        paired("SI-SDR", audio.SI_SDR, wave),
        paired("LSD", audio.LSD, wave),
        paired("MS-STFT", audio.MS_STFT, wave),
        Each("CLAP", "", True, "1", clap_of, alone=True),
        paired("RA-MPJPE", motion.RA_MPJPE, joints),
        paired("Global MPJPE", motion.GLOBAL_MPJPE, joints),
        paired("RootErr", motion.ROOT_ERR, joints),
        paired("VelErr", motion.VEL_ERR, joints),
        paired("AccErr", motion.ACC_ERR, joints),
        Each("uTMR R@3", "", True, "1", unknown, alone=True),
        Each("Matching", "", False, "1", unknown, alone=True),
        paired("Center CD²", mesh.CENTER_CD2, centres, SHARE, "1"),
        paired("Surface CD²", mesh.SURFACE_CD2, meshes, SHARE, "1"),
        paired("Hausdorff", mesh.HAUSDORFF, meshes, 1e-2, "1"),
        Each("IoU", "", True, f"2: exact, on {mesh.SIDE}³ where a surface is open", iou),
        paired("Normal", mesh.NORMAL, meshes),
    )
}
