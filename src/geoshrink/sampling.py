"""sample(): our own loop for any callable. The solver keeps its full grid; the model is called at
the anchors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .grid import Track
from .outputs import flatten, keys_of, structure
from .plan import Plan
from .pointers import explained
from .quality.estimate import TWO_OUTPUTS
from .report import Report
from .run import Run
from .solvers import SOLVERS, Heun
from .solvers.response import store, stored_in
from .teaching import teacher_of


@explained("loop")
def sample(
    velocity: Callable[[Any, Any], Any],
    x: Any,
    sigmas: Any = None,
    budget: int | None = None,
    *,
    plan: Plan | str | Path | Mapping[str, Any] | None = None,
    solver: str = "euler",
    mask: Any = None,
    dtype: torch.dtype = torch.float32,
    callback: Callable[[int, Any], None] | None = None,
    progress: bool = False,
    with_report: bool = False,
    reserve: int = 0,
    group: Any = None,
    learn: Any = None,
    **options: Any,
) -> Any:
    """Integrates from x at σ_0 to σ_T, querying velocity(x, σ) at `budget` of the T stages.

        x0 = sample(velocity, noise, sigmas, budget=10)

    Without budget, speedup, anchors or plan every stage is queried: the plain solver. With
    target="flow" fewer calls come closer to the exact flow than the plain solver does:

        x0 = sample(velocity, noise, sigmas, budget=20, target="flow")

    velocity      what the solver integrates, after guidance. For structured x (tuple, list, dict)
                  it gets and returns the same structure, and a structure of σ where there are
                  several σ-grids
    x             the noise, or the state at σ_0
    sigmas        σ_0 … σ_T, one sequence or a structure of them; or a Grid
    budget        how many stages query the model
    plan          a Plan, the path of its JSON file, or the contents as a dict; it holds the grid
                  and leaves nothing else to choose
    solver        "euler", "ab2", "heun" (two evaluations a stage), "dpm++2m", or one that you
                  registered
    mask          which coordinates the statistics see: a boolean tensor, or one per part of x
    dtype         the statistics are accumulated in this precision or better
    callback      called as callback(stage, x) after every stage; without it Euler crosses a skipped
                  cell in one update, which is the same up to rounding
    progress      show a progress bar, which needs tqdm
    with_report   return (x, report)
    reserve       queries kept in hand for where the self-check is worst (history/reserve.py)
    group         a process group (True: the default one) that x is sharded over
    learn         True: the first call in a setting makes every call of the model, and teaches the
                  others where to query (docs/learning.md); a number N: so does every Nth; or
                  geoshrink.Learning(…), which is needed where velocity holds no torch.nn.Module

    How the plan is made, where none is given (as in Plan.of):

    speedup       in place of a budget: the number of stages divided by this, but at least 4
    target_db     in place of a budget: as many calls as the run turns out to need to come this
                  close to the full run, in dB (docs/quality.md); one decision for the whole batch
    most          with target_db: calls at most
    judge         with target_db: "mean" of the samples of a batch, or "worst"
    anchors       the stages to query; or the mesh that places the budget: "corrected" (the default,
                  where cells are corrected), "auto" (where they are not), "sigma", "geometric" (the
                  paper's), "uniform", or one that you registered
    rule          how much of the latest change is kept: "signed time" (the default), "chordal"
                  (the paper's), "hold", …, a Rule, or one per anchor
    space         "output" predicts what the solver receives, "data" the data
    blocks        geoshrink.Blocks(…): which coordinates share one ω; default: those of a sample
    coefficients  one ω per stage that replaces the rule; None where the rule decides
    target        "run" (the default): close to the solver's own T steps. "flow": close to the exact
                  flow, by refine=8, correct=True, anchors="corrected" and clock="mesh", each unless
                  you give it; for Euler
    refine        Euler steps in place of each of the solver's, 1 to 64
    correct       True: put a skipped cell right at the anchor that ends it, at no further call; a
                  gain or a geoshrink.Correction says how; False: do not. Default: True, unless
                  anchors, rule, coefficients, clock, space, refine or a reserve is given. Not with
                  "heun"
    clock         distances between stages are measured in "sigma" or "mesh", the auto mesh's y
    prediction    what the model returns: "flow" (dx/dσ, the default), "epsilon", "sample" or "v"
    alphas        α of x = α·x₀ + σ·ε, unless it is a flow: "vp", "ve", "flow", or one per σ
    data          the σ at which x is data, for flows that do not end at 0
    regimes       stages at which the model changes: each is queried; the jump is no innovation
    """
    if solver not in SOLVERS:
        raise ValueError(f"unknown solver {solver!r}; choose one of {', '.join(SOLVERS)}")
    if plan is None and sigmas is None:
        raise ValueError(
            "sample needs the σ-grid, or a plan that holds it: sample(velocity, x, sigmas, "
            "budget=10)"
        )
    run = SolverRun(
        sigmas,
        budget,
        plan=plan,
        mask=mask,
        dtype=dtype,
        reserve=reserve,
        group=group,
        learn=teacher_of(learn, options, plan, reserve, group, velocity),
        solver=solver,
        **options,
    )
    if SOLVERS[solver].evaluations > 1:
        more = ["target_db"] * (run.plan.aim is not None) + ["learn"] * run.learns
        for what in ["a reserve"] * bool(reserve) + more:
            raise ValueError(f"{what} needs one evaluation a stage, not {solver!r}")
    loop = Loop if SOLVERS[solver].evaluations == 1 else HeunLoop
    sampler = loop(velocity, x, run, solver, callback, progress)
    result = sampler.go()
    return (result, sampler.report()) if with_report else result


class SolverRun(Run):
    """A run of our own loop, which moves what its solver stores."""

    reaches = True


class Loop:
    """One call of sample with a solver that needs one output per stage."""

    def __init__(self, velocity, x, run: Run, solver: str, callback, progress: bool):
        self.velocity, self.run, self.callback = velocity, run, callback
        self.plan = run.plan
        leaves, self.unflatten = check_state(x)
        if len(self.plan.grid.tracks) not in (1, len(leaves)):
            raise ValueError(
                f"{len(self.plan.grid.tracks)} σ-grids for an x of {len(leaves)} tensors"
            )
        self.x: list[Tensor] = leaves
        self.structure = structure(x)
        self.tracks = [self.plan.track(i) for i in range(len(leaves))]
        self.solvers: list[Any] = [SOLVERS[solver](track) for track in self.tracks]
        self.leaps = solver == "euler" and callback is None and not self.plan.exact
        self.leaps &= run.reserve == 0
        self.bar = progress_bar(self.plan.steps) if progress else None

    def go(self) -> Any:
        n = 0
        try:
            while n < self.plan.steps:
                self.stage(n)
                before, n = n, n + 1
                if self.leaps:
                    n, self.x = self.run.leap(self.x)
                if self.callback is not None:
                    self.callback(before, self.unflatten(self.x))
                if self.bar is not None:
                    self.bar.update(n - before)
        finally:
            self.run.reset()
            if self.bar is not None:
                self.bar.close()
        return self.unflatten(self.x)

    def report(self) -> Report:
        return self.run.report

    def stage(self, n: int) -> None:
        outputs = self.output(self.run, n, self.x, n)
        self.x = [s.step(n, x, v) for s, x, v in zip(self.solvers, self.x, outputs)]

    def output(self, run: Run, n: int, x: list[Tensor], point: int) -> list[Tensor]:
        """The output at grid point `point`, from the model or predicted, one tensor per slot. The
        correction of a cell moves self.x and what the solvers store.
        """
        state, n = self.unflatten(x), run.plan.grid.kept[n]
        if not run.queries(n, state):
            return flatten(run.predict(n, state))[0]
        output = self.checked(self.velocity(state, self.sigma(point)), x)
        if not run.corrects:
            return flatten(run.observe(n, output, state))[0]
        output, memory = run.observe_state(n, output, state, self.memory())
        self.remember(memory)
        return flatten(output)[0]

    def memory(self) -> list[list[Tensor | None]]:
        """x and what each solver stores, in the order of its response."""
        return [
            [x, *(stored_in(s, x).get(path) for path in self.run.stored(i))]
            for i, (x, s) in enumerate(zip(self.x, self.solvers))
        ]

    def remember(self, memory: Sequence[Sequence[Any]]) -> None:
        self.x = [state[0] for state in memory]
        for i, (solver, state) in enumerate(zip(self.solvers, memory)):
            for path, tensor in zip(self.run.stored(i), state[1:]):
                if tensor is not None:
                    store(solver, path, tensor)

    def sigma(self, point: int) -> Any:
        if len(self.plan.grid.tracks) == 1:
            return self.tracks[0].sigmas[point]
        return self.unflatten([track.sigmas[point] for track in self.tracks])  # type: ignore[misc]

    def checked(self, output: Any, x: list[Tensor]) -> Any:
        leaves = flatten(output)[0]
        if [v.shape for v in leaves] != [t.shape for t in x]:
            raise ValueError(
                f"velocity returned shape {[tuple(v.shape) for v in leaves]} for x of shape "
                f"{[tuple(t.shape) for t in x]}"
            )
        if len(x) > 1 and structure(output) != self.structure:
            raise ValueError(
                f"velocity returned a {type(output).__name__} that does not mirror x: parts "
                f"{keys_of(output) or len(leaves)} for {keys_of(self.unflatten(x)) or len(x)}"
            )
        for v, t in zip(leaves, x):
            if v.device != t.device:
                raise ValueError(f"velocity returned a tensor on {v.device} for x on {t.device}")
            if not v.dtype.is_floating_point:
                raise TypeError(f"velocity returned {v.dtype}; a floating-point output is needed")
        return output


class HeunLoop(Loop):
    """Two outputs per stage, each with its own history; the last stage is Euler's, as in EDM."""

    def __init__(self, velocity, x, run: Run, solver: str, callback, progress: bool):
        super().__init__(velocity, x, run, solver, callback, progress)
        self.ahead = (
            Run(second_plan(self.plan), mask=run.mask, dtype=run.dtype, group=run.group)
            if self.plan.steps > 1
            else None
        )

    def report(self) -> Report:
        """The report of the first outputs, with what is held and what went wrong in both."""
        first, second = self.run.report, None if self.ahead is None else self.ahead.report
        if second is None:
            return first
        more = [(n, f"second evaluation: {reason}") for n, reason in second.reasons]
        reasons = tuple(sorted([*first.reasons, *more]))
        held = first.bytes_held + second.bytes_held
        forwards = first.evaluations + second.evaluations
        said = TWO_OUTPUTS if first.predicted else first.estimate
        return replace(first, reasons=reasons, bytes_held=held, forwards=forwards, estimate=said)

    def stage(self, n: int) -> None:
        here = self.output(self.run, n, self.x, n)
        solvers: list[Heun] = self.solvers
        ahead = [s.first(n, x, v) for s, x, v in zip(solvers, self.x, here)]
        if self.ahead is not None and n < self.plan.steps - 1:
            there = self.output(self.ahead, n, ahead, n + 1)
            ahead = [s.second(n, *rest) for s, *rest in zip(solvers, self.x, here, ahead, there)]
        self.x = ahead


def second_plan(plan: Plan) -> Plan:
    """The plan of Heun's second outputs: stage n is evaluated at σ_{n+1}, and there is one stage
    fewer.
    """

    def shifted(track: Track) -> Track:
        alphas = None if track.alphas is None else track.alphas[1:]
        return replace(track, sigmas=track.sigmas[1:], alphas=alphas)

    steps = plan.steps - 1
    regimes = tuple(r for r in plan.grid.regimes if r < steps)
    tracks = tuple(map(shifted, plan.grid.tracks))
    grid = replace(plan.grid, tracks=tracks, kept=tuple(range(steps)), given=steps, regimes=regimes)
    count = sum(a < steps for a in plan.anchors)
    coefficients = None if plan.coefficients is None else plan.coefficients[:steps]
    return replace(
        plan,
        grid=grid,
        anchors=plan.anchors[:count],
        rules=plan.rules[:count],
        coefficients=coefficients,
        correct=None,
    )


def check_state(x: Any) -> tuple[list[Tensor], Callable[[list[Tensor]], Any]]:
    try:
        leaves, unflatten = flatten(x)
    except TypeError:
        raise TypeError(
            f"x must be a tensor, or tensors in tuples, lists or dicts; got {x!r}"
        ) from None
    for leaf in leaves:
        if not leaf.dtype.is_floating_point:
            raise TypeError(f"x must be of a floating-point type, got {leaf.dtype}")
    return leaves, unflatten


def progress_bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "progress=True needs tqdm: pip install 'geoshrink[compare]', or leave progress off"
        ) from None
    return tqdm(total=total, unit="stage")
