"""A suite on a checkpoint of the paper: a table or a figure, its protocol, the paper's numbers.

title: FLUX.1-dev on Pick-a-Pic
label: tab:main_comparison          # in the paper
host: flux                          # paper/hosts.py
prompts: {source: "Pick-a-Pic, test set", count: 100, take: first}
seeds: 5
steps: 50
call: {height: 1024, width: 1024, guidance_scale: 3.5}
columns: [PSNR, SSIM, LPIPS, ImageReward]
rows:
  - {method: GeoShrink (published), budget: 10, paper: {speedup: 4.98, PSNR: 21.6227}}
choices: ["what the paper does not say, and we chose"]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geoshrink.checks import is_number, whole
from geoshrink.compare.inputs import DTYPES

from ..methods.ours import FORMS
from ..methods.registry import METHODS
from ..paper.columns import COLUMNS
from ..paper.hosts import HOSTS
from ..paper.prompts import TAKES, Prompt
from ..schema import Key, anything, check_names, checked, count, list_of, mapping, one_of, text
from ..store import name_of
from ..words import Row

SPEEDUP = "speedup"


FULL = Row("full")


@dataclass(frozen=True)
class CheckpointSuite:
    title: str
    label: str
    host: str
    prompts: dict[str, Any]
    seeds: int
    steps: int
    columns: list[str]
    rows: list[Row]
    call: dict[str, Any]
    checkpoint: str
    dtype: str | None
    offload: str | None
    fps: float | None
    rate: int | None
    choices: list[str]
    source: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def read(cls, where: str, given: dict[str, Any]) -> CheckpointSuite:
        found = checked(where, given, KEYS)
        rows = [row_in(where, row, found["columns"], found["steps"]) for row in found["rows"]]
        return cls(**{**found, "rows": rows}, source=given)

    @property
    def name(self) -> str:
        return self.title

    def protocol(self) -> str:
        """What is run, in a sentence."""
        words = [f"{name} {value!r}" for name, value in self.call.items()]
        words += [f"{self.fps:g} frames per second"] if self.fps else []
        words += [f"{self.rate} Hz"] if self.rate else []
        count, source, take = (self.prompts[key] for key in ("count", "source", "take"))
        return (
            f"{count} prompts ({source}, {take}) × {self.seeds} seeds, {self.steps} steps, "
            f"{', '.join(words) or 'the defaults of the call'}. The paper's model: "
            f"{self.checkpoint}."
        )


def row_in(where: str, given: Any, columns: list[str], steps: int) -> Row:
    if not isinstance(given, Mapping) or "method" not in given:
        raise ValueError(f"{where}: a row is {{method: NAME, budget: B, …}}, got {given!r}")
    where = f"{where}: {given['method']}"
    row = Row(**checked(where, given, ROW))
    if row.budget is not None and not 1 <= whole(row.budget, f"{where}: budget") <= steps:
        raise ValueError(f"{where}: budget {row.budget} is not from 1 to its {steps} steps")
    if row.budget is None and (row.method == "direct" or row.method in FORMS):
        raise ValueError(f"{where} needs a budget")
    check_names(f"{where}: paper", row.paper, {SPEEDUP, *columns}, "column")
    for name, value in row.paper.items():
        if not is_number(value):
            raise ValueError(f"{where}: paper: {name} must be a number, got {value!r}")
    return row


def prompts_in(where: str, given: Any) -> dict[str, Any]:
    return checked(where, given, PROMPTS)


ROW = {
    "method": Key(one_of(METHODS)),
    "budget": Key(anything, None),
    "setting": Key(text, ""),
    "options": Key(mapping, {}),
    "paper": Key(mapping, {}),
}
PROMPTS = {"source": Key(text, ""), "count": Key(count), "take": Key(one_of(TAKES), "all")}
KEYS = {
    "title": Key(text),
    "label": Key(text),
    "host": Key(one_of(HOSTS)),
    "prompts": Key(prompts_in),
    "seeds": Key(count),
    "steps": Key(count),
    "columns": Key(list_of(one_of(COLUMNS), "metrics")),
    "rows": Key(list_of(anything, "rows")),
    "call": Key(mapping, {}),
    "checkpoint": Key(text, ""),
    "dtype": Key(one_of((None, *DTYPES)), None),
    "offload": Key(anything, None),
    "fps": Key(anything, None),
    "rate": Key(anything, None),
    "choices": Key(list_of(text, "sentences"), []),
}


class Cells:
    """The cells of a suite: enough to read them, without the model that made them.

    made    what else than the suite decides what a cell is: weights, dtype, on, version
    """

    def __init__(self, suite: CheckpointSuite, prompts: list[Prompt], made: Mapping[str, Any]):
        self.suite, self.prompts, self.made = suite, prompts, dict(made)

    def cases(self) -> list[tuple[Prompt, int]]:
        """Every prompt of the first seed, then of the next."""
        return [(prompt, seed) for seed in range(self.suite.seeds) for prompt in self.prompts]

    def spec(self, row: Row, prompt: Prompt, seed: int) -> dict[str, Any]:
        """All that decides what a sample is."""
        suite = self.suite
        return dict(
            self.made,
            host=suite.host,
            steps=suite.steps,
            call=suite.call,
            method=row.method,
            options=row.options,
            budget=row.budget,
            prompt=prompt.text,
            seed=seed,
            **({"picture": prompt.picture} if HOSTS[suite.host].pictures else {}),
        )


def sample_path(folder: Path, spec: dict[str, Any]) -> Path:
    return folder / "samples" / f"{name_of(spec)}.safetensors"
