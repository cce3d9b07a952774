"""Planner: the cheapest plan of every recipe at every budget, searched once and remembered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from ..correction import Correction
from ..grid import Grid
from ..plan import METHODS, Plan
from ..rules import Rule
from ..solvers import SOLVERS
from ..targets import FLOW
from .cells import CALIBRATED, LINEAR
from .runs import Runs
from .search import Found, Regime, shared, short
from .space import View

RULES = ("hold", "chordal", "signed chordal", "time", "signed time", CALIBRATED)
SHARE = 0.2  # of a prediction's error that stays after the correction, as in meshes/corrected.py


@dataclass(frozen=True)
class Recipe:
    """How to make a plan: the cheapest anchors, every cell with the cheapest of these rules.

    early       weigh errors by the root mean square of the gain over samples, not its geometric
                mean: samples with a large gain count more, which moves anchors towards the start
    corrected   cells are put right at their ends, and cost what is left of them then
    clock       in what ρ, λ and the interpolation are measured, as in a Plan
    """

    rules: tuple[str, ...]
    space: str = "output"
    early: bool = False
    corrected: bool = False
    clock: str = "sigma"

    @property
    def name(self) -> str:
        rule = self.rules[0] if len(self.rules) == 1 else "any rule"
        more = [f"{self.space} space"] * (self.space != "output") + ["early"] * self.early
        more += ["corrected"] * self.corrected + ["mesh clock"] * (self.clock != "sigma")
        return ", ".join([rule, *more])


#: Under Euler holding is the same in both spaces, so it is listed once.
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in [
        Recipe(("hold",)),
        Recipe(("time",), early=True),
        Recipe((LINEAR,)),
        Recipe((LINEAR,), "data"),
        *(Recipe(r, s) for s in ("output", "data") for r in [(x,) for x in RULES[1:]] + [RULES]),
        Recipe(("signed time",), corrected=True),
        *(Recipe((r,), "data", corrected=True, clock="mesh") for r in ("time", "signed time")),
    ]
}

DEFAULT, DIRECT, PUBLISHED, SIGMA = "default", "direct", "published", "σ-geometric"
AUTO, CORRECTED, CAUTIOUS, MESH = "auto", "corrected", "cautious", "corrected mesh"
FEW = "corrected mesh, caution ½"
#: The default is whatever Plan.of makes, with its first anchors (pace.py); the others stay what
#: they are if that changes. Give a new default a name of its own here, too: trials in files are
#: known by their names.
MESHES: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    PUBLISHED: dict(METHODS["paper"], correct=False),
    SIGMA: dict(anchors="sigma", rule="signed chordal", correct=False),
    AUTO: dict(anchors="auto", rule="signed time", correct=False),
    CORRECTED: dict(anchors="auto", rule="signed time", correct=True),
    CAUTIOUS: dict(anchors="auto", rule="signed time", correct=Correction(caution=1.0)),
    MESH: dict(anchors="corrected", rule="signed time", clock="mesh", correct=True),
    FEW: dict(
        anchors="corrected", rule="signed time", clock="mesh", correct=Correction(caution=0.5)
    ),
}
BASELINES = (DEFAULT, DIRECT, *list(MESHES)[1:])


def baseline(name: str, grid: Grid, budget: int, refine: int = 1) -> Plan | None:
    """A plan that needs no profile; None if it does not exist at this budget.

    For the exact flow (refine > 1) the default is what target="flow" gives without a profile.
    """
    if name == DIRECT:
        return direct_plan(grid, budget)
    options = MESHES[name]
    if budget < min(4, grid.steps) or (
        refine > 1 and any(track.prediction == "v" for track in grid.tracks)
    ):
        return None
    if refine > 1 and name == DEFAULT and correctable(grid):
        return Plan.of(grid, budget, target=FLOW, refine=refine)
    if options.get("correct") and not correctable(grid):
        return None
    return replace(Plan.of(grid, budget, refine=refine, **options), slow=())


def correctable(grid: Grid) -> bool:
    """Whether the grid says what an output says about the data, as correction needs."""
    return all(track.levels is not None for track in grid.tracks)


def knows_data(grid: Grid) -> bool:
    """Whether the grid says where the data is, as data space needs."""
    return all(t.prediction != "flow" or t.data is not None for t in grid.tracks)


def possible(recipe: Recipe, grid: Grid, refine: int = 1) -> bool:
    """Whether a recipe has plans on this grid."""
    if recipe.corrected and not correctable(grid):
        return False
    if recipe.space == "data":
        return knows_data(grid)
    return refine == 1 or all(track.prediction != "v" for track in grid.tracks)


def direct_plan(grid: Grid, budget: int) -> Plan:
    """Direct step reduction: hold the outputs of the stages nearest to i·T/B.

    Under Euler this is the solver on these stages alone. If B divides T, it is the shorter grid of
    the same spacing. A regime's first stage replaces the nearest of them.
    """
    stages = [round(i * grid.steps / budget) for i in range(budget)]
    for start in (start for start in grid.regimes if start not in stages):
        free = [s for s in stages[1:] if s not in grid.regimes]
        stages[stages.index(min(free, key=lambda s: abs(s - start)))] = start
    mesh = "direct: the solver's own steps between equally spaced"
    plan = Plan.of(grid, anchors=sorted(stages), rule="hold")
    return Plan(plan.grid, plan.anchors, plan.rules, mesh=mesh)


class Planner:
    """refine   1: plans aim at the solver's own T steps; more: at the exact flow"""

    def __init__(self, profile: Runs, refine: int = 1):
        self.profile, self.grid, self.refine = profile, profile.grid, refine
        self.regimes: dict[tuple[int, str, bool, int, bool, str], Regime] = {}
        self.found: dict[tuple[str, int], Found] = {}

    @property
    def solver(self) -> str:
        """The solver that weighs the cells: Euler, if we do not know the profile's own."""
        return self.profile.solver if self.profile.solver in SOLVERS else "euler"

    def importance(self, early: bool) -> list[Tensor]:
        """a(σ)² over the energy of every slot (1 in place of 0), at grid points 0 … T."""
        energies = self.profile.energies
        gains = [self.profile.gains(i, early) for i in range(len(energies))]
        return [torch.from_numpy(a) ** 2 / (e or 1.0) / len(gains) for a, e in zip(gains, energies)]

    def regime(
        self,
        index: int,
        space: str,
        early: bool = False,
        parts: int = 1,
        corrected: bool = False,
        clock: str = "sigma",
    ) -> Regime:
        """parts   nodes per stage, if the target is the exact flow"""
        parts = parts if self.refine > 1 else 0
        key = index, space, early, parts, corrected, clock
        if key not in self.regimes:
            first, last = self.grid.spans()[index]
            where = space, first, last, parts, self.solver, clock
            views = [
                View.of(self.grid.track(i), products, *where)
                for i, products in enumerate(self.profile.grams)
            ]
            prices = [a[first : last + 1] for a in self.importance(early)]
            share = SHARE if corrected else None
            self.regimes[key] = Regime(views, prices, self.solver == "euler", share)
        return self.regimes[key]

    def regimes_for(self, recipe: Recipe) -> list[Regime]:
        count = len(self.grid.spans())
        how = recipe.space, recipe.early, 1, recipe.corrected, recipe.clock
        return [self.regime(r, *how) for r in range(count)]

    def search(self, name: str, budget: int) -> Found:
        """The cheapest plan of a recipe at a budget."""
        if (name, budget) not in self.found:
            recipe, spans = RECIPES[name], self.grid.spans()
            regimes = self.regimes_for(recipe)
            with one_thread():
                parts = [regime.search(recipe.rules, budget) for regime in regimes]
            for b in range(len(spans), self.grid.steps + 1) if self.exact else [budget]:
                shares = shared([[found.cost for found in part] for part in parts], b)
                chosen = [part[share - 1] for part, share in zip(parts, shares)]
                if not self.exact:
                    with one_thread():
                        chosen = [r.refined(recipe.rules, f) for r, f in zip(regimes, chosen)]
                self.found[name, b] = joined(chosen, [first for first, _ in spans])
        return self.found[name, budget]

    def named(self, name: str, budget: int) -> Plan | None:
        """The plan of a baseline or a recipe; None if this grid or budget has none."""
        if name in BASELINES:
            return baseline(name, self.grid, budget, self.refine)
        recipe = RECIPES[name]
        if not possible(recipe, self.grid, self.refine):
            return None
        found = self.search(name, budget)
        return Plan(
            self.grid,
            found.anchors,
            tuple(Rule.of("hold" if rule == CALIBRATED else rule) for rule in found.rules),
            self.coefficients(found, recipe.space),
            recipe.space,
            mesh="planned",
            refine=self.refine,
            correct=Correction.of(recipe.corrected),
            clock=recipe.clock,
        )

    def corrects(self, name: str, budget: int) -> bool:
        """Whether the plan of a baseline or a recipe corrects its cells."""
        if name in RECIPES:
            return RECIPES[name].corrected
        plan = baseline(name, self.grid, budget, self.refine)
        return plan is not None and plan.correct is not None

    def is_default(self, name: str, budget: int) -> bool:
        """Whether a baseline is what Plan.of makes at this budget."""
        if name not in BASELINES:
            return False
        mine, own = (baseline(n, self.grid, budget, self.refine) for n in (name, DEFAULT))
        return mine is not None and own is not None and replace(mine, mesh=own.mesh) == own

    @property
    def exact(self) -> bool:
        """Whether every set of anchors is searched, with any recipe."""
        return all(short(last - first) for first, last in self.grid.spans())

    def exact_for(self, name: str) -> bool:
        """Whether every set of anchors is searched for a recipe."""
        rules = RECIPES[name].rules
        return all(regime.exact_for(rules) for regime in self.regimes_for(RECIPES[name]))

    def coefficients(self, found: Found, space: str) -> tuple[float | None, ...] | None:
        """ω of the (refined) stages in calibrated cells, and of the anchor that ends them."""
        if CALIBRATED not in found.rules:
            return None
        times = self.refine
        omega: list[float | None] = [None for _ in range(self.grid.steps * times)]
        for r, first, last, own, rules in self.parted(found):
            regime = self.regime(r, space, parts=times)
            for place, k in enumerate(own[1:], 1):
                if rules[place] == CALIBRATED:
                    end = min((*own, last - first)[place + 1] * times + 1, (last - first) * times)
                    fitted = regime.cells(own, place).calibrated()[int(times > 1) :, -1]
                    start, count = first * times + k * times + 1, end - k * times - 1
                    omega[start : start + count] = fitted[:count].tolist()
        return tuple(omega)

    def parted(self, plan: Plan | Found) -> Iterator[tuple[int, int, int, list[int], list[Any]]]:
        """(regime, its first stage, its end, its anchors counted from there, their rules)."""
        for r, (first, last) in enumerate(self.grid.spans()):
            mine = [(a - first, u) for a, u in zip(plan.anchors, plan.rules) if first <= a < last]
            yield r, first, last, [a for a, _ in mine], [rule for _, rule in mine]

    def surrogate(self, name: str, budget: int) -> float:
        """−10·log10 of the cost: it ranks anchors, and does not predict the quality."""
        if name in RECIPES:
            return decibel(self.search(name, budget).cost)
        plan = baseline(name, self.grid, budget, self.refine)
        return math.nan if plan is None else decibel(self.cost(plan))

    def cost(self, plan: Plan) -> float:
        """Σ a²·E‖e‖² of a plan that has no coefficients; caution is left out of account."""
        total, corrected = 0.0, plan.correct is not None
        for r, _, _, own, rules in self.parted(plan):
            for place, rule in enumerate(rules):
                near, k = own[max(place - 2, 0) : place + 2], min(place, 2)
                with one_thread():
                    regime = self.regime(r, plan.space, False, 1, corrected, plan.clock)
                    costs = regime.cells(near, k).costs(str(rule))
                total += float(costs[0, max(k - 1, 0), 0])
        return total


