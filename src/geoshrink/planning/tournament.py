"""Profiling: the full runs of every batch, then a tournament: a few plans run for real on the
calibration samples, which settles the order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..grid import Grid
from ..history.refinement import refined_grid
from ..outputs import flatten
from ..plan import Plan
from ..report import size
from ..sampling import sample
from .files import read, write
from .planner import (
    AUTO,
    CAUTIOUS,
    CORRECTED,
    DEFAULT,
    DIRECT,
    FEW,
    MESH,
    PUBLISHED,
    RECIPES,
    SIGMA,
    baseline,
    planner_of,
    possible,
)
from .runs import FLOW, FULL, REFINE, RUN, Kind, Runs, Trial, check_budget, grid_misfit
from .search import EXACT, most_anchors
from .space import gram

#: Who enters, those first that win most: where calls are limited, the last ones stay out. The
#: surrogate finds anchors but ranks rules wrongly, so real runs do.
BEST = "signed time, corrected", "time, data space, corrected, mesh clock"
FIRST = DIRECT, DEFAULT, *BEST, "any rule", MESH
SLATES = {
    RUN: (
        *FIRST,
        CAUTIOUS,
        "signed time, data space, corrected, mesh clock",
        CORRECTED,
        "time",
        AUTO,
        "time, data space",
        "chordal",
        PUBLISHED,
        SIGMA,
        FEW,
    ),
    FLOW: (
        *FIRST,
        "time",
        "linear",
        CORRECTED,
        CAUTIOUS,
        AUTO,
        "time, data space",
        "linear, data space",
        "chordal",
        PUBLISHED,
        SIGMA,
        FEW,
    ),
}
MOST, LEAST = 9, 6  # entrants at a budget
#: The products at the beginning of two runs of one model are the same up to this much: noise up to
#: its rounding in a small file, outputs up to another order of summation.
SAME = {"noise": 1e-6, "first outputs": 1e-4}
CONVERGED = 4  # times the grid is refined for AB2 to reach the exact flow
PARTS = (7, 5, 2.5)  # the default budgets are the stages, or 100, divided by these
RUNS = 10  # full runs that a profile costs at most, if no budgets are given


#: The fields of a profile that must be the same for profiling to go on from a file.
FACTS = ("model", "guidance", "dtype", "stages", "solver")


class Source(Protocol):
    """What is profiled, batch by batch; every run of a batch begins with the same noise.

    states       the noise of every batch
    facts        fields of the profile that must be the same for it to go on from a file
    spent        model calls of a batch that were made before
    saves        whether the file is written after every trial, too
    tick         to be called at every model call
    cost         model calls of a batch: (of a full run, of all runs that profile it)
    begin        how batch i begins: its noise; then noise and first output; each slot by slot
    with_batch   the profile with batch i
    end          x at the end of the full run of batch i, or of the exact flow
    made         x at the end of its run under a plan; None if it cannot be run
    """

    states: list[Any]
    facts: Sequence[str] = FACTS
    spent: int = 0
    saves: bool = False
    tick: Callable[[], None]

    def cost(self, profile: Runs) -> tuple[int, int]: ...
    def begin(self, i: int) -> Iterable[list[list[Tensor]]]: ...
    def with_batch(self, profile: Any, i: int) -> Any: ...
    def end(self, i: int, target: str = RUN) -> Any: ...
    def made(self, i: int, plan: Plan) -> Any: ...


def profiled(
    start: Kind,
    source: Source,
    budgets: Sequence[int] | None,
    target: str = RUN,
    file: str | Path | None = None,
    quiet: bool = False,
) -> Kind:
    """The profile with the batches and the tournaments that it lacks, saved on the way."""
    profile = resumed(start, source, file)
    tried = profile.tried(target)
    if profile.complete and (tried if budgets is None else not {*budgets} - tried):
        return profile
    wanted = default_budgets(profile.grid) if budgets is None else tuple(budgets)
    count, known = len(source.states), len(profile.batches)
    full, calls = source.cost(profile)
    free = budgets is not None or target != RUN
    left = None if free else RUNS * full - calls - source.spent
    chosen = affordable(
        profile if profile.complete else replace(profile, trials=()), wanted, left, target
    )
    if not profile.complete:  # the last tournament was interrupted: on with it, or without
        half = {t.budget for t in profile.trials[-1:]} - {*chosen}
        kept = tuple(t for t in profile.trials if t.budget not in half)
        profile = replace(profile, trials=kept)
    runs = sum(budget * len(names) for budget, names in chosen.items())
    runs += CONVERGED * full if chosen and target == FLOW else 0
    total = calls * (count - known) + full * known + count * runs
    with Counter(total, profile.grid, source.states, quiet) as counter:
        source.tick = counter.tick
        for i in range(known, count):
            profile = source.with_batch(profile, i)
            keep(profile, file)
        profile = replace(profile, complete=True)
        if target == FLOW and chosen:
            goals = [source.end(i, target) for i in range(count)]
            db = torch.cat([decibels(source.end(i), goal) for i, goal in enumerate(goals)])
            steps = profile.grid.steps
            trial = Trial(FULL, steps, tuple(range(steps)), 0.0, tuple(db.tolist()), target)
            others = (t for t in profile.trials if (t.recipe, t.target) != (FULL, target))
            profile = replace(profile, trials=(*others, trial))
        kept_in = file if source.saves else None
        for budget, names in chosen.items():
            profile = tournament(profile, source, budget, names, target, kept_in)
    if file is not None:
        write(profile, file)
    return profile


def resumed(start: Kind, source: Source, file: str | Path | None) -> Kind:
    """What the file has of this very profile; `start` where there is no file."""
    if file is None or not Path(file).exists():
        return start
    found, count = read(type(start), file, whole=False), len(source.states)
    other = [name for name in source.facts if getattr(found, name) != getattr(start, name)]
    if grid_misfit(found.grid, start.grid):
        other.append("σ-grid")
    if len(found.batches) > count:
        other.append("number of batches")
    elif not other and (strange := changed(found, source.begin)):
        other.append(strange)
    if other:
        raise ValueError(
            f"{file} is of another profile (its {', '.join(other)} differ): "
            "give another file, or remove it"
        )
    if len(found.batches) < count:  # what was tried, was tried on fewer samples
        return replace(found, complete=False, trials=())
    return found


def keep(profile: Runs, file: str | Path | None) -> None:
    """Saves what there is so far, marked as not complete."""
    if file is not None:
        write(replace(profile, complete=False), file)


def default_budgets(grid: Grid) -> tuple[int, ...]:
    """A seventh, a fifth and two fifths of the stages, or of 100 on longer grids.

    >>> default_budgets(Grid.of([1 - i / 50 for i in range(51)]))
    (7, 10, 20)
    """
    least = max(4, len(grid.spans()) + 1)
    wanted = {max(least, round(min(grid.steps, EXACT) / part)) for part in PARTS}
    return tuple(sorted(b for b in wanted if b < grid.steps))


def affordable(
    profile: Runs, budgets: Sequence[int], calls: int | None, target: str = RUN
) -> dict[int, tuple[str, ...]]:
    """{budget: who is tried there}, without budgets that were tried and those too dear.

    calls   how many model calls there are for all: with fewer than LEAST entrants at each, the last
            budgets are left out; None: as many as it takes
    """
    tried, most = profile.tried(target), sum(most_anchors(b - a) for a, b in profile.grid.spans())
    wanted = list(dict.fromkeys(check_budget(b, profile.grid) for b in budgets))
    for budget in wanted:
        if budget > most:
            raise ValueError(
                f"budget {budget} cannot be tried: on a grid of {profile.grid.steps} stages plans "
                f"have {most} anchors at most"
            )
    wanted = [budget for budget in wanted if budget not in tried]
    while wanted and calls is not None and sum(wanted) * LEAST > calls:
        wanted.pop()
    count = MOST if calls is None or not wanted else min(MOST, calls // sum(wanted))
    return {budget: entrants(profile.grid, budget, target)[:count] for budget in wanted}


def entrants(grid: Grid, budget: int, target: str = RUN) -> tuple[str, ...]:
    """Who may enter, in order; of equal meshes one, under the last of its names: the default's own
    may mean another plan one day.
    """
    names: dict[Any, str] = {}
    refine = 1 if target == RUN else REFINE
    for name in SLATES[target]:
        if name in RECIPES:
            if possible(RECIPES[name], grid, refine):
                names[name] = name
        elif plan := baseline(name, grid, budget, refine):
            names[replace(plan, mesh="")] = name
    return tuple(names.values())


def changed(profile: Runs, begun: Callable[[int], Iterable[list[list[Tensor]]]]) -> str | None:
    """Which beginning of batch i, of what begun(i) yields, is not the one that was profiled.

    A profile on another grid than its runs has outputs between theirs: only its noise is compared.
    """
    for i, batch in enumerate(profile.batches):
        for what, slots in zip(("noise", *["first outputs"] * (not profile.origin)), begun(i)):
            firsts = [gram(rows) for rows in slots]
            known = [g[:, : len(slots[0]), : len(slots[0])] for g in batch.grams]
            if [g.shape for g in firsts] != [g.shape for g in known]:
                return what
            for first, g in zip(firsts, known):
                norms = g.diagonal(dim1=1, dim2=2).sqrt()
                scale = norms[:, :, None] * norms[:, None]
                if not ((first - g).abs() <= SAME[what] * scale).all():
                    return what
    return None


def converged(velocity: Any, x: Any, grid: Grid, times: int = CONVERGED) -> Any:
    """Nearly the exact flow: AB2 on a finer grid."""
    return sample(velocity, x, refined_grid(grid, times), solver="ab2")


def tournament(
    profile: Kind,
    source: Source,
    budget: int,
    names: Sequence[str],
    target: str,
    file: str | Path | None,
) -> Kind:
    """The profile with real runs at a budget, saved after each; none is made twice."""
    planner = planner_of(profile, 1 if target == RUN else REFINE)
    scores: dict[Plan, list[float]] = {}
    sizes = [batch.samples for batch in profile.batches]
    for name in names:
        if (found := planner.named(name, budget)) is None:
            continue
        plan = replace(found, mesh="")  # so that equal plans are equal
        key = name, budget, target
        others = tuple(t for t in profile.trials if (t.recipe, t.budget, t.target) != key)
        mine = [t.db for t in profile.trials if (t.recipe, t.budget, t.target) == key]
        db = scores.setdefault(plan, [*mine[0]] if mine else [])
        surrogate = planner.surrogate(name, budget)
        for i in range(len(sizes)):
            if len(db) == sum(sizes[:i]):
                if (x := source.made(i, plan)) is None:
                    break
                db += decibels(x, source.end(i, target)).tolist()
            if not all(map(math.isfinite, db)):  # an overflow cannot win
                break
            trial = Trial(name, budget, plan.anchors, surrogate, tuple(db), target)
            profile = replace(profile, trials=(*others, trial))
            keep(profile, file)
        if len(db) != profile.samples or not all(map(math.isfinite, db)):
            profile = replace(profile, trials=others)
    return profile


def decibels(x: Any, end: Any) -> Tensor:
    """10·log10(‖full‖²/‖x − full‖²) of every sample; with several slots, of their mean ratio."""
    ratios = []
    for made, full in zip(flatten(x)[0], flatten(end)[0]):
        full = full.to(made.device).double()
        off = (made.double() - full).flatten(1).square().sum(1)
        energy = full.flatten(1).square().sum(1)
        ratios.append(torch.where(off > 0, off / energy, off).cpu())
    ratio = torch.stack(ratios).mean(0)
    return -10 * ratio.clamp(min=1e-30).log10()


class Counter:
    """Says how many model calls there will be, and counts them, in a bar if tqdm is installed."""

    def __init__(self, calls: int, grid: Grid, states: Sequence[Any], quiet: bool = False):
        self.calls, self.quiet, self.bar = calls, quiet, None
        runs = calls / grid.steps / len(states)
        held = max(sum(t.nbytes for t in flatten(x)[0]) for x in states) * (grid.steps + 1)
        self.words = (
            f"profiling: at most {calls} model calls ({runs:.1f} full runs), "
            f"{size(held)} of host memory"
        )

    def __enter__(self) -> Counter:
        if not self.quiet:
            print(self.words, file=sys.stderr)
            self.bar = bar(self.calls)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def tick(self) -> None:
        if self.bar is not None:
            self.bar.update()


def bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="call", desc="profile")
