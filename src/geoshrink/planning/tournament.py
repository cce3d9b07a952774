"""The tournament: a few plans run for real on the calibration samples, which settles the order."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..history.refinement import refined_grid
from ..outputs import flatten
from ..plan import Plan
from ..report import size
from ..sampling import check_state, sample
from .planner import BASELINES, Planner, planner_of
from .runs import FLOW, FULL, REFINE, RUN, Kind, Runs, Trial, check_budget
from .search import EXACT, most_anchors
from .space import gram

Velocity = Callable[[Any, Any], Any]
#: The recipes that enter. The surrogate finds anchors but ranks rules wrongly, so real runs do.
SLATE = ("time", "time, early", "time, data space", "chordal", "any rule")
SLATES = {
    RUN: SLATE,
    FLOW: ("time", "time, data space", "linear", "linear, data space", "chordal", "any rule"),
}
#: The products at the beginning of two runs of one model are the same up to this much: noise up to
#: its rounding in a small file, outputs up to another order of summation.
SAME = {"noise": 1e-6, "first outputs": 1e-4}
CONVERGED = 4  # times the grid is refined for AB2 to reach the exact flow
PARTS = (7, 5, 2.5)  # the default budgets are the stages, or 100, divided by these


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
) -> dict[int, int]:
    """{budget: model calls of its tournament}, without those held already and those too dear."""
    tried, most = profile.tried(target), sum(most_anchors(b - a) for a, b in profile.grid.spans())
    chosen: dict[int, int] = {}
    for budget in dict.fromkeys(check_budget(b, profile.grid) for b in budgets):
        if budget > most:
            raise ValueError(
                f"budget {budget} cannot be tried: on a grid of {profile.grid.steps} stages plans "
                f"have {most} anchors at most"
            )
        cost = (len(BASELINES) + len(SLATES[target])) * budget
        if budget not in tried and (calls is None or sum(chosen.values()) + cost <= calls):
            chosen[budget] = cost
    return chosen


def measured(
    profile: Kind,
    velocity: Any,
    noise: Any,
    budgets: Sequence[int],
    target: str = RUN,
    quiet: bool = False,
) -> Kind:
    """The profile with a tournament at each budget; the full runs are made once more."""
    pairs = batches_of(velocity, noise)
    given = [len(flatten(x)[0][0]) for _, x in pairs]
    if given != [batch.samples for batch in profile.batches]:
        raise ValueError(
            f"the profile was made from batches of {[b.samples for b in profile.batches]} samples, "
            f"got {given}: give the velocity and noise that it was made from"
        )
    if strange := changed(profile, lambda i: begin(*pairs[i], profile.grid)):
        raise ValueError(
            f"this is not what was profiled (the {strange} differ): give the velocity and noise "
            "that the profile was made from"
        )
    tried = affordable(profile, budgets, None, target)
    steps = profile.grid.steps
    calls = len(pairs) * (steps + sum(tried.values()) + reference_calls(steps, target))
    with Counter(calls, profile.grid, pairs, quiet) as counter:
        ends = [full_run(profile, counter.counted(v), x) for v, x in pairs]
        return hold_tournaments(profile, pairs, ends, [*tried], counter, target)


class Begun(Exception):
    """Ends a run after its first output."""


def begin(velocity: Velocity, x: Any, grid: Grid) -> Iterator[list[list[Tensor]]]:
    """The beginning of a run, slot by slot: its noise; then, after one model call, its output."""

    def stop(x: Any, sigma: Any) -> Any:
        raise Begun(velocity(x, sigma))

    noise = [leaf.detach().cpu() for leaf in flatten(x)[0]]
    yield [[leaf] for leaf in noise]
    try:
        sample(stop, x, grid)
    except Begun as begun:
        outputs = flatten(begun.args[0])[0]
        yield [[leaf, v.detach().cpu()] for leaf, v in zip(noise, outputs)]


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


def reference_calls(steps: int, target: str) -> int:
    """The model calls of the exact flow, in addition to the full run's."""
    return CONVERGED * steps if target == FLOW else 0


