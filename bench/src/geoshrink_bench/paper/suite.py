"""A table or a figure of the paper as a suite: its protocol, its rows, the paper's own numbers.

title: FLUX.1-dev on Pick-a-Pic
label: tab:main_comparison          # in the paper
host: flux                          # hosts.py
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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from geoshrink.checks import is_number, whole
from geoshrink.compare.inputs import DTYPES

from ..methods.registry import METHODS
from ..suite import check, load
from .columns import COLUMNS
from .hosts import HOSTS
from .prompts import TAKES

REQUIRED = ("title", "label", "host", "prompts", "seeds", "steps", "columns", "rows")
KEYS = {*REQUIRED, "checkpoint", "dtype", "offload", "call", "fps", "rate", "choices"}
ROW_KEYS = {"method", "budget", "setting", "options", "paper"}
PROMPT_KEYS = {"source", "count", "take"}
SPEEDUP = "speedup"


@dataclass(frozen=True)
class Row:
    """One method as the paper sets it, and the numbers that the paper gives for it."""

    method: str
    budget: int | None = None
    setting: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        parts = [self.setting, "" if self.budget is None else f"B = {self.budget}"]
        said = ", ".join(part for part in parts if part)
        return f"{self.method}, {said}" if said else self.method


FULL = Row("full")


@dataclass(frozen=True)
class Suite:
    title: str
    label: str
    host: str
    source: str
    count: int
    take: str
    seeds: int
    steps: int
    columns: list[str]
    rows: list[Row]
    call: dict[str, Any] = field(default_factory=dict)
    checkpoint: str = ""
    dtype: str | None = None
    offload: str | None = None
    fps: float | None = None
    rate: int | None = None
    choices: list[str] = field(default_factory=list)


def suites() -> dict[str, Any]:
    """The files of the paper's suites, by name."""
    folder = files("geoshrink_bench.paper") / "suites"
    found = [f for f in folder.iterdir() if f.name.endswith(".yaml")]
    return {f.name[:-5]: f for f in sorted(found, key=lambda f: f.name)}


def is_suite(source: Any) -> bool:
    """Whether it is one of the paper's by its name, or a file that names a host."""
    if str(source) in suites():
        return True
    return Path(str(source)).is_file() and "host" in load(Path(source))


def source_of(source: Any) -> dict[str, Any]:
    """A suite as it is written."""
    if isinstance(source, Mapping):
        return dict(source)
    known, where = suites(), str(source)
    if where not in known and not Path(where).is_file():
        raise ValueError(f"no suite and no file {where!r}; there are {', '.join(known)}")
    return load(Path(str(known.get(where, where))))


def read(source: Any, change: Mapping[str, Any] | None = None, name: str = "") -> Suite:
    """A suite by its name, from a YAML file or a dictionary, with some of its keys changed.

    change    new values, such as {"seeds": 1, "prompts": {"count": 8}}
    name      what errors call a dictionary
    """
    given = source_of(source)
    where = (name or "the suite") if isinstance(source, Mapping) else str(source)
    for key, value in (change or {}).items():
        inner = isinstance(value, Mapping) and isinstance(given.get(key), Mapping)
        given[key] = {**given[key], **value} if inner else value
    check(where, given, KEYS, "key")
    missing = [key for key in REQUIRED if key not in given]
    if missing:
        raise ValueError(f"{where} has no {missing[0]}")
    prompts = dict(given.pop("prompts"))
    check(f"{where}: prompts", prompts, PROMPT_KEYS, "key")
    check_choice(f"{where}: prompts: take", prompts.setdefault("take", "all"), TAKES)
    check_choice(f"{where}: host", given["host"], HOSTS)
    check_choice(f"{where}: dtype", given.get("dtype", "bf16"), DTYPES)
    for name in given["columns"]:
        check_choice(f"{where}: column", name, COLUMNS)
    numbers = {key: given[key] for key in ("seeds", "steps")} | {"count": prompts.get("count")}
    for key, value in numbers.items():
        if whole(value, f"{where}: {key}") < 1:
            raise ValueError(f"{where}: {key} must be at least 1, got {value!r}")
    rows = [row_of(where, row, given["columns"], given["steps"]) for row in given.pop("rows")]
    if not rows:
        raise ValueError(f"{where} has no rows")
    return Suite(
        rows=rows,
        source=str(prompts.get("source", "")),
        count=prompts["count"],
        take=prompts["take"],
        **given,
    )


def check_choice(where: str, value: Any, known: Any) -> None:
    if value not in known:
        raise ValueError(f"{where}: no {value!r}; there are {', '.join(known)}")


def row_of(where: str, given: Any, columns: Sequence[str], steps: int) -> Row:
    if not isinstance(given, Mapping) or "method" not in given:
        raise ValueError(f"{where}: a row is {{method: NAME, budget: B, …}}, got {given!r}")
    row = Row(**checked(f"{where}: {given['method']}", given))
    where = f"{where}: {row.method}"
    check_choice(f"{where}: method", row.method, METHODS)
    if row.budget is not None and not 1 <= whole(row.budget, f"{where}: budget") <= steps:
        raise ValueError(f"{where}: budget {row.budget} is not from 1 to its {steps} steps")
    if row.budget is None and (row.method == "direct" or "GeoShrink" in row.method):
        raise ValueError(f"{where} needs a budget")
    check(f"{where}: paper", row.paper, {SPEEDUP, *columns}, "column")
    for name, value in row.paper.items():
        if not is_number(value):
            raise ValueError(f"{where}: paper: {name} must be a number, got {value!r}")
    return row


def checked(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    check(where, given, ROW_KEYS, "key")
    return dict(given)
