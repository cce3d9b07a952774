"""Runs a suite cell by cell: resumable, in shards, never losing or hiding one.

A cell that fails is reported, kept as missing, and tried again by the next run.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from geoshrink.batch.jobs import Done, Engine, Job, Worker, drive

from .code import CURRENT, STALE, state_of
from .lab import Lab, Spec
from .metrics.base import Skipped
from .recall import Recall
from .store import name_of

MANY = 10**9  # shards: what is best kept together even then


@dataclass
class Progress:
    """What a run did; what was skipped, with the reason.

    stale   of the cells that were kept, those that other code made
    """

    done: int = 0
    kept: int = 0
    stale: int = 0
    damaged: int = 0
    failed: list[tuple[Spec, str]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def line(self) -> str:
        parts = [f"{self.done} cells run", f"{self.kept} kept from before"]
        if self.stale:
            parts[-1] += f" ({self.stale} of them made by other code: --stale makes them anew)"
        if self.damaged:
            parts.append(f"{self.damaged} damaged and made anew")
        if self.failed:
            parts.append(f"{len(self.failed)} FAILED")
        if self.skipped:
            parts.append(f"{len(self.skipped)} skipped")
        return ", ".join(parts)


@dataclass(frozen=True)
class Said:
    """What came of a cell: done, kept, stale (and kept), skipped or failed, and why."""

    came: str
    words: str = ""
    damaged: int = 0


class Attempts:
    """The worker: one cell after another of a lab; what came of each, in a few words.

    recall   what networks have said; not used where seconds are measured
    """

    def __init__(self, lab: Lab, recall: Recall | None = None):
        self.lab, self.recall = lab, recall or Recall()

    def make(self, spec: Spec) -> None:
        if spec.get("kind") != "fidelity":
            return self.lab.make(spec)
        with self.recall.over([model.network for model in models_of(self.lab)]):
            self.lab.make(spec)

    def __call__(self, spec: Spec) -> Said:
        store, damaged = self.lab.store, self.lab.damaged
        try:
            before = store.read(spec)
            state = CURRENT if before is None else state_of(spec, before)
            keep = before is not None and self.lab.usable(spec, before)
            keep &= state == CURRENT or not self.lab.anew
            broken = not keep and store.is_damaged(spec)
            if not keep:
                self.make(spec)
            self.lab.measure(spec)
            came = ("kept" if state == CURRENT else STALE) if keep else "done"
            return Said(came, damaged=broken + self.lab.damaged - damaged)
        except Skipped as reason:
            store.fail(spec, f"skipped: {reason}")
            return Said("skipped", str(reason), self.lab.damaged - damaged)
        except Exception as error:
            store.fail(spec, traceback.format_exc())
            words = f"{type(error).__name__}: {error}"
            return Said("failed", words, self.lab.damaged - damaged)


def models_of(lab: Lab) -> list[Any]:
    """Those that a lab of the zoo has loaded; of a checkpoint's none."""
    return list(getattr(lab, "models", {}).values())


class Runner:
    """The cells of shard (i, n) of a lab's suite.

    engine   where they run; None: in this process
    make     makes a worker like Attempts(lab) elsewhere, with a lab of its own
    only     those of these models or methods; none: all
    """

    def __init__(
        self,
        lab: Lab,
        shard: tuple[int, int] = (0, 1),
        engine: Engine | None = None,
        make: Callable[[], Worker] | None = None,
        only: str | Sequence[str] = (),
    ):
        self.lab, self.shard = lab, shard
        self.only = [only] if isinstance(only, str) else [*only]
        self.engine, self.make = engine, make or (lambda: Attempts(lab))

    def specs(self) -> list[Spec]:
        specs, (mine, of) = self.chosen(self.lab.specs()), self.shard
        if of == 1:
            return specs
        units = [name_of(self.lab.unit(spec, of)) for spec in specs]
        order = {unit: i for i, unit in enumerate(dict.fromkeys(units))}
        return [spec for spec, unit in zip(specs, units) if order[unit] % of == mine]

    def chosen(self, specs: list[Spec]) -> list[Spec]:
        """The cells that `only` names; an error if a word of it is no name in this suite."""
        if not self.only:
            return specs
        names = [self.names(spec) for spec in specs]
        known = list(dict.fromkeys(name for each in names for name in each[1:]))
        for word in self.only:
            if not any(word in each for each in names):
                near = get_close_matches(word, known) or known
                raise ValueError(
                    f"--only {word!r}: this suite has no such model or method; it has "
                    f"{', '.join(near)}"
                )
        return [spec for spec, own in zip(specs, names) if {*self.only} & {*own}]

    def names(self, spec: Spec) -> list[str]:
        """What a cell is called: "motion, geoshrink", "motion", "geoshrink", and as suites do."""
        title = self.lab.title(spec)
        return [title, *title.split(", ", 1), spec["method"]]

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
        progress.kept += said.came in ("kept", STALE)
        progress.stale += said.came == STALE
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
