"""Spread: a profile whose batches are run by many workers; its numbers are those of one process.

Profiling asks for one batch after another. The first question sends all of them out, the others
find their answers there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ..outputs import flatten
from ..plan import Plan
from ..planning.runs import RUN, Kind, Runs
from ..planning.tournament import Source
from .jobs import Crew, Done, Engine, Job

BATCH, END, MADE = "batch", "end", "made"


@dataclass(frozen=True)
class Part:
    """Makes a worker that runs batches of a source; `make` makes the source where it works."""

    make: Callable[[], Source]

    def __call__(self) -> Batches:
        return Batches(self.make())


class Batches:
    """The worker. Tensors come back on the host."""

    def __init__(self, source: Source):
        self.source = source

    def __call__(self, what: tuple[str, int, Any]) -> Any:
        kind, i, given = what
        if kind == BATCH:
            profile = self.source.with_batch(given, i)
            return profile.batches[-1], profile.solver, on_host(self.source.end(i))
        if kind == END:
            return on_host(self.source.end(i, given))
        return on_host(self.source.made(i, Plan.from_json(given)))


class Spread(Source):
    """What is profiled, as the driver sees it: what is cheap it asks the source itself."""

    def __init__(self, source: Source, crew: Crew):
        self.source, self.crew = source, crew
        self.states, self.facts = source.states, source.facts
        self.spent, self.saves = source.spent, source.saves
        self.answers: dict[tuple[str, int, str], Any] = {}
        self.tick = lambda: None

    def cost(self, profile: Runs) -> tuple[int, int]:
        return self.source.cost(profile)

    def begin(self, i: int) -> Iterable[list[list[Tensor]]]:
        return self.source.begin(i)

    def with_batch(self, profile: Kind, i: int) -> Kind:
        empty = replace(profile, batches=(), trials=())
        batch, solver, end = self.ask(BATCH, i, empty, calls=self.cost(profile)[1])
        self.answers[END, i, RUN] = end
        return replace(profile, batches=(*profile.batches, batch), solver=solver)

    def end(self, i: int, target: str = RUN) -> Any:
        return self.ask(END, i, target, target)

    def made(self, i: int, plan: Plan) -> Any:
        text = plan.to_json()
        return self.ask(MADE, i, text, text, calls=plan.budget)

    def ask(self, kind: str, i: int, given: Any, name: str = "", calls: int = 0) -> Any:
        """The answer of batch i; those of the batches after it are fetched along."""
        if (kind, i, name) not in self.answers:
            wanted = [j for j in range(i, len(self.states)) if (kind, j, name) not in self.answers]
            jobs = [Job(f"{kind} {j}", (kind, j, given), unit=str(j)) for j in wanted]
            for event in self.crew.work(jobs):
                if not isinstance(event, Done):
                    raise RuntimeError(f"{event.job.key} failed on a worker: {event.error}")
                _, j, _ = event.job.what
                self.answers[kind, j, name] = event.said
                for _ in range(calls):
                    self.tick()
        if (kind, i, name) not in self.answers:
            raise KeyboardInterrupt  # it was stopped
        return self.answers[kind, i, name]


@contextmanager
def spread(
    engine: Engine | None, make: Callable[[], Source]
) -> Iterator[Callable[[Source], Source]]:
    """What profile() takes as `through`: workers that make() makes the source for; without an
    engine the source itself.
    """
    if engine is None:
        yield lambda source: source
        return
    crew = engine.open(Part(make), lambda: False)
    try:
        yield lambda source: Spread(source, crew)
    finally:
        crew.close()


def on_host(x: Any) -> Any:
    if x is None:
        return None
    leaves, unflatten = flatten(x)
    return unflatten([leaf.detach().cpu() for leaf in leaves])


def parts_of(x: Any, size: int) -> list[Any]:
    """A batch as several of at most `size` samples."""
    leaves, unflatten = flatten(x)
    starts: Sequence[int] = range(0, len(leaves[0]), size)
    return [unflatten([leaf[at : at + size].contiguous() for leaf in leaves]) for at in starts]
