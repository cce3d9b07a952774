"""ImageReward (Xu et al., 2023): what people prefer, of a picture and its prompt.

About 0 on average and 1 in spread over the pictures it was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base import Metric, Skipped
from . import folder as exported
from .folder import Sample, check_complete, field, load_json, number
from .media import write_png

NAME, MODEL = "ImageReward-v1.0", "geoshrink"
RESULT = f"results/{NAME}/{NAME}-benchmark-{MODEL}-result.json"


@dataclass(frozen=True)
class Scores:
    """One per exported sample."""

    version: str
    rewards: list[float]


def export(folder: str | Path, pictures: Iterable[Tensor], prompts: Sequence[str]) -> None:
    """Writes pictures (channels, height, width) in [0, 1], one per prompt, for ImageReward.

    A prompt given several times has several samples, in that order.
    """
    numbers = exported.numbered(prompts)
    identifier = {p: f"{n:05}" for n, p in enumerate(dict.fromkeys(prompts))}
    samples = [Sample(f"pictures/{MODEL}/{identifier[p]}_{i}.png", p, i) for p, i in numbers]
    exported.export("ImageReward", folder, pictures, samples, write_png)
    asked = [{"id": name, "prompt": prompt} for prompt, name in identifier.items()]
    exported.save_json(Path(folder) / "prompts.json", asked)


def command(folder: str | Path) -> str:
    """What to type in a clone of ImageReward, in its environment."""
    exported.manifest_of("ImageReward", folder)
    pictures, results, prompts = exported.quoted(folder, "pictures", "results", "prompts.json")
    return (
        f"{exported.version_line('image-reward', results)}"
        f"python test-benchmark.py --benchmark {NAME} --model {MODEL}"
        f" --prompts_path {prompts} --img_dir {pictures} --result_dir {results}"
    )


def read(folder: str | Path) -> Scores:
    """The rewards of every sample."""
    manifest = exported.manifest_of("ImageReward", folder)
    path = Path(folder) / RESULT
    if not path.is_file():
        raise Skipped(f"ImageReward has not run. In its own environment:\n{command(folder)}")
    items = load_json(path)
    if not isinstance(items, list):
        raise ValueError(f"{path} must be a list of prompts, is {items!r:.80}")
    found = {}
    for item in items:
        prompt = field(item, "prompt", str(path))
        found[prompt] = flat(field(item, "rewards", str(path)), f"{path}: {prompt!r}")
    wanted = {prompt: len(manifest.files(prompt)) for prompt in manifest.prompts()}
    missing = [p for p, count in wanted.items() if len(found.get(p, [])) != count]
    check_complete(str(path), missing, (p for p in found if p not in wanted))
    rewards = [found[s.prompt][s.index] for s in manifest.samples]
    return Scores(exported.version_of(folder), rewards)


def flat(rewards: Any, where: str) -> list[float]:
    """Numbers in a list, each in a list of its own, or, of a single picture, a bare number."""
    if not isinstance(rewards, list):
        return [number(rewards, where)]
    return [number(r[0] if isinstance(r, list) and len(r) == 1 else r, where) for r in rewards]


IMAGE_REWARD = Metric(
    "ImageReward",
    "",
    True,
    lambda folder, _, __: torch.tensor(read(folder).rewards, dtype=torch.float64),
    NAME,
)
