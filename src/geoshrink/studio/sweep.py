"""Sweep: quality over calls for one picture, and the fewest calls that reach what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..compare.outcomes import DIRECT, GEOSHRINK
from .lane import Lane
from .panel import cheapest, true_db
from .setting import LEAST, Setting
from .studio import Session, Studio, Waiting

POINTS = 7  # budgets of the first round
MOST_DB = 100.0  # what is closer than this is drawn here


@dataclass
class Sweep:
    """
    asked    dB
    form     that is swept, against direct
    found    (setting, dB) of every run so far
    total    runs that are expected
    budget   the fewest calls that reach what was asked, once it is known; None: not among these
    """

    asked: float
    form: str
    total: int
    found: list[tuple[Setting, float]] = field(default_factory=list)
    budget: int | None = None

    def words(self) -> str:
        if self.budget is None:
            return f"No budget that was tried reaches {self.asked:g} dB."
        reached = [db for s, db in self.found if s.budget == self.budget and s.form != DIRECT]
        return f"{self.budget} model calls reach {self.asked:g} dB here: {reached[0]:.1f} dB."


def sweep(
    studio: Studio, setting: Setting, asked: float, session: Session
) -> Iterator[Waiting | list[Lane] | Sweep]:
    """The form against direct at a few budgets, then between the two around what was asked."""
    form = setting.form if setting.form != DIRECT else GEOSHRINK
    first = budgets(setting.steps)
    told = Sweep(asked, form, 2 * len(first))

    def run(budget: int, form: str) -> Iterator[Waiting | list[Lane] | Sweep]:
        for event in studio.measure(setting.at(budget, form), session, stop):
            if not isinstance(event, tuple):
                yield event
                continue
            full = studio.known(setting)
            db = None if full is None else true_db(event[1], full)
            if db is None:
                raise ValueError(
                    f"how far {setting.model} ends from its full run is not known: it is not "
                    "finite, or the model does not say where its solver ends"
                )
            told.found.append((event[0], min(db, MOST_DB)))
            yield told

    with session.task() as stop:
        for budget in first:
            for each in (form, DIRECT):
                yield from run(budget, each)
        while (high := cheapest(told.found, asked)) is not None:
            tried = [s.budget for s, _ in told.found if s.form == form and s.budget < high]
            low = max(tried, default=high - 1)
            if high - low <= 1:
                break
            told.total += 1
            yield from run((low + high) // 2, form)
    told.budget = cheapest(told.found, asked)
    yield told


def budgets(steps: int) -> list[int]:
    """From the fewest to all but a few, closer together where they are few.

    >>> budgets(50)
    [4, 6, 8, 11, 16, 23, 33]
    """
    top = max(LEAST, round(2 * steps / 3))
    ratio = (top / LEAST) ** (1 / (POINTS - 1))
    return sorted({min(steps, round(LEAST * ratio**i)) for i in range(POINTS)})
