"""Runs a suite of the paper on a checkpoint: sample by sample, resumable, nothing lost or hidden.

A cell is one sample of one row (a prompt and a seed), named by the hash of all that defines it. It
holds what the run took and every score; what it made lies beside it, so that a metric whose weights
come later, or a tool with an environment of its own, finds it.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geoshrink import __version__

from ..metrics.base import Skipped
from ..runner import Progress as Counted
from ..runner import device_name
from ..store import digest, name_of
from . import methods
from .cells import Cells
from .columns import COLUMNS, Each, Tools, Whole
from .hosts import HOSTS
from .prompts import Prompt, spare
from .sample import Sample
from .suite import FULL, Row, Suite

CALIBRATION = 4  # prompts that methods are calibrated on
WARM_UP = 4  # evaluations of the run before the first that is timed
IDENTICAL = 999.0  # JSON knows no infinity: the PSNR of what agrees to the last bit


@dataclass
class Progress(Counted):
    """What a run did; what was skipped, with the reason."""

    skipped: dict[str, str] = field(default_factory=dict)

    def line(self) -> str:
        return super().line() + (f", {len(self.skipped)} skipped" if self.skipped else "")


class Runner(Cells):
    def __init__(
        self,
        suite: Suite,
        folder: str | Path,
        checkpoint: str | Path,
        prompts: list[Prompt],
        everything: list[Prompt],
        device: str,
        dtype: str,
        tools: Tools,
        keep: bool = True,
        shard: tuple[int, int] = (0, 1),
    ):
        self.host, self.loaded, self.shard = HOSTS[suite.host](), False, shard
        self.device, self.dtype, self.tools, self.keep = device, dtype, tools, keep
        self.checkpoint = self.host.check(checkpoint)
        made = dict(dtype=dtype, on=device_name(device), version=__version__)
        super().__init__(suite, folder, prompts, made | {"weights": fingerprint(self.checkpoint)})
        others = spare(everything, prompts, CALIBRATION)
        self.makers = {
            row.label: methods.maker(self.host, suite, row, others) for row in suite.rows
        }
        self.samples: dict[str, Sample] = {}  # of the full run of the present prompt and seed

    def run(self, tick: Callable[[Row], Any] = lambda row: None) -> Progress:
        """Runs and measures what is missing of this shard's cases; tick(row) after each sample."""
        progress = Progress()
        (self.store.folder / "samples").mkdir(exist_ok=True)
        damaged = {path.name for path in self.store.damaged()}
        for prompt, seed in self.mine():
            self.samples = {}
            for row in (FULL, *self.suite.rows):
                spec = self.spec(row, prompt, seed)
                progress.damaged += self.store.path(spec).name in damaged
                if row.label not in progress.skipped:
                    self.attempt(row, prompt, seed, progress)
                tick(row)
        return progress

    def mine(self) -> list[tuple[Prompt, int]]:
        """A shard takes whole cases, so that each full run is made once."""
        i, n = self.shard
        return list(self.cases())[i::n]

    def attempt(self, row: Row, prompt: Prompt, seed: int, progress: Progress) -> None:
        spec = self.spec(row, prompt, seed)
        there = self.store.read(spec) is not None
        try:
            methods.check(row, self.host)
            self.measure(row, prompt, seed)
            progress.kept += there
            progress.done += not there
        except Skipped as reason:
            progress.skipped[row.label] = str(reason)
            self.store.fail(spec, f"skipped: {reason}")
        except Exception as error:
            progress.failed.append((spec, f"{type(error).__name__}: {error}"))
            self.store.fail(spec, traceback.format_exc())

    def measure(self, row: Row, prompt: Prompt, seed: int) -> None:
        """The cell with every score that can be had now."""
        spec = self.spec(row, prompt, seed)
        result = self.store.read(spec)
        if result is None:
            self.sample(row, prompt, seed)
            result = self.store.read(spec)
            assert result is not None
        wanted = [name for name in self.suite.columns if self.wants(name, row, result, spec)]
        for name in wanted:
            result["scores"][name] = self.score(name, row, prompt, seed)
        if wanted:
            self.store.write(spec, result)
        failed = [each["failed"] for each in result["scores"].values() if "failed" in each]
        if failed:
            raise ValueError("; ".join(failed))

    def wants(self, name: str, row: Row, result: dict[str, Any], spec: dict[str, Any]) -> bool:
        """Whether a score is to be made: it is not there, or there is none and a sample to try."""
        column, found = COLUMNS[name], result["scores"].get(name)
        if not isinstance(column, (Each, Whole)):
            return False
        if row is FULL and isinstance(column, Each) and not column.alone:
            return False
        if found is None or found.get("version") != column.version:
            return True
        return "value" not in found and self.path(spec).is_file()

    def score(self, name: str, row: Row, prompt: Prompt, seed: int) -> dict[str, Any]:
        column, made = COLUMNS[name], self.sample(row, prompt, seed)
        if isinstance(column, Each) and not column.alone:
            full = self.sample(FULL, prompt, seed)
        else:
            full = made
        try:
            if isinstance(column, Whole):
                value: Any = column.features(made, self.tools).tolist()
            else:
                assert isinstance(column, Each)
                value = checked(name, column.of(made, full, prompt, self.tools))
        except Skipped as reason:
            return dict(version=column.version, skipped=str(reason))
        except Exception as error:
            return dict(version=column.version, failed=f"{name}: {type(error).__name__}: {error}")
        return dict(version=column.version, value=value)

    def sample(self, row: Row, prompt: Prompt, seed: int) -> Sample:
        """What a row made: at hand, from its file, or by a run."""
        spec = self.spec(row, prompt, seed)
        name = name_of(spec)
        if name not in self.samples:
            found = Sample.load(self.path(spec)) if self.store.read(spec) else None
            self.samples = {k: v for k, v in self.samples.items() if k == self.full(prompt, seed)}
            self.samples[name] = found or self.make(row, prompt, seed, spec)
        return self.samples[name]

    def full(self, prompt: Prompt, seed: int) -> str:
        return name_of(self.spec(FULL, prompt, seed))

    def make(self, row: Row, prompt: Prompt, seed: int, spec: dict[str, Any]) -> Sample:
        self.load()
        run = methods.run(self.host, self.suite, row, prompt, seed, self.makers.get(row.label))
        before = self.store.read(spec) or {"scores": {}}
        result = dict(
            seconds=run.made.seconds,
            forwards=run.made.forwards,
            evaluated=list(run.evaluated),
            partial=run.partial,
            reasons=list(run.reasons),
            scores=before["scores"],
        )
        if self.keep:
            run.made.sample.save(self.path(spec))
        self.store.write(spec, result)
        return run.made.sample

    def load(self) -> None:
        """Loads the model when it is first needed, and runs it once, untimed."""
        if not self.loaded:
            suite = self.suite
            self.host.load(self.checkpoint, self.device, self.dtype, suite.offload)
            steps = min(suite.steps, self.host.steps_for(WARM_UP))
            self.host.sample(self.prompts[0].given, 0, steps, suite.call)
            self.loaded = True


def checked(name: str, value: float) -> float:
    if math.isnan(value):
        raise ValueError(f"{name} is no number")
    return IDENTICAL if value == math.inf else value


def fingerprint(folder: Path) -> str:
    """Of a checkpoint: the contents of its JSON files, the names and sizes of all others."""
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        small = path.suffix == ".json"
        content = path.read_text(encoding="utf-8") if small else str(path.stat().st_size)
        found.append([path.relative_to(folder).as_posix(), content])
    return digest(found)[:20]
