"""Where guidance switches: there the network's batch is another, and what acts inside it runs."""

from __future__ import annotations

from dataclasses import replace

from geoshrink.grid import Grid

from .base import Case, every
from .once import once
from .output import OutputSession, Parts


class Shapes(OutputSession):
    """A full run that notes the shapes of what goes into the network."""

    guided = False

    def __init__(self, case: Case):
        super().__init__(case, range(case.grid().steps))
        self.seen: list[list[tuple[int, ...]]] = []

    def observe(self, x: Parts, output: Parts) -> None:
        self.seen.append([tuple(part.shape) for part in x])

    def forget(self) -> None:
        """Nothing is kept."""


def switching(case: Case) -> Grid:
    """The grid, with a regime also where only the network's batch says that guidance switches."""

    def find() -> Grid:
        grid, session = case.grid(), Shapes(case.one())
        session.run()
        new = [n for n in range(1, grid.steps) if session.seen[n] != session.seen[n - 1]]
        return replace(grid, regimes=tuple(sorted({*grid.regimes, *new})))

    return once(case, Shapes, find)


def fitting(budget: int, grid: Grid, warm_up: int) -> list[int]:
    """`every` of the shortest interval with which there are at most `budget` full stages, those at
    which guidance switches among them; [] if there is none.
    """
    schedules = (every(n, grid.steps, warm_up) for n in range(1, grid.steps + 1))
    return next((found for found in schedules if len({*grid.regimes, *found}) <= budget), [])
