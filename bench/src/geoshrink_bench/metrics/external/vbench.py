"""VBench (Huang et al., 2024): sixteen dimensions of text-to-video, and their weighted total.

The standard mode wants the prompts of VBench, up to five samples of each, in files named
"PROMPT-INDEX.mp4". The custom mode takes any prompts, for nine of the dimensions and no total.
Temporal flickering is that of all clips: VBench's filter of still ones is not applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..base import SetMetric, Skipped
from . import folder as exported
from .folder import Manifest, Sample, check_complete, field, load_json, number, some

SAMPLES = 5  # of a prompt; the standard mode looks at no more

#: Of each dimension: lowest and highest value, which become 0 and 1, and its weight.
QUALITY = {
    "subject_consistency": (0.1462, 1.0, 1.0),
    "background_consistency": (0.2615, 1.0, 1.0),
    "temporal_flickering": (0.6293, 1.0, 1.0),
    "motion_smoothness": (0.706, 0.9975, 1.0),
    "dynamic_degree": (0.0, 1.0, 0.5),
    "aesthetic_quality": (0.0, 1.0, 1.0),
    "imaging_quality": (0.0, 1.0, 1.0),
}
SEMANTIC = {
    "object_class": (0.0, 1.0, 1.0),
    "multiple_objects": (0.0, 1.0, 1.0),
    "human_action": (0.0, 1.0, 1.0),
    "color": (0.0, 1.0, 1.0),
    "spatial_relationship": (0.0, 1.0, 1.0),
    "scene": (0.0, 0.8222, 1.0),
    "appearance_style": (0.0009, 0.2855, 1.0),
    "temporal_style": (0.0, 0.364, 1.0),
    "overall_consistency": (0.0, 0.364, 1.0),
}
QUALITY_WEIGHT, SEMANTIC_WEIGHT = 4, 1
DIMENSIONS = {**QUALITY, **SEMANTIC}
CUSTOM = (*QUALITY, "temporal_style", "overall_consistency")


@dataclass(frozen=True)
class Scores:
    """As VBench gives them, in [0, 1]: by dimension, and by dimension and file."""

    version: str
    dimensions: dict[str, float]
    films: dict[str, dict[str, float]]


def export(
    folder: str | Path,
    clips: Iterable[Tensor],
    prompts: Sequence[str],
    fps: float,
    custom: bool = False,
) -> None:
    """Writes clips (channels, frames, height, width) in [0, 1], one per prompt, for VBench.

    A prompt given several times has several samples, in that order.
    """
    numbers = exported.numbered(prompts)
    if custom:
        samples = [Sample(f"films/{n:05}.mp4", p, i) for n, (p, i) in enumerate(numbers)]
    else:
        samples = [Sample(f"films/{file_name(p, i)}", p, i) for p, i in numbers]
    exported.export_films("VBench", folder, clips, samples, fps, custom=custom)
    if custom:
        named = {Path(s.file).name: s.prompt for s in samples}
        exported.save_json(Path(folder) / "prompts.json", named)


def file_name(prompt: str, index: int) -> str:
    if index >= SAMPLES:
        raise ValueError(f"VBench looks at {SAMPLES} samples of a prompt; more of {prompt!r}")
    name = f"{prompt}-{index}.mp4"
    if "/" in prompt or "\0" in prompt or len(name.encode()) > 255:
        raise ValueError(f"{prompt!r} cannot be a file's name: use custom=True")
    return name


def command(folder: str | Path, dimensions: Sequence[str] | None = None) -> str:
    """What to type where vbench is installed; one run per dimension."""
    custom = exported.manifest_of("VBench", folder).facts["custom"]
    known = CUSTOM if custom else tuple(DIMENSIONS)
    wanted = known if dimensions is None else tuple(dimensions)
    unknown = [d for d in wanted if d not in known]
    if unknown or not wanted:
        raise ValueError(f"no dimension {some(unknown)} for these samples; there are {known}")
    films, results, prompts = exported.quoted(folder, "films", "results", "prompts.json")
    mode = f" --mode custom_input --prompt_file {prompts}" if custom else ""
    return (
        f"{exported.version_line('vbench', results)}"
        f"for dimension in {' '.join(wanted)}; do\n"
        f"  vbench evaluate --videos_path {films} --output_path {results}{mode}"
        " --dimension $dimension\n"
        "done"
    )


def read(folder: str | Path) -> Scores:
    """The scores in results/: *_eval_results.json, each beside its *_full_info.json."""
    manifest = exported.manifest_of("VBench", folder)
    found = sorted((Path(folder) / "results").glob("*_eval_results.json"))
    if not found:
        raise Skipped(f"VBench has not run. In its own environment:\n{command(folder)}")
    dimensions: dict[str, float] = {}
    films: dict[str, dict[str, float]] = {}
    for path in found:
        results = load_json(path)
        info = load_json(path.with_name(path.name.replace("_eval_results", "_full_info")))
        if not isinstance(results, dict) or not isinstance(info, list):
            raise ValueError(f"{path} should hold dimensions, and its full_info a list")
        for name, entry in results.items():
            if name not in DIMENSIONS or name in dimensions:
                known = "is in two files: delete the older" if name in dimensions else "is unknown"
                raise ValueError(f"{path}: dimension {name!r} {known}")
            dimensions[name], films[name] = parsed(f"{path}: {name}", name, entry)
            check_whole(f"{path}: {name}", name, films[name], info, manifest)
    return Scores(exported.version_of(folder), dimensions, films)


def parsed(where: str, name: str, entry: Any) -> tuple[float, dict[str, float]]:
    """[score, [{"video_path", "video_results"}, …]]; imaging quality is up to 100 per film."""
    whole = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list)
    if not whole or not entry[1]:
        raise ValueError(f"{where} must be a score and a list of films, is {entry!r:.80}")
    scale = 100 if name == "imaging_quality" else 1
    films = {}
    for each in entry[1]:
        file = str(field(each, "video_path", where)).replace("\\", "/").split("/")[-1]
        films[file] = number(field(each, "video_results", where), f"{where}: {file}") / scale
    return number(entry[0], where), films


def check_whole(
    where: str, name: str, films: Mapping[str, float], info: list[Any], manifest: Manifest
) -> None:
    """Every prompt of the dimension was sampled, and every sample has a score.

    Not so for color, where VBench leaves out the films in which it finds no object.
    """
    wanted = manifest.prompts()
    if not manifest.facts["custom"]:
        asked = [e for e in info if name in field(e, "dimension", where)]
        wanted = [field(e, "prompt_en", where) for e in asked]
    files = {prompt: manifest.files(prompt) for prompt in wanted}
    missing = [p for p in wanted if not files[p] or (name != "color" and files[p] - films.keys())]
    check_complete(where, missing, sorted(films.keys() - set().union(*files.values())))


def total(dimensions: Mapping[str, float]) -> dict[str, float]:
    """Quality, semantic and total score in [0, 1]: weighted means of the min–max values.

    A missing dimension is an error here; VBench's own script counts it as zero.
    """
    missing = [name for name in DIMENSIONS if name not in dimensions]
    if missing:
        raise ValueError(f"VBench's total needs all {len(DIMENSIONS)} dimensions, not {missing}")

    def mean(of: Mapping[str, tuple[float, float, float]]) -> float:
        scaled = (w * (dimensions[d] - low) / (high - low) for d, (low, high, w) in of.items())
        return sum(scaled) / sum(w for _, _, w in of.values())

    quality, semantic = mean(QUALITY), mean(SEMANTIC)
    both = QUALITY_WEIGHT * quality + SEMANTIC_WEIGHT * semantic
    return dict(quality=quality, semantic=semantic, total=both / (QUALITY_WEIGHT + SEMANTIC_WEIGHT))


VBENCH = SetMetric(
    "VBench",
    "%",
    True,
    lambda folder, _: 100 * total(read(folder).dimensions)["total"],
    "1: constants of 0.1.5",
)
