"""A model of the zoo at one guidance, shift and length: its case, its references, its cells.

The noise is the same for every method. There are two references, computed once per setting: the
full run, and the flow as it converges with many more steps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoshrink import __version__
from geoshrink.compare.inputs import check_device
from geoshrink.outputs import flatten
from geoshrink.sampling import sample

from ..code import TODAY, kind_of
from ..lab import Lab, Spec, device_name
from ..methods.base import Case, Method
from ..metrics import values_of
from ..metrics.base import is_current
from ..metrics.zoo import Scores, metrics_of
from ..models import load
from ..samples import read_samples, write_samples
from ..store import Store, name_of, put_tensors, tensors_in
from ..words import Row
from ..zoo.model import Model, joined
from .zoo_case import Trace, ZooCase, forwards_of
from .zoo_suite import ZooSuite

REFERENCES = ("full", "converged")
FIRST_SEED, TRAINING_SEED, TRAINING_SAMPLES = 100, 9000, 16


def reference_key(setting: Spec, weights: str, steps: int | None) -> Spec:
    """What a reference is: the full run (no steps of its own) or the converged flow."""
    return dict(setting, weights=weights, reference=steps)


class Setting:
    """What every method of one setting shares."""

    def __init__(self, spec: Spec, lab: Zoo):
        self.spec, self.lab, self.model = spec, lab, lab.model(spec["model"])
        self.metrics = metrics_of(self.model.name, lab.suite.metrics)

    @cached_property
    def case(self) -> ZooCase:
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

    def case_of(self, labels: list[Any], noise: Any) -> ZooCase:
        spec = self.spec
        lengths = spec["lengths"] and [spec["lengths"][i % len(spec["lengths"])] for i in labels]
        interval = tuple(spec["interval"]) if spec["interval"] else None
        own = {key: spec[key] for key in ("guidance", "steps", "shift")}
        return ZooCase(self.model, labels, noise, **own, interval=interval, lengths=lengths)

    @cached_property
    def references(self) -> dict[str, list[Tensor]]:
        """The values of "full" and "converged", computed once and kept in a file each."""
        return {name: self.reference(name) for name in self.lab.references}

    def reference(self, name: str) -> list[Tensor]:
        steps = None if name == "full" else self.lab.suite.converged
        key = name_of(reference_key(self.spec, self.model.facts["sha256"], steps))
        path = self.lab.store.folder / f"{key}.reference.safetensors"
        found, code = tensors_in(path), TODAY.runner(kind_of({"setting": self.spec}))
        if found is None or (self.lab.anew and found[1].get("about") != code):
            self.lab.damaged += found is None and path.is_file()
            x = sample(self.case.velocity(), self.case.noise, self.case.grid(steps))
            kept = {str(i): part.contiguous().cpu() for i, part in enumerate(flatten(x)[0])}
            put_tensors(path, kept, code)
        else:
            kept = found[0]
        parts = [kept[str(i)].to(self.model.device) for i in range(len(kept))]
        x = tuple(parts) if self.model.recipe.joint else parts[0]
        values = values_of(self.model, x, self.case.lengths)
        self.lab.keep(key, self.case, values)
        return values

    @cached_property
    def trace(self) -> Trace:
        return Trace(self.case)

    def score(self, values: Sequence[Tensor]) -> dict[str, dict[str, Scores]]:
        """metric → reference → one number per sample."""
        classes = [self.model.classes[int(label)] for label in self.case.labels]
        more = self.case.lengths, classes
        return {
            metric.name: {
                name: metric.of(values, parts, *more) for name, parts in self.references.items()
            }
            for metric in self.metrics
        }


class Zoo(Lab):
    """Runs a suite on models of the zoo.

    weights     the folder of their weights, where they are not with the package
    full_only   without the converged flow; the next run with it makes its cells anew
    """

    def __init__(
        self,
        suite: ZooSuite,
        folder: str | Path,
        device: str | None = None,
        weights: str | Path | None = None,
        full_only: bool = False,
    ):
        check_device(device)
        self.suite, self.store, self.device = suite, Store(folder), device or "cpu"
        self.weights, self.references = weights, REFERENCES[:1] if full_only else REFERENCES
        names = [
            f"{model}.safetensors" for model in dict.fromkeys(name for name, _ in suite.models)
        ]
        if weights and not any((Path(weights) / name).is_file() for name in names):
            raise FileNotFoundError(f"--weights {weights} has none of {', '.join(names)}")
        self.models: dict[str, Model] = {}
        self.setting: Setting | None = None

    def specs(self) -> list[Spec]:
        """Those that time come last, so that they run alone."""
        suite = self.suite
        alone = dict(kind="latency", repeats=suite.repeats, on=device_name(self.device))
        cells: list[Spec] = [cell | {"kind": "fidelity"} for cell in suite.cells()]
        cells += [cell | alone for cell in suite.timed()]
        hashes = {model: self.hash_of(model) for model, _ in suite.models}
        return [
            dict(
                cell,
                converged=suite.converged,
                weights=hashes[cell["setting"]["model"]],
                version=__version__,
            )
            for cell in cells
        ]

    def unit(self, spec: Spec, shards: int) -> Any:
        """A setting, so that each converged flow is computed once; without it, or where there are
        more shards than settings, a method's budgets, which share its tuning.
        """
        apart = shards > len(self.suite.settings()) or "converged" not in self.references
        return [spec[k] for k in ("setting", *(("method", "options", "kind") if apart else ()))]

    def shared(self, spec: Spec) -> Any:
        """The references of a setting; a cell that is timed needs none, and runs alone anyway."""
        return spec["setting"] if spec["kind"] == "fidelity" else spec

    def cost(self, spec: Spec) -> float:
        """In model calls of a sample."""
        setting = spec["setting"]
        return setting["samples"] * setting["seeds"] * float(spec["budget"] or setting["steps"])

    def title(self, spec: Spec) -> str:
        return f"{spec['setting']['model']}, {Row(spec['method'], options=spec['options']).label}"

    def place(self, spec: Spec) -> str:
        return f"{spec['setting']['model']}, {spec['method']}, B = {spec['budget']}"

    def usable(self, spec: Spec, result: dict[str, Any]) -> bool:
        """A cell without a reference, a metric or the samples of this run is made anew, as is one
        whose metric has changed, or was skipped for weights that are there now.
        """
        if spec["kind"] != "fidelity":
            return True
        path = self.store.samples(spec)
        if self.suite.keep and read_samples(path) is None:
            self.damaged += path.is_file()
            return False
        metrics = metrics_of(spec["setting"]["model"], self.suite.metrics)
        if not all(is_current(result, m.name, m.metric.version) for m in metrics):
            return False
        scores = [
            (m, result["scores"].get(m.name, {}).get(r)) for m in metrics for r in self.references
        ]
        return all(s is not None and not (isinstance(s, str) and m.possible()) for m, s in scores)

    def make(self, spec: Spec) -> None:
        with precision(self.suite.precision):
            self.store.write(spec, self.result(spec))

    def result(self, spec: Spec) -> dict[str, Any]:
        setting, budget = self.setting_of(spec), spec["budget"]
        method, said = self.prepare(spec, lambda: setting.training, budget)
        if spec["kind"] == "latency":
            kept = {name: said[name] for name in ("prepared", "code")}
            return dict(seconds=self.time(setting, method, spec), **kept)
        more: dict[str, Any] = {}
        if self.suite.keep:
            outcome, more["trace"] = setting.trace.run(method, budget)
        else:
            outcome = method.run(setting.case, budget)
        steps = outcome.steps or setting.case.grid().steps
        forwards = forwards_of(setting.spec, outcome.evaluated, outcome.partial, steps)
        values = values_of(setting.model, outcome.x, setting.case.lengths)
        scores = setting.score(values)
        self.keep(name_of(spec), setting.case, values)
        return dict(
            replace(outcome, steps=steps, forwards=forwards).facts(),
            scores=scores,
            versions={m.name: m.metric.version for m in setting.metrics},
            **said,
            **more,
        )

    def keep(self, key: str, case: ZooCase, values: Sequence[Tensor]) -> None:
        if self.suite.keep:
            write_samples(self.store.samples(key), case, values, self.suite.keep)

    def time(self, setting: Setting, method: Method, spec: Spec) -> list[float]:
        """Seconds of each repeat after a warm-up."""
        seconds = []
        for _ in range(spec["repeats"] + 1):
            synchronise(self.device)
            began = time.perf_counter()
            method.run(setting.case, spec["budget"])
            synchronise(self.device)
            seconds.append(time.perf_counter() - began)
        return seconds[1:]

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

    def setting_of(self, spec: Spec) -> Setting:
        """Kept while cells of the same setting follow each other."""
        if self.setting is None or self.setting.spec != spec["setting"]:
            self.setting = Setting(spec["setting"], self)
        return self.setting


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Matrix products in this precision, for a while."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
