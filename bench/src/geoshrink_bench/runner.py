"""Runs a suite cell by cell: resumable, in shards, never losing or hiding one.

The noise is the same for every method. There are two references, computed once per setting: the
full run, and the flow as it converges with many more steps. A cell that fails is reported, kept as
missing, and tried again by the next run.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from geoshrink import __version__

from .keeping import read_samples, write_samples
from .methods.registry import METHODS
from .metrics import values_of
from .metrics.base import is_current
from .metrics.zoo import metrics_of
from .setting import REFERENCES, Setting
from .store import Store, name_of
from .suite import Suite
from .zoo.model import Model, load

TUNED = ("threshold", "warm_up", "retention")  # said in a cell, where its method has them


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
        references: Sequence[str] = REFERENCES,
    ):
        self.suite, self.store, self.device = suite, Store(folder), device
        self.shard, self.weights, self.references = shard, weights, tuple(references)
        self.models: dict[str, Model] = {}
        self.setting: Setting | None = None
        self.remade: list[Path] = []  # references that were damaged

    def run(self, tick: Callable[[dict[str, Any]], Any] = lambda spec: None) -> Progress:
        """Runs what is missing of this shard's cells; tick(cell) after each."""
        progress = Progress()
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.suite.precision)
        try:
            self.run_cells(progress, tick)
        finally:
            torch.set_float32_matmul_precision(before)
            progress.damaged += len(self.remade)
        return progress

    def run_cells(self, progress: Progress, tick: Callable[[dict[str, Any]], Any]) -> None:
        for spec in self.specs():
            if self.complete(spec):
                progress.kept += 1
            else:
                progress.damaged += self.damaged(spec)
                try:
                    self.store.write(spec, self.cell(spec))
                    progress.done += 1
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    progress.failed.append((spec, reason))
                    self.store.fail(spec, traceback.format_exc())
            tick(spec)

    def damaged(self, spec: dict[str, Any]) -> bool:
        """Whether the cell or its samples are there and cannot be read."""
        cell, samples = self.store.path(spec), self.samples_path(spec)
        broken = cell.is_file() and self.store.whole(cell) is None
        return broken or (samples.is_file() and read_samples(samples) is None)

    def complete(self, spec: dict[str, Any]) -> bool:
        """A cell without a reference, a metric or the samples of this run is made anew, as is one
        whose metric has changed, or was skipped for weights that are there now.
        """
        result = self.store.read(spec)
        if result is None:
            return False
        if self.keeps(spec) and read_samples(self.samples_path(spec)) is None:
            return False
        if spec["kind"] != "fidelity":
            return True
        metrics = metrics_of(spec["setting"]["model"], self.suite.metrics)
        if not all(is_current(result, m.name, m.metric.version) for m in metrics):
            return False
        scores = [
            (m, result["scores"].get(m.name, {}).get(r)) for m in metrics for r in self.references
        ]
        return all(s is not None and not (isinstance(s, str) and m.possible()) for m, s in scores)

    def keeps(self, spec: dict[str, Any]) -> bool:
        return self.suite.keep > 0 and spec["kind"] == "fidelity"

    def samples_path(self, spec: dict[str, Any]) -> Path:
        return self.store.folder / f"{name_of(spec)}.samples.safetensors"

    def specs(self) -> list[dict[str, Any]]:
        """The cells of this shard; those that time come last, so that they run alone.

        A shard takes whole settings, so that each converged flow is computed once; without it, or
        where there are more shards than settings, a method's budgets, which share its tuning.
        """
        cells = [dict(cell, kind="fidelity") for cell in self.suite.cells()]
        if self.suite.latency:
            alone = dict(kind="latency", repeats=self.suite.repeats, on=device_name(self.device))
            cells += [cell | alone for cell in self.suite.first_of_each()]
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
        settings = {name_of(setting) for setting, _ in self.suite.settings()}
        apart = of > len(settings) or "converged" not in self.references
        kept = ("setting", "method", "options", "kind") if apart else ("setting",)
        units = [name_of([cell[key] for key in kept]) for cell in cells]
        order = {unit: i for i, unit in enumerate(dict.fromkeys(units))}
        return [cell for cell, unit in zip(cells, units) if order[unit] % of == mine]

    def model(self, name: str) -> Model:
        if name not in self.models:
            try:
                self.models[name] = load(name, self.device, self.weights)
            except FileNotFoundError as error:
                where = str(error).partition(":")[0]
                raise FileNotFoundError(f"{where}; --weights names their folder") from error
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
            about = spec["setting"], model, self.store.folder, self.suite, self.references
            self.setting = Setting(*about, damaged=self.remade.append)
        return self.setting

    def cell(self, spec: dict[str, Any]) -> dict[str, Any]:
        setting = self.setting_of(spec)
        entry = METHODS[spec["method"]]
        began = time.perf_counter()
        method = entry(spec["options"], lambda: setting.training, spec["budget"])
        prepared = time.perf_counter() - began
        if spec["kind"] == "latency":
            return dict(seconds=self.time(setting, method, spec), prepared=prepared)
        more: dict[str, Any] = {}
        if self.keeps(spec):
            outcome, more["trace"] = setting.trace.run(method, spec["budget"])
        else:
            outcome = method.run(setting.case, spec["budget"])
        values = values_of(setting.model, outcome.x, setting.case.lengths)
        scores = setting.score(values)
        if self.keeps(spec):
            write_samples(self.samples_path(spec), setting.case, values, self.suite.keep)
        return dict(
            scores=scores,
            versions={m.name: m.metric.version for m in setting.metrics},
            evaluations=outcome.evaluations,
            evaluated=list(outcome.evaluated),
            held=outcome.held,
            prepared=prepared,
            tuned={key: vars(method)[key] for key in TUNED if vars(method).get(key) is not None},
            calibrated=method.calibrated,
            adaptive=method.adaptive,
            made=dict(on=device_name(self.device), torch=torch.__version__),
            **more,
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