def joined(parts: Sequence[Found], starts: Sequence[int]) -> Found:
    """The regimes' anchors as one plan's."""
    anchors = [first + a for first, part in zip(starts, parts) for a in part.anchors]
    rules = [rule for part in parts for rule in part.rules]
    return Found(sum(part.cost for part in parts), tuple(anchors), tuple(rules))


class OneThread:
    """How many are in one_thread() now, and how many threads there were before the first."""

    lock, inside, before = Lock(), 0, 1


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: for thousands of small products more would mostly wait for each other. The
    number is the whole process's: the last one out puts it back.
    """
    with OneThread.lock:
        if not OneThread.inside:
            OneThread.before = torch.get_num_threads()
            torch.set_num_threads(1)
        OneThread.inside += 1
    try:
        yield
    finally:
        with OneThread.lock:
            OneThread.inside -= 1
            if not OneThread.inside:
                torch.set_num_threads(OneThread.before)


def decibel(cost: float) -> float:
    """−10·log10, at most 300 dB."""
    return -10 * math.log10(max(cost, 1e-30))


def planner_of(profile: Runs, refine: int = 1) -> Planner:
    """The searches of a profile, which remembers them."""
    if not profile.complete:
        raise ValueError(
            "this profile is not whole: profiling was interrupted; call profile(…, file=…) again "
            "with the same arguments, and it goes on"
        )
    if refine not in profile._planners:
        profile._planners[refine] = Planner(profile, refine)
    return profile._planners[refine]
