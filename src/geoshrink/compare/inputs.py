"""What people pass to `geoshrink compare`, checked before anything expensive runs."""

from __future__ import annotations

import json
import math
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..checks import is_number, whole
from ..hosts import Host

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
#: Arguments of a call that would take the steps from compare.
GRIDS = ("sigmas", "timesteps")


@dataclass(frozen=True)
class Settings:
    """`model` is a folder that diffusers saved, or a builder 'package.module:function'; the name
    of its class where the host was built already.
    """

    model: str
    prompts: tuple[str, ...] = ()
    steps: int = 50
    budgets: tuple[int, ...] = (7, 10, 15)
    guidance: float | None = None
    seed: int = 0
    height: int | None = None
    width: int | None = None
    frames: int | None = None
    dtype: str | None = None
    device: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Everything that can be refused without loading a model."""
        if self.steps < 5:
            raise ValueError(f"steps {self.steps} are too few: fewer than 5 leave nothing to skip")
        if self.guidance is not None and not math.isfinite(self.guidance):
            raise ValueError(f"guidance is a finite number, got {self.guidance!r}")
        if not self.budgets:
            raise ValueError("no budgets: give at least one")
        for budget in self.budgets:
            if budget < 4:
                raise ValueError(f"budget {budget} is too small: at least 4 stages are queried")
            if budget >= self.steps:
                raise ValueError(f"budget {budget} is not below the {self.steps} steps")
        for what in ("budgets", "prompts"):
            object.__setattr__(self, what, tuple(dict.fromkeys(getattr(self, what))))
        if not all(prompt.strip() for prompt in self.prompts):
            raise ValueError("a prompt is empty")
        if self.dtype not in (None, *DTYPES):
            raise ValueError(f"unknown dtype {self.dtype!r}; choose one of {', '.join(DTYPES)}")
        check_device(self.device)
        for name in (*Host.sets, *GRIDS):
            if name in self.kwargs:
                raise ValueError(f"compare sets the steps and the output: leave out {name!r}")

    @property
    def name(self) -> str:
        folder = Path(self.model)
        return folder.resolve().name if folder.is_dir() else self.model

    def command(self) -> str:
        """What makes the same page again."""
        if ":" not in self.model and not Path(self.model).is_dir():
            numbers = f"steps={self.steps}, budgets={self.budgets}, seed={self.seed}"
            return f"geoshrink.compare.compare({self.model}, …, {numbers})"
        words = ["geoshrink", "compare", self.model]
        words += ["--prompts", *self.prompts] if self.prompts else []
        words += ["--steps", str(self.steps), "--budgets", *map(str, self.budgets)]
        words += ["--seed", str(self.seed)]
        for name in ("guidance", "height", "width", "frames", "dtype", "device"):
            if (value := getattr(self, name)) is not None:
                words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
        words += ["--kwargs", json.dumps(dict(self.kwargs))] if self.kwargs else []
        return shlex.join(words)


def read_prompts(path: Path) -> list[str]:
    """One prompt a line; blank lines are left out."""
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, IsADirectoryError):
        told = f"no file of prompts {str(path)!r}: give one with a prompt on each line"
        raise ValueError(told) from None
    prompts = [line.strip() for line in text.splitlines() if line.strip()]
    if not prompts:
        raise ValueError(f"{path} holds no prompts: write one on each line")
    return prompts


def read_kwargs(text: str, option: str = "--kwargs") -> dict[str, Any]:
    try:
        kwargs = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{option} is not JSON: {error}; got {text!r}") from None
    if not isinstance(kwargs, dict):
        raise ValueError(f'{option} must be a JSON object like {{"eta": 0.5}}, got {text!r}')
    return kwargs


def check_amount(budget: Any = None, speedup: Any = None, target_db: Any = None) -> None:
    """Refuses what no run can keep to, whatever its steps are; None: not given."""
    if budget is not None and whole(budget, "a budget") < 2:
        raise ValueError(f"budget {budget} is too small: at least 2 stages are queried")
    if speedup is not None and not (is_number(speedup) and 0 < speedup < math.inf):
        raise ValueError(f"speedup is a positive number, got {speedup!r}")
    if target_db is not None and not (is_number(target_db) and math.isfinite(target_db)):
        raise ValueError(f"target_db is a number of decibels, got {target_db!r}")


def check_device(device: str | None) -> None:
    try:
        kind = torch.device(device or "cpu").type
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}: cuda, cuda:1, mps or cpu") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!r}: torch sees no CUDA device here")


def check_out(out: Path) -> None:
    """The file can be written: tried, since permissions say little of /proc, or to root."""
    if out.is_dir():
        raise ValueError(f"{out} is a folder: name a file in it")
    above = next(p for p in out.absolute().parents if p.exists())
    if not above.is_dir():
        raise ValueError(f"{out} cannot be written: {above} is not a writable folder")
    try:
        if out.exists():
            out.open("ab").close()
        else:
            tempfile.TemporaryFile(dir=above).close()
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error.strerror}") from None