def full_run(profile: Runs, velocity: Any, x: Any) -> Any:
    return sample(velocity, x, profile.grid, solver=profile.solver)


def converged(velocity: Any, x: Any, grid: Grid, times: int = CONVERGED) -> Any:
    """Nearly the exact flow: AB2 on a finer grid."""
    return sample(velocity, x, refined_grid(grid, times), solver="ab2")


def hold_tournaments(
    profile: Kind,
    pairs: Sequence[tuple[Any, Any]],
    ends: Sequence[Any],
    budgets: Sequence[int],
    counter: Counter,
    target: str = RUN,
) -> Kind:
    """`ends` are the results of the full runs, one per pair of velocity and noise."""
    trials, scores = [], {}
    planner = planner_of(profile, 1 if target == RUN else REFINE)
    goals = ends
    if target == FLOW and budgets:
        goals = [converged(counter.counted(v), x, profile.grid) for v, x in pairs]
        db = torch.cat([decibels(x, goal) for x, goal in zip(ends, goals)]).tolist()
        steps = profile.grid.steps
        trials.append(Trial(FULL, steps, tuple(range(steps)), 0.0, tuple(db), target))
    for budget in budgets:
        for name, plan in entrants(planner, budget, SLATES[target]).items():
            if plan not in scores:
                made = [
                    sample(counter.counted(v), x, plan=plan, solver=profile.solver)
                    for v, x in pairs
                ]
                db = torch.cat([decibels(x, goal) for x, goal in zip(made, goals)])
                scores[plan] = tuple(db.tolist())
            if all(map(math.isfinite, scores[plan])):  # what overflows cannot win
                surrogate = planner.surrogate(name, budget)
                trials.append(Trial(name, budget, plan.anchors, surrogate, scores[plan], target))
    return profile.with_trials(trials)


def entrants(planner: Planner, budget: int, slate: Sequence[str]) -> dict[str, Plan]:
    """The baselines and the slate by name, without their `mesh`, so that equal plans are equal."""
    plans = {name: planner.named(name, budget) for name in (*BASELINES, *slate)}
    return {name: replace(plan, mesh="") for name, plan in plans.items() if plan is not None}


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

    def __init__(
        self, calls: int, grid: Grid, pairs: Sequence[tuple[Any, Any]], quiet: bool = False
    ):
        self.calls, self.done, self.bar = calls, 0, None
        runs = calls / grid.steps / len(pairs)
        held = max(sum(t.nbytes for t in flatten(x)[0]) for _, x in pairs) * (grid.steps + 1)
        self.words = (
            f"profiling: at most {calls} model calls ({runs:.1f} full runs), "
            f"{size(held)} of host memory"
        )
        self.quiet = quiet

    def __enter__(self) -> Counter:
        if not self.quiet:
            print(self.words, file=sys.stderr)
            self.bar = bar(self.calls)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def counted(self, velocity: Velocity) -> Velocity:
        def counting(x: Any, sigma: Any) -> Any:
            output = velocity(x, sigma)
            self.tick()
            return output

        return counting

    def tick(self) -> None:
        self.done += 1
        if self.bar is not None:
            self.bar.update()


def bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="call", desc="profile")


def batches_of(velocity: Any, noise: Any) -> list[tuple[Velocity, Any]]:
    several = isinstance(velocity, (list, tuple))
    if several and (not isinstance(noise, (list, tuple)) or len(noise) != len(velocity)):
        given = f"{len(noise)}" if isinstance(noise, (list, tuple)) else "one"
        raise ValueError(f"{len(velocity)} velocities need as many noises, got {given}")
    pairs = list(zip(velocity, noise)) if several else [(velocity, noise)]
    if not pairs:
        raise ValueError("there is nothing to profile: velocity and noise are empty lists")
    for v, x in pairs:
        if not callable(v):
            raise TypeError(f"velocity must be callable as velocity(x, σ), got {v!r}")
        for leaf in check_state(x)[0]:
            if leaf.ndim < 2:
                raise ValueError(f"noise needs a sample axis first, got shape {tuple(leaf.shape)}")
    return pairs
