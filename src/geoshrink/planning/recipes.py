"""Recipes: the ways in which a plan can be made from a profile, and the plans that need none."""

from __future__ import annotations

from dataclasses import dataclass

from ..grid import Grid
from ..plan import METHODS, Plan
from .cells import CALIBRATED

LINEAR = "linear"
RULES = ("hold", "chordal", "signed chordal", "time", "signed time", CALIBRATED)


@dataclass(frozen=True)
class Recipe:
    """Anchors by shortest path, every cell with the cheapest of these rules, in one space.

    early   the gain is that of the samples where it is largest (root mean square over samples, not
            geometric mean), which moves anchors towards the start
    """

    rules: tuple[str, ...]
    space: str = "output"
    early: bool = False

    @property
    def name(self) -> str:
        rule = self.rules[0] if len(self.rules) == 1 else "any rule"
        more = [f"{self.space} space"] * (self.space != "output") + ["early"] * self.early
        return ", ".join([rule, *more])


#: Holding is the same in both spaces under Euler, so it is listed once.
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in [
        Recipe(("hold",)),
        Recipe(("time",), early=True),
        Recipe((LINEAR,)),
        Recipe((LINEAR,), "data"),
        *(Recipe(r, s) for s in ("output", "data") for r in [(x,) for x in RULES[1:]] + [RULES]),
    ]
}

DIRECT, PUBLISHED, SIGMA, AUTO = "direct", "published", "σ-geometric", "auto"
BASELINES = (DIRECT, PUBLISHED, SIGMA, AUTO)
MESHES = {
    PUBLISHED: METHODS["paper"],
    SIGMA: dict(anchors="sigma", rule="signed chordal"),
    AUTO: METHODS["default"],
}


def baseline(name: str, grid: Grid, budget: int, refine: int = 1) -> Plan | None:
    """A plan that needs no profile; None where there is none at this budget."""
    if name == DIRECT:
        return direct_plan(grid, budget)
    if budget < min(4, grid.steps) or (
        refine > 1 and any(track.prediction == "v" for track in grid.tracks)
    ):
        return None
    return Plan.of(grid, budget, refine=refine, **MESHES[name])


def direct_plan(grid: Grid, budget: int) -> Plan:
    """Direct step reduction on the grid's own stages: hold from stages i·T/B, to the nearest.

    Under Euler this is the solver on these stages alone; B dividing T makes it the shorter grid of
    the same spacing. A regime's first stage takes the place of the nearest.
    """
    stages = [round(i * grid.steps / budget) for i in range(budget)]
    for start in (start for start in grid.regimes if start not in stages):
        free = [s for s in stages[1:] if s not in grid.regimes]
        stages[stages.index(min(free, key=lambda s: abs(s - start)))] = start
    mesh = "direct: the solver's own steps between equally spaced"
    plan = Plan.of(grid, anchors=sorted(stages), rule="hold")
    return Plan(plan.grid, plan.anchors, plan.rules, mesh=mesh)
