"""Fast solvers at equal evaluations, each on the direct grid and on the σ of our anchors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from geoshrink.grid import Grid
from geoshrink.outputs import flatten
from geoshrink.plan import Plan
from geoshrink.sampling import sample

from .base import Case, Method, Outcome, bytes_of
from .multistep import DEIS, UniPC

OWN: dict[str, Any] = {"unipc": UniPC, "deis": DEIS}
#: How many tensors of the size of x a solver keeps for later stages.
KEPT = {"euler": 0, "ab2": 1, "dpm++2m": 1, "heun": 0, "unipc": 3, "deis": 1}


class Solver(Method):
    """A solver whose grid has as many points as the budget has evaluations.

    anchors     None: the grid of so many steps in the case's spacing ("direct"). A mesh of Plan.of:
                the anchors that mesh finds on the full grid, then the full grid's end.

    Heun evaluates twice a stage and once in the last: n stages for 2n − 1 evaluations, so an even
    budget is met but for one. `evaluated` lists the points (of the full grid on our anchors, of the
    short one else) and names those twice that are evaluated twice. Works on structured x and on
    every prediction.
    """

    def __init__(self, solver: str, anchors: str | None = None):
        if solver not in KEPT:
            raise ValueError(f"unknown solver {solver!r}; choose one of {', '.join(KEPT)}")
        self.solver, self.anchors = solver, anchors
        where = "direct grid" if anchors is None else f"{anchors} anchors"
        self.name = f"{NAMES[solver]}, {where}"

    def run(self, case: Case, budget: int) -> Outcome:
        stages = (budget + 1) // 2 if self.solver == "heun" else budget
        if self.anchors is None:
            grid = case.grid(stages)
            points = list(range(grid.steps))
        else:
            full = case.grid()
            points = list(Plan.of(full, stages, anchors=self.anchors).anchors)
            grid = through(full, points)
        if self.solver in OWN:
            x = integrate(case.velocity(), case.noise, grid, OWN[self.solver])
        else:
            x = sample(case.velocity(), case.noise, grid, solver=self.solver)
        if self.solver == "heun":
            points = sorted(points + points[1:])
        held = KEPT[self.solver] * bytes_of(case.noise)
        return Outcome(
            x, tuple(points), held=held, steps=grid.steps if self.anchors is None else None
        )


def through(grid: Grid, points: list[int]) -> Grid:
    """The grid through some of a grid's stages and its end."""
    count = len(points)
    return replace(
        grid,
        tracks=tuple(track.at((*points, grid.steps)) for track in grid.tracks),
        kept=tuple(range(count)),
        given=count,
        regimes=tuple(points.index(start) for start in grid.regimes),
    )


def integrate(velocity: Any, x: Any, grid: Grid, make: Any) -> Any:
    """sample(), for solvers that are not its own."""
    parts: list[Tensor]
    parts, unflatten = flatten(x)
    several = len(grid.tracks) > 1
    tracks = grid.tracks if several else grid.tracks * len(parts)
    solvers = [make(track) for track in tracks]
    for n in range(grid.steps):
        levels: list[Any] = [track.sigmas[n] for track in tracks]
        output = velocity(unflatten(parts), unflatten(levels) if several else levels[0])
        pairs = zip(solvers, parts, flatten(output)[0])
        parts = [solver.step(n, part, v) for solver, part, v in pairs]
    return unflatten(parts)


NAMES = {
    "euler": "Euler",
    "ab2": "AB2",
    "dpm++2m": "DPM-Solver++(2M)",
    "heun": "Heun",
    "unipc": "UniPC",
    "deis": "DEIS",
}
SOLVERS: dict[str, Solver] = {
    method.name: method
    for method in (
        Solver(solver, anchors) for anchors in (None, "sigma", "geometric") for solver in NAMES
    )
    if method.name != "Euler, direct grid"  # that is Direct
}
