"""The engine on Ray: one actor for every GPU, or for so many CPUs; Ray places and restarts them.

Our own loop over ray.wait, since a lost node ends ActorPool's map. A job whose actor died is given
to another; an actor that died is replaced. Nothing but jobs and a few words goes through Ray's
object store.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .jobs import TRIES, Broken, Done, Failed, Fatal, Job, Worker

LOCAL = "local"
WAIT = 0.5  # seconds between two looks at who has stopped us
NEWS = 2.0  # seconds between two looks at how large the cluster is
STARTS = 3  # workers that may fail to start, one after the other
logger = logging.getLogger("geoshrink")


@dataclass
class Hand:
    """One actor, and what it does now."""

    actor: Any
    job: Job | None = None
    began: float = 0.0
    unit: str = ""
    ready: bool = False


@dataclass(frozen=True)
class OnRay:
    """
    address   of a cluster; "auto": the one that RAY_ADDRESS or this machine names; "local": a new
              one on this machine
    workers   how many actors; None: as many as the cluster has room for now
    gpus      of each actor; may be a fraction. None: 1 where the cluster has any, else 0
    cpus      of each actor, where it has no GPU
    threads   of torch in each actor, where it has no GPU; None: as many as its CPUs
    options   of ray.init

    A cluster that this process has joined already is used, whatever the address.
    """

    address: str = "auto"
    workers: int | None = None
    gpus: float | None = None
    cpus: int = 1
    threads: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")
        if self.gpus is not None and self.gpus < 0:
            raise ValueError(f"GPUs of a worker must be 0 or more, got {self.gpus:g}")
        if self.cpus < 1:
            raise ValueError(f"CPUs of a worker must be at least 1, got {self.cpus}")

    def open(self, make: Callable[[], Worker], stopped: Callable[[], bool]) -> Actors:
        return Actors(self, connected(self.address, self.options), make, stopped)


def connected(address: str, options: dict[str, Any]) -> Any:
    """Ray, joined to the cluster."""
    try:
        import ray
    except ImportError:
        raise ImportError("many machines need ray: pip install 'geoshrink[ray]'") from None
    if ray.is_initialized():
        return ray
    given: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, **options}
    given |= {"address": address, **({"include_dashboard": False} if address == LOCAL else {})}
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**given)
    except ConnectionError as error:
        raise ConnectionError(
            f"no Ray cluster at {address!r}: start one (ray start --head), give its address, or "
            f"--ray local for one on this machine ({error})"
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_term)  # Ray puts its own there, which ends at once
    return ray


class Actors:
    """Those of one engine, and the jobs that are left."""

    def __init__(
        self, engine: Any, ray: Any, make: Callable[[], Worker], stopped: Callable[[], bool]
    ):
        self.engine, self.ray, self.make, self.stopped = engine, ray, make, stopped
        self.left: deque[Job] = deque()
        self.open: set[str] = set()  # keys of jobs that have not ended
        self.hands: dict[Any, Hand] = {}  # by what is awaited of each
        self.idle: list[Hand] = []
        self.hired: list[Any] = []  # actors that are alive
        self.tries: Counter[str] = Counter()
        self.plain = True  # no job waits for another
        self.starts, self.proved = 0, False  # workers that died at once; whether one ever did not
        self.asked: tuple[float, int] = (-math.inf, 0)  # when the cluster was, and its room
        self.kind: Any = None  # the actors' class
        self.share: float | None = None  # of a GPU that each has
        self.seconds = 0.0  # of all jobs

    # -- the loop

    def work(self, jobs: Iterable[Job]) -> Iterator[Done | Failed]:
        """The dearest first; those that are timed last."""
        self.left = deque(sorted(jobs, key=lambda job: (job.alone, -job.cost)))
        self.open = {job.key for job in self.left}
        self.tries.clear()  # a round may use the names of the one before
        self.plain = not any(job.after or job.unit or job.alone for job in self.left)
        resting, self.idle = self.idle, []
        for hand in resting:
            self.give(hand)
        self.hire()
        while self.left or self.working():
            if self.stopped() and not self.working():
                return
            self.check()
            refs = list(self.hands)
            finished, _ = self.ray.wait(refs, timeout=WAIT)
            if finished:  # all that have ended by now, not only the first
                finished, _ = self.ray.wait(refs, num_returns=len(refs), timeout=0)
            for ref in finished:
                yield from self.ended(self.hands.pop(ref), ref)
            self.hire()

    def close(self) -> None:
        for actor in self.hired:  # one of them may be in no hand: what it said ended the work
            self.ray.kill(actor)
        self.hands, self.idle, self.hired = {}, [], []

    def working(self) -> int:
        return sum(hand.job is not None for hand in self.hands.values())

    def check(self) -> None:
        if not self.hands:
            raise Fatal(
                f"Ray has no room for a worker with {self.needs()}: it has "
                f"{self.ray.cluster_resources()}"
            )

    def ended(self, hand: Hand, ref: Any) -> Iterator[Done | Failed]:
        """What came of what was awaited; then the hand gets another job."""
        errors = self.ray.exceptions
        job, hand.job = hand.job, None
        try:
            said = self.ray.get(ref)
        except errors.RayActorError as lost:  # before RayTaskError: it died, and did not raise
            yield from self.lost(hand, job, last_line(str(lost)))
            return
        except errors.RayTaskError as raised:
            cause: Any = raised.cause
            if isinstance(cause, Fatal):
                raise cause from None
            if isinstance(cause, Broken):
                self.ray.kill(hand.actor)
                yield from self.lost(hand, job, str(cause))
                return
            if job is None:
                raise
            self.open.discard(job.key)
            yield Failed(job, str(raised))
        else:
            if job is None:
                hand.ready = self.proved = True
            else:
                self.open.discard(job.key)
                seconds = time.perf_counter() - hand.began
                self.seconds += seconds
                yield Done(job, said, seconds)
        self.give(hand)

    def lost(self, hand: Hand, job: Job | None, words: str) -> Iterator[Failed]:
        """Its actor is gone: the job goes to another, the actor is replaced by hire()."""
        logger.warning("geoshrink: a worker was lost (%s)", words)
        self.hired.remove(hand.actor)
        if not hand.ready and not self.proved:
            self.starts += 1
            if self.starts >= STARTS:
                raise Fatal(f"{STARTS} workers died before their first job: {words}")
        if job is None:
            return
        self.tries[job.key] += 1
        if self.tries[job.key] < TRIES:
            self.left.appendleft(job)
            return
        self.open.discard(job.key)
        yield Failed(job, f"its worker died {TRIES} times: {words}")

    # -- who does what

    def hire(self) -> None:
        """As many actors as there is room and work for."""
        if self.stopped():
            return
        while self.idle and self.left:
            self.give(self.idle.pop())
        wanted = min(self.room(), len(self.left) + self.working())
        for _ in range(wanted - len(self.hands) - len(self.idle)):
            actor = self.remote().remote(self.make, self.threads())
            self.hired.append(actor)
            self.hands[actor.ready.remote()] = Hand(actor)

    def give(self, hand: Hand) -> None:
        """The next job that may begin, of the hand's own unit if there is one."""
        job = None if self.stopped() else self.next(hand.unit)
        if job is None:
            self.rest(hand)
            return
        hand.job, hand.unit, hand.began = job, job.unit, time.perf_counter()
        self.hands[hand.actor.do.remote(job.what)] = hand

    def rest(self, hand: Hand) -> None:
        """Nothing may begin now: it asks again in a moment, or rests until there is more to do."""
        if self.left and not self.stopped():
            self.hands[hand.actor.pause.remote(WAIT)] = hand
        else:
            self.idle.append(hand)

    def next(self, unit: str) -> Job | None:
        if self.plain:
            return self.left.popleft() if self.left else None
        ready = [job for job in self.left if not job.after or job.after not in self.open]
        timed = any(h.job is not None and h.job.alone for h in self.hands.values())
        if timed or not ready:
            return None
        units = {hand.unit for hand in self.hands.values() if hand.job is not None}
        own = [job for job in ready if job.unit and job.unit == unit]
        fresh = [job for job in ready if job.unit not in units]
        job = (own or fresh or ready)[0]
        if job.alone and self.working():
            return None
        self.left.remove(job)
        return job

    # -- resources

    @property
    def gpu_seconds(self) -> float:
        return self.seconds * self.gpus()

    def gpus(self) -> float:
        if self.share is not None:
            return self.share
        own: float | None = self.engine.gpus
        any_ = bool(self.ray.cluster_resources().get("GPU", 0))
        self.share = share = float(any_) if own is None else own
        return share

    def needs(self) -> dict[str, float]:
        """An actor on a GPU holds no CPU: helpers would starve."""
        gpus = self.gpus()
        return {"num_gpus": gpus, "num_cpus": 0} if gpus else {"num_cpus": self.engine.cpus}

    def threads(self) -> int | None:
        if self.gpus():
            return None
        return self.engine.cpus if self.engine.threads is None else self.engine.threads

    def room(self) -> int:
        """How many actors the cluster can hold, those that are there included."""
        if self.engine.workers is not None:
            return self.engine.workers
        when, room = self.asked
        if time.perf_counter() - when > NEWS:
            gpus, have = self.gpus(), self.ray.cluster_resources()
            free = have.get("GPU", 0) / gpus if gpus else have.get("CPU", 0) / self.engine.cpus
            room = int(free + 1e-9)
            self.asked = time.perf_counter(), room
        return room

    def remote(self) -> Any:
        if self.kind is None:
            needs: dict[str, Any] = self.needs()
            self.kind = self.ray.remote(max_restarts=0, max_task_retries=0, **needs)(Actor)
        return self.kind


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), text).strip()


class Actor:
    """In its own process: the worker, made once."""

    def __init__(self, make: Callable[[], Worker], threads: int | None):
        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        self.worker = make()

    def ready(self) -> None:
        """Answers when the worker has been made."""

    def do(self, what: Any) -> Any:
        return self.worker(what)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)
