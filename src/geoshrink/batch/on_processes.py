"""The engine on one machine without Ray: several processes, spread over its GPUs.

Who does what is decided as on Ray (on_ray.py): Processes stands in for it, and has of it what the
actors there need. A process is started anew, not forked: what makes its worker is pickled.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from types import SimpleNamespace
from typing import Any

import torch

from .jobs import Fatal, Worker
from .on_ray import Actors

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class OnProcesses:
    """
    workers   how many processes; those on one GPU share it
    threads   of torch in each, where there is no GPU; None: the machine's, shared out
    """

    workers: int
    threads: int | None = None
    cpus = 1

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")
        if self.threads is None:
            share = max(1, (os.cpu_count() or 1) // self.workers)
            object.__setattr__(self, "threads", share)

    @property
    def gpus(self) -> float:
        """Of each worker."""
        return min(1.0, torch.cuda.device_count() / self.workers)

    def open(self, make: Callable[[], Worker], stopped: Callable[[], bool]) -> Actors:
        try:
            pickle.dumps(make)
        except Exception as error:
            raise ValueError(
                "what makes a worker must be importable by name, to be made in another process: "
                f"{error}"
            ) from error
        return Actors(self, Processes(), make, stopped)


class Died(Exception):
    """A process ended by itself."""


class Raised(Exception):
    """What a worker raised, with its traceback as the message."""

    def __init__(self, cause: BaseException, words: str):
        super().__init__(words)
        self.cause = cause


@dataclass(eq=False)
class Asked:
    """One call of an actor, and what came of it."""

    actor: Process
    ended: bool = False
    said: Any = None


class Processes:
    """What Actors asks of Ray."""

    exceptions = SimpleNamespace(RayActorError=Died, RayTaskError=Raised)

    def __init__(self) -> None:
        self.alive: list[Process] = []

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(os.cpu_count() or 1), "GPU": float(torch.cuda.device_count())}

    def remote(self, **needs: Any) -> Callable[[type], Any]:
        return lambda kind: SimpleNamespace(remote=partial(self.start, kind))

    def start(self, kind: type, *given: Any) -> Process:
        """On the GPU that the fewest are on."""
        self.alive = [process for process in self.alive if process.is_alive()]
        busy = Counter(process.gpu for process in self.alive)
        self.alive.append(Process(kind, given, min(gpus(), key=busy.__getitem__, default=None)))
        return self.alive[-1]

    def wait(
        self, asked: list[Asked], num_returns: int = 1, timeout: float = 0.0
    ) -> tuple[list[Asked], list[Asked]]:
        until = time.perf_counter() + timeout
        while True:
            left = max(0.0, until - time.perf_counter())
            enough = sum(each.ended for each in asked) >= num_returns
            open_ = {each.actor.pipe: each for each in asked if not each.ended}
            found = wait(list(open_), 0.0 if enough else left) if open_ else []
            for pipe in found:
                each = open_[pipe]  # type: ignore[index]
                each.ended, each.said = True, each.actor.hear()
            if enough or not found:
                ready = [each for each in asked if each.ended]
                return ready, [each for each in asked if not each.ended]

    def get(self, asked: Asked) -> Any:
        if isinstance(asked.said, (Died, Raised)):
            raise asked.said
        return asked.said

    def kill(self, actor: Process) -> None:
        actor.end()


@dataclass
class Process:
    """An actor in a process of its own; it is asked one thing at a time."""

    kind: type
    given: tuple[Any, ...]
    gpu: str | None
    pipe: Any = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there, self.gpu), daemon=True)
        self.process.start()
        there.close()
        for name in ("ready", "do", "pause"):
            setattr(self, name, SimpleNamespace(remote=partial(self.ask, name)))
        self.tell((self.kind, self.given))

    def ask(self, name: str, *given: Any) -> Asked:
        self.tell((name, given))
        return Asked(self)

    def tell(self, what: Any) -> None:
        with suppress(OSError):  # it has died: that is heard as an answer
            self.pipe.send(what)

    def hear(self) -> Any:
        try:
            good, said = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(1.0)
            return Died(f"a worker's process ended with code {self.process.exitcode}")
        return said if good else Raised(*said)

    def is_alive(self) -> bool:
        return self.process.is_alive()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def gpus() -> list[str]:
    """Those of this machine that may be used, as CUDA names them."""
    if not torch.cuda.is_available():
        return []
    own = os.environ.get(VISIBLE)
    return own.split(",") if own else [*map(str, range(torch.cuda.device_count()))]


def serve(pipe: Any, gpu: str | None) -> None:
    """The process: does what it is asked until nobody asks any more. When to stop, those who ask
    decide, so signals that go to all are not for it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if gpu is not None:
        os.environ[VISIBLE] = gpu
    with suppress(EOFError, BrokenPipeError):  # nobody asks any more
        kind, given = pipe.recv()
        actor = None
        while True:
            name, asked = pipe.recv()
            try:
                actor = kind(*given) if actor is None else actor
                answer = True, getattr(actor, name)(*asked)
            except Exception as error:
                cause = (
                    error if actor is not None else Fatal(f"a worker cannot start: {words(error)}")
                )
                answer = False, (cause, traceback.format_exc())
            pipe.send(sendable(answer))


def words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def sendable(answer: tuple[bool, Any]) -> tuple[bool, Any]:
    """An error that cannot be pickled goes as its words."""
    try:
        pickle.loads(pickle.dumps(answer))
    except Exception as error:
        good, said = answer
        if good:
            cause = TypeError(f"what a worker said cannot be sent: {words(error)}")
            return False, (cause, str(cause))
        return False, (RuntimeError(words(said[0])), said[1])
    return answer
