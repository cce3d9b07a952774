"""MTScore of ChronoMagic-Bench (Yuan et al., 2024): how much of a metamorphosis a film shows.

InternVideo2 says which five of ten sentences fit a film best, five of which speak of time lapses;
the score is the probability on those. The prompts' identifiers name the files.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..base import Metric, Skipped
from . import folder as exported
from .folder import Manifest, Sample, check_complete, field, load_json, number

CHECKPOINT = "InternVideo2-stage2_1b-224p-f4.pt"
FORBIDDEN = set('/\\\0 "')


@dataclass(frozen=True)
class Scores:
    """In [0, 1], one per exported sample."""

    version: str
    metamorphic: list[float]


def export(
    folder: str | Path, clips: Iterable[Tensor], identifiers: Sequence[str], fps: float
) -> None:
    """Writes clips (channels, frames, height, width) in [0, 1], one per prompt's identifier.

    An identifier given several times ("3d_printing_08") has several samples, in that order. Each
    index is a folder, which the tool takes for a model of the closed kind.
    """
    numbers = exported.numbered(identifiers)
    bad = [name for name, _ in numbers if FORBIDDEN & set(name)]
    if bad:
        raise ValueError(f"an identifier is a file's name, such as 3d_printing_08; not {bad[0]!r}")
    samples = [Sample(f"films/{model(i)}/{name}.mp4", name, i) for name, i in numbers]
    exported.export_films("MTScore", folder, clips, samples, fps)


def model(index: int) -> str:
    return f"sample-{index}"


def models(manifest: Manifest) -> list[str]:
    return [model(i) for i in range(1 + max(s.index for s in manifest.samples))]


def command(folder: str | Path, checkpoint: str | Path = CHECKPOINT) -> str:
    """What to type in the folder MTScore of ChronoMagic-Bench, in its environment."""
    names = " ".join(models(exported.manifest_of("MTScore", folder)))
    films, results = exported.quoted(folder, "films", "results")
    return (
        f'echo "ChronoMagic-Bench $(git rev-parse HEAD)" > {results}/version.txt\n'
        f"python step0-get_MTScore.py --eval_type close --model_names {names}"
        f" --input_folder {films} --output_folder {results}"
        f" --model_pth {shlex.quote(str(checkpoint))}"
    )


def read(folder: str | Path) -> Scores:
    """The scores in results/sample-N_1_MTScore.json."""
    manifest = exported.manifest_of("MTScore", folder)
    results = Path(folder) / "results"
    if not any(results.glob("*_MTScore.json")):
        raise Skipped(f"MTScore has not run. In its own environment:\n{command(folder)}")
    found = {name: scores_of(results / f"{name}_1_MTScore.json") for name in models(manifest)}
    keys = [(model(s.index), Path(s.file).name) for s in manifest.samples]
    missing = [s.prompt for s, (m, file) in zip(manifest.samples, keys) if file not in found[m]]
    strange = {(m, file) for m, scores in found.items() for file in scores} - set(keys)
    check_complete(str(results), missing, (f"{m}/{file}" for m, file in sorted(strange)))
    return Scores(exported.version_of(folder), [found[m][file] for m, file in keys])


def scores_of(path: Path) -> dict[str, float]:
    """{"video_scores": [{"video_name", "metamorphic_score"}, …]} as file → score."""
    scores = {}
    entries = field(load_json(path), "video_scores", str(path))
    if not isinstance(entries, list):
        raise ValueError(f"{path}: video_scores must be a list, is {entries!r:.80}")
    for entry in entries:
        name = str(field(entry, "video_name", str(path)))
        score = number(field(entry, "metamorphic_score", str(path)), f"{path}: {name}")
        if not 0 <= score <= 1.001:
            raise ValueError(f"{path}: {name} must be a probability, is {score}")
        scores[name] = score
    return scores


MTSCORE = Metric(
    "MTScore",
    "%",
    True,
    lambda folder, _, __: 100 * torch.tensor(read(folder).metamorphic, dtype=torch.float64),
)
