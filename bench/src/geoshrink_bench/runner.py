"""Runs a suite cell by cell: resumable, in shards, never losing or hiding one.

A cell that fails is reported, kept as missing, and tried again by the next run.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from geoshrink.batch.jobs import Done, Engine, Job, Worker, drive

from .methods.base import Method
from .methods.registry import METHODS, Training
from .metrics.base import Skipped
from .store import Store, name_of

Spec = dict[str, Any]
MANY = 10**9  # shards: what is best kept together even then
TUNED = ("threshold", "warm_up", "retention")  # said in a cell, where its method has them


@dataclass
class Progress:
    """What a run did; what was skipped, with the reason."""

    done: int = 0
    kept: int = 0
    damaged: int = 0
    failed: list[tuple[Spec, str]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def line(self) -> str:
        parts = [f"{self.done} cells run", f"{self.kept} kept from before"]
        if self.damaged:
            parts.append(f"{self.damaged} damaged and made anew")
        if self.failed:
            parts.append(f"{len(self.failed)} FAILED")
        if self.skipped:
            parts.append(f"{len(self.skipped)} skipped")
        return ", ".join(parts)


@dataclass(frozen=True)
class Said:
    """What came of a cell: done, kept, skipped or failed, and why."""

    came: str
    words: str = ""
    damaged: int = 0


class Lab:
    """What the cells of one suite are run with: its models, its metrics, its folder."""

    store: Store
    device: str
    damaged: int = 0  # files beside the cells that were there and could not be read

    def prepare(self, spec: Spec, training: Training, budget: int) -> tuple[Method, Spec]:
        """The method of a cell, and what the cell says of it."""
        began = time.perf_counter()
        method = METHODS[spec["method"]](spec["options"], training, budget)
        return method, dict(
            prepared=time.perf_counter() - began,
            tuned={key: vars(method)[key] for key in TUNED if vars(method).get(key) is not None},
            calibrated=method.calibrated,
            adaptive=method.adaptive,
            made=dict(on=device_name(self.device), torch=torch.__version__),
        )

    def kept(self) -> dict[str, Any]:
        """What a report must know that is not in the suite."""
        return {}

    def specs(self) -> list[Spec]:
        """Every cell, in the order they run."""
        raise NotImplementedError

    def unit(self, spec: Spec, shards: int) -> Any:
        """What one shard takes whole."""
        raise NotImplementedError

    def shared(self, spec: Spec) -> Any:
        """What cells have in common that is made once, by the first of them."""
        return self.unit(spec, 1)

    def cost(self, spec: Spec) -> float:
        """Of a cell as compared with others."""
        return 1.0

    def title(self, spec: Spec) -> str:
        """The method of a cell, as tables name it. Skipped once, it is skipped for good."""
        raise NotImplementedError

    def place(self, spec: Spec) -> str:
        """Which cell it is, in words."""
        raise NotImplementedError

    def usable(self, spec: Spec, result: dict[str, Any]) -> bool:
        """Whether what a cell made can stay; else it is made anew."""
        return True

    def make(self, spec: Spec) -> None:
        """Runs the method and writes the cell."""
        raise NotImplementedError

    def measure(self, spec: Spec) -> None:
        """Adds to the cell the scores that can be had now."""


class Attempts:
    """The worker: one cell after another of a lab; what came of each, in a few words."""

    def __init__(self, lab: Lab):
        self.lab = lab

    def __call__(self, spec: Spec) -> Said:
        store, damaged = self.lab.store, self.lab.damaged
        try:
            before = store.read(spec)
            keep = before is not None and self.lab.usable(spec, before)
            broken = not keep and store.is_damaged(spec)
            if not keep:
                self.lab.make(spec)
            self.lab.measure(spec)
            return Said("kept" if keep else "done", damaged=broken + self.lab.damaged - damaged)
        except Skipped as reason:
            store.fail(spec, f"skipped: {reason}")
            return Said("skipped", str(reason), self.lab.damaged - damaged)
        except Exception as error:
            store.fail(spec, traceback.format_exc())
            words = f"{type(error).__name__}: {error}"
            return Said("failed", words, self.lab.damaged - damaged)


class Runner:
    """The cells of shard (i, n) of a lab's suite.

    engine   where they run; None: in this process
    make     makes a worker like Attempts(lab) elsewhere, with a lab of its own
    """

    def __init__(
        self,
        lab: Lab,
        shard: tuple[int, int] = (0, 1),
        engine: Engine | None = None,
        make: Callable[[], Worker] | None = None,
    ):
        self.lab, self.shard = lab, shard
        self.engine, self.make = engine, make or (lambda: Attempts(lab))

    def specs(self) -> list[Spec]:
        specs, (mine, of) = self.lab.specs(), self.shard
        if of == 1:
            return specs
        units = [name_of(self.lab.unit(spec, of)) for spec in specs]
        order = {unit: i for i, unit in enumerate(dict.fromkeys(units))}
        return [spec for spec, unit in zip(specs, units) if order[unit] % of == mine]

    def jobs(self, progress: Progress) -> Iterator[Job]:
        """One for each cell; the first of those that share a reference makes it, the others wait
        for that. Those of a method that was skipped are left out from then on.
        """
        first: dict[str, str] = {}
        for spec in self.specs():
            if self.lab.title(spec) in progress.skipped:
                continue
            key, shared = name_of(spec), name_of(self.lab.shared(spec))
            after = first.setdefault(shared, key)
            unit = name_of(self.lab.unit(spec, MANY))
            cost, alone = self.lab.cost(spec), spec.get("kind") == "latency"
            yield Job(key, spec, cost, unit, "" if after == key else after, alone)

    def run(
        self,
        tick: Callable[[str], Any] = lambda title: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Progress:
        """Runs what is missing of this shard's cells; tick(title) after each."""
        progress = Progress()
        for event in drive(self.jobs(progress), self.make, self.engine, stopped):
            title = self.lab.title(event.job.what)
            if isinstance(event, Done):
                self.account(event.job.what, title, event.said, progress)
            else:
                self.lab.store.fail(event.job.what, event.error)
                progress.failed.append((event.job.what, event.error.strip().splitlines()[-1]))
            tick(title)
        return progress

    def account(self, spec: Spec, title: str, said: Said, progress: Progress) -> None:
        progress.damaged += said.damaged
        progress.kept += said.came == "kept"
        progress.done += said.came == "done"
        if said.came == "skipped":
            progress.skipped[title] = said.words
        elif said.came == "failed":
            progress.failed.append((spec, said.words))


def shard_of(text: str) -> tuple[int, int]:
    """(i − 1, n) of "i/n".

    >>> shard_of("2/8")
    (1, 8)
    """
    try:
        i, n = (int(part) for part in text.split("/"))
    except ValueError:
        raise ValueError(f"--shard is i/n, such as 2/8; got {text!r}") from None
    if not 1 <= i <= n:
        raise ValueError(f"--shard is i/n with i from 1 to n; got {text!r}")
    return i - 1, n


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
