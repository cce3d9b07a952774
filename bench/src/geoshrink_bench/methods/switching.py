"""Where guidance switches: there the network's batch is another, and what acts inside it runs."""

from __future__ import annotations

from typing import Any

from geoshrink.grid import Grid

from .base import Case, every


def switching(case: Case) -> Grid:
    """The grid, with regimes also where guidance begins and ends within the model's own interval
    (foreign.Recipe.within), of which its plain grid says nothing.
    """
    own: Any = case
    recipe = getattr(getattr(case, "model", None), "recipe", None)
    within = getattr(recipe, "within", None)
    if recipe is None or within is None or own.interval is not None:
        return case.grid()
    guidance = recipe.judged_at["guidance"] if own.guidance is None else own.guidance
    return case.grid() if guidance == 1 else own.model.grid(own.steps, own.shift, within)


def fitting(budget: int, grid: Grid, warm_up: int) -> list[int]:
    """`every` of the shortest interval with which there are at most `budget` full stages, those at
    which guidance switches among them; [] if there is none.
    """
    schedules = (every(n, grid.steps, warm_up) for n in range(1, grid.steps + 1))
    return next((found for found in schedules if len({*grid.regimes, *found}) <= budget), [])
