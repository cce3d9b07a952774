"""Jobs, and those who do them: what an engine needs to know, wherever it runs.

A job is small: what it makes goes to a store, from which the next start knows that it is done. The
engine carries jobs out and a few words back.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

TRIES = 3  # of a job whose worker died


@dataclass(frozen=True)
class Job:
    """
    key     its name, which no other has
    what    what the worker is given: plain data
    cost    as compared with others: the dearest are begun first
    unit    jobs of one unit go to the same worker while there are others: they share something
    after   the key of a job that must have ended before this one begins
    alone   nothing else may run on the worker's machine meanwhile: it is timed
    """

    key: str
    what: Any
    cost: float = 1.0
    unit: str = ""
    after: str = ""
    alone: bool = False


@dataclass(frozen=True)
class Done:
    """A job that was done, and what the worker said."""

    job: Job
    said: Any
    seconds: float


@dataclass(frozen=True)
class Failed:
    """A job whose worker raised, or died again and again."""

    job: Job
    error: str


#: Does one job after another; what it needs for all of them it made when it was made.
Worker = Callable[[Any], Any]


class Fatal(OSError):
    """Raised by a worker where no job can go well any more: the disk is full, the model is gone."""


class Broken(Exception):
    """Raised by a worker that cannot go on, though another could: its device is in a bad state."""


class Crew(Protocol):
    """Workers that are there: they do jobs until they are let go.

    gpu_seconds   that jobs have taken, of all GPUs together
    """

    @property
    def gpu_seconds(self) -> float: ...

    def work(self, jobs: Iterable[Job]) -> Iterator[Done | Failed]:
        """Each job once, as it ends. After the engine was stopped no further one is begun."""
        ...

    def close(self) -> None: ...


class Engine(Protocol):
    """Where jobs run."""

    def open(self, make: Callable[[], Worker], stopped: Callable[[], bool]) -> Crew:
        """Workers that make() makes, each where it works. After stopped() no job is begun."""
        ...


def drive(
    jobs: Iterable[Job],
    make: Callable[[], Worker],
    engine: Engine | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Done | Failed]:
    """The jobs, done by workers that make() makes; in this process unless an engine says where."""
    crew = (engine or Here()).open(make, stopped)
    try:
        yield from crew.work(jobs)
    finally:
        crew.close()


class Here:
    """In this process, one after the other, in the order given."""

    def open(self, make: Callable[[], Worker], stopped: Callable[[], bool]) -> Crew:
        return Alone(make, stopped)


class Alone:
    """One worker, made when there is something to do."""

    def __init__(self, make: Callable[[], Worker], stopped: Callable[[], bool]):
        self.make, self.stopped = make, stopped
        self.worker: Worker | None = None
        self.seconds = 0.0

    @property
    def gpu_seconds(self) -> float:
        return self.seconds if torch.cuda.is_initialized() else 0.0

    def work(self, jobs: Iterable[Job]) -> Iterator[Done | Failed]:
        for job in jobs:
            if self.stopped():
                return
            self.worker = self.worker or self.make()
            began = time.perf_counter()
            try:
                said = self.worker(job.what)
            except Fatal:
                raise
            except Broken as error:
                raise Fatal(f"the worker cannot go on: {error}") from None
            except Exception:
                yield Failed(job, traceback.format_exc())
            else:
                seconds = time.perf_counter() - began
                self.seconds += seconds
                yield Done(job, said, seconds)

    def close(self) -> None:
        self.worker = None
