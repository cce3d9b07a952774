"""Runs a suite cell by cell: resumable, in shards, never losing or hiding one.

The noise is the same for every method. There are two references, computed once per setting: the
full run, and the flow as it converges with many more steps. A cell that fails is reported, kept as
missing, and tried again by the next run.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..outputs import flatten
from ..sampling import sample
from ..zoo.model import Model, joined, load
from .methods.base import Case
from .methods.registry import METHODS
from .metrics import fidelity, values_of
from .store import Store, name_of, put
from .suite import Suite

FIRST_SEED, TRAINING_SEED, TRAINING_SAMPLES = 100, 9000, 16


class Setting:
    """One model at one guidance, shift and length: its case, and the references."""

    def __init__(self, spec: dict[str, Any], model: Model, folder: Path, converged: int):
        self.spec, self.model, self.folder, self.converged = spec, model, folder, converged

    @cached_property
    def case(self) -> Case:
        """All samples of all seeds in one batch; classes are spread over all there are."""
        samples, seeds = self.spec["samples"], self.spec["seeds"]
        count = samples * seeds
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
        labels = [i * len(self.model.classes) // count for i in order]
        noise = [self.model.noise(samples, seed=FIRST_SEED + s) for s in range(seeds)]
        return self.case_of(labels, joined(noise))

    @cached_property
    def training(self) -> list[Case]:
        """Other noise, and other classes where there are enough: to calibrate and tune on."""
        used = set(self.case.labels)
        spare = [i for i in range(len(self.model.classes)) if i not in used] or sorted(used)
        count = TRAINING_SAMPLES
        labels = [spare[i * len(spare) // count] for i in range(count)]
        return [self.case_of(labels, self.model.noise(count, seed=TRAINING_SEED))]

    def case_of(self, labels: list[Any], noise: Any) -> Case:
        spec = self.spec
        lengths = spec["lengths"] and [spec["lengths"][i % len(spec["lengths"])] for i in labels]
        interval = tuple(spec["interval"]) if spec["interval"] else None
        return Case(
            self.model,
            labels,
            noise,
            spec["guidance"],
            spec["steps"],
            spec["shift"],
            interval,
            lengths,
        )

    @cached_property
    def references(self) -> dict[str, list[Tensor]]:
        """The values of "full" and "converged", computed once and kept in a file."""
        from safetensors import SafetensorError
        from safetensors.torch import load as load_tensors
        from safetensors.torch import save

        key = dict(self.spec, weights=self.model.facts["sha256"], converged=self.converged)
        path = self.folder / f"{name_of(key)}.reference.safetensors"
        try:
            kept = load_tensors(path.read_bytes())
        except (OSError, SafetensorError):
            case = self.case
            kept = {}
            for name, steps in (("full", None), ("converged", self.converged)):
                x = sample(case.velocity(), case.noise, case.grid(steps))
                for i, part in enumerate(flatten(x)[0]):
                    kept[f"{name}.{i}"] = part.contiguous().cpu()
            put(path, save(kept))
        return {name: self.values(kept, name) for name in ("full", "converged")}

    def values(self, kept: dict[str, Tensor], name: str) -> list[Tensor]:
        parts = [
            kept[f"{name}.{i}"].to(self.model.device) for i in range(len(self.model.recipe.shapes))
        ]
        x = tuple(parts) if self.model.recipe.joint else parts[0]
        return values_of(self.model, x, self.case.lengths)

    def score(self, x: Any) -> dict[str, dict[str, list[float]]]:
        """metric → reference → one number per sample."""
        values = values_of(self.model, x, self.case.lengths)
        found: dict[str, dict[str, list[float]]] = {}
        for i, metric in enumerate(fidelity(self.model)):
            found[metric.name] = {
                name: rounded(metric.of(values[i], parts[i], self.case.lengths))
                for name, parts in self.references.items()
            }
        return found


def rounded(each: Tensor) -> list[float]:
    """JSON knows no infinity: what agrees to the last bit is 999. What is no number is an error."""
    if each.isnan().any():
        raise ValueError(f"{int(each.isnan().sum())} of {len(each)} samples are no numbers")
    return [round(min(v, 999.0), 5) for v in each.double().tolist()]


@dataclass
class Progress:
    """What a run did."""

    done: int = 0
    kept: int = 0
    damaged: int = 0
    failed: list[tuple[dict[str, Any], str]] = field(default_factory=list)

    def line(self) -> str:
        parts = [f"{self.done} cells run", f"{self.kept} kept from before"]
        if self.damaged:
            parts.append(f"{self.damaged} damaged and made anew")
        if self.failed:
            parts.append(f"{len(self.failed)} FAILED")
        return ", ".join(parts)


class Runner:
    def __init__(
        self,
        suite: Suite,
        folder: str | Path,
        device: str = "cpu",
        shard: tuple[int, int] = (0, 1),
        weights: str | Path | None = None,
    ):
        self.suite, self.store, self.device = suite, Store(folder), device
        self.shard, self.weights = shard, weights
        self.models: dict[str, Model] = {}
        self.setting: Setting | None = None

    def run(self, tick: Callable[[dict[str, Any]], Any] = lambda spec: None) -> Progress:
        """Runs what is missing of this shard's cells; tick(cell) after each."""
        progress = Progress()
        there = {path.name for path in self.store.damaged()}
        for spec in self.specs():
            if self.store.read(spec) is not None:
                progress.kept += 1
            else:
                progress.damaged += self.store.path(spec).name in there
                try:
                    self.store.write(spec, self.cell(spec))
                    progress.done += 1
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    progress.failed.append((spec, reason))
                    self.store.fail(spec, traceback.format_exc())
            tick(spec)
        return progress

    def specs(self) -> list[dict[str, Any]]:
        """The cells of this shard; those that time come last, so that they run alone."""
        cells = [dict(cell, kind="fidelity") for cell in self.suite.cells()]
        if self.suite.latency:
            alone = dict(kind="latency", repeats=self.suite.repeats, on=device_name(self.device))
            cells += [cell | alone for cell in self.suite.cells()]
        cells = [
            dict(
                cell,
                converged=self.suite.converged,
                weights=self.hash_of(cell["setting"]["model"]),
                version=__version__,
            )
            for cell in cells
        ]
        mine, of = self.shard
        return cells[mine::of]

    def model(self, name: str) -> Model:
        if name not in self.models:
            self.models[name] = load(name, self.device, self.weights)
        return self.models[name]

    def hash_of(self, name: str) -> str | None:
        """Of a model's weights; None where they are not here, so that its cells fail one by one."""
        try:
            return self.model(name).facts["sha256"]
        except FileNotFoundError:
            return None

    def setting_of(self, spec: dict[str, Any]) -> Setting:
        """Kept while cells of the same setting follow each other."""
        if self.setting is None or self.setting.spec != spec["setting"]:
            model = self.model(spec["setting"]["model"])
            self.setting = Setting(spec["setting"], model, self.store.folder, self.suite.converged)
        return self.setting

    def cell(self, spec: dict[str, Any]) -> dict[str, Any]:
        setting = self.setting_of(spec)
        entry = METHODS[spec["method"]]
        began = time.perf_counter()
        method = entry(spec["options"], lambda: setting.training, spec["budget"])
        prepared = time.perf_counter() - began
        if spec["kind"] == "latency":
            return dict(seconds=self.time(setting, method, spec), prepared=prepared)
        outcome = method.run(setting.case, spec["budget"])
        return dict(
            scores=setting.score(outcome.x),
            evaluations=outcome.evaluations,
            evaluated=list(outcome.evaluated),
            held=outcome.held,
            prepared=prepared,
            calibrated=method.calibrated,
            adaptive=method.adaptive,
        )

    def time(self, setting: Setting, method: Any, spec: dict[str, Any]) -> list[float]:
        """Seconds of each repeat after a warm-up."""
        seconds = []
        for _ in range(spec["repeats"] + 1):
            synchronise(self.device)
            began = time.perf_counter()
            method.run(setting.case, spec["budget"])
            synchronise(self.device)
            seconds.append(time.perf_counter() - began)
        return seconds[1:]


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
