"""Run: at an anchor the model, elsewhere v¹ + ω·Δv. One object for one loop after another."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .asked import asked_plan, check_dtype, check_refined, check_solver, with_reserve
from .checks import whole
from .correctable import corrector_of
from .history import Record, Reserve, check_group, check_mask, history_of, on_host
from .mirror import check_output, kinds, states_of
from .outputs import flatten, structure
from .pace import Pace
from .plan import Plan, given_plan
from .quality import Goal
from .quality.estimate import NEEDED, Estimate, estimate
from .report import Report, self_check
from .solvers.response import Path as Place
from .solvers.response import Response
from .teaching import Pupil, teacher_of
from .track import Track


class Run:
    """Carries a plan through your own loop.

        run = Run(sigmas, budget=10, solver="euler")
        for n in range(run.steps):
            v = run(n, lambda: velocity(x, sigmas[n]), x)
            x = x + (sigmas[n + 1] - sigmas[n]) * v
        print(run.report)

    `x` is needed with space="data" and with target_db, and for the report's estimate of the
    distance to the full run. Stage 0 starts a new run. What the plan did not foresee (a
    stage off the grid, a changed shape, another `regime`) runs the model, restarts the history
    where it must, and is counted and reported.

    sigmas  σ_0 … σ_T, one sequence or a structure of them; a Grid; or the plan
    budget  how many stages query the model
    plan    a Plan, the path of its JSON file, or the contents as a dict
    mask    a boolean (or 0/1) tensor that broadcasts against the output, or one per slot (a dict
            where the output is one): which coordinates the statistics see (all are predicted); a
            sample of which they see nothing is held, and its run is doubtful
    dtype   statistics are accumulated in this precision or better
    group   a process group (True: the default one) where each process holds a shard of the output:
            the statistics are added up over it, once per anchor
    reserve  so many of the budget's queries (without a budget: further ones) are kept in hand and
            spent where the self-check is worst (history/reserve.py)
    learn   True: the first run in a setting makes every call, and teaches the others where to query
            (docs/learning.md); a number N: so does every Nth; or geoshrink.Learning(…). It needs x
    solver  what your loop does with the outputs, "euler" (x + Δσ·v; DDIM for other predictions than
            "flow"): cells are corrected, and the outputs carry the correction; a loop that calls
            run.with_state gets the corrected x, too. Other solvers store what a loop of your own
            does not hand over, so their cells are not corrected (sample() corrects them). With
            `refine` or target="flow" it is Euler

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
                  gain or a geoshrink.Correction says how; False: do not. Default: where the solver
                  is known, nothing is in reserve, and anchors, rule, coefficients, clock, space and
                  refine are left to us
    clock         distances between stages are measured in "sigma" or "mesh", the auto mesh's y
    prediction    what the model returns: "flow" (dx/dσ, the default), "epsilon", "sample" or "v"
    alphas        α of x = α·x₀ + σ·ε, unless it is a flow: "vp", "ve", "flow", or one per σ
    data          the σ at which x is data, for flows that do not end at 0
    regimes       stages at which the model changes: each is queried; the jump is no innovation
    """

    #: Whether the loop moves what its solver stores, too.
    reaches = False

    def __init__(
        self,
        sigmas: Any = None,
        budget: int | None = None,
        *,
        plan: Plan | str | Path | Mapping[str, Any] | None = None,
        mask: Tensor | Sequence[Tensor | None] | Mapping[str, Tensor | None] | None = None,
        dtype: torch.dtype = torch.float32,
        reserve: int = 0,
        group: Any = None,
        learn: Any = None,
        solver: str | None = None,
        **options: Any,
    ):
        self._reserve = Reserve(reserve)
        check_solver(solver)
        if isinstance(sigmas, (Plan, str, Path)):
            sigmas, plan = None, sigmas
        teacher = teacher_of(learn, options, plan, reserve, group)
        if plan is not None:
            plan = given_plan(plan, {**options, "budget": budget}, sigmas)
        else:
            plan = asked_plan(sigmas, budget, options, solver, reserve, self.reaches)
        check_dtype(dtype)
        self.plan = self._asked = with_reserve(plan, reserve, solver)
        self._pupil = None if teacher is None else Pupil(teacher)
        self._guide = guide_of(self.plan)
        self.mask, self.dtype, self.group = check_mask(mask), dtype, check_group(group)
        self._history = history_of(self.plan, self.mask, dtype, self.group)
        self.know(check_refined(self.plan, solver) if self.plan.refine > 1 else solver)
        self._record = Record(self.plan)
        self._reported: tuple[Record, tuple[int, ...], Report] | None = None
        self.reset()

    def __call__(
        self, n: int, evaluate: Callable[[], Any], x: Any = None, *, regime: Hashable = None
    ) -> Any:
        """The output of stage n: evaluate() at an anchor, a prediction elsewhere.

        n          the stage, counted from 0; stage 0 begins a new run
        evaluate   called without arguments, returns the model's output
        x          the state: for the estimate, target_db, learn and space="data"
        regime     anything that is equal while guidance, expert and conditioning stay the same
        """
        n = whole(n, "a stage number")
        try:
            if self.queries(n, x, regime=regime):
                output = evaluate()
                return self.observe(n, output, x)
            return self.predict(n, x)
        except BaseException as error:
            self._restart(n, f"{type(error).__name__} was raised")
            raise

    def with_state(
        self, n: int, evaluate: Callable[[], Any], x: Any, *, regime: Hashable = None
    ) -> tuple[Any, Any]:
        """run(n, evaluate, x, regime=…), and the state to step from: x, but for the correction of a
        cell, which is then not in the output.
        """
        n = whole(n, "a stage number")
        try:
            if not self.queries(n, x, regime=regime):
                return self.predict(n, x), x
            output = evaluate()
            leaves, unflatten = flatten(x)
            output, memory = self.observe_state(n, output, x, [[leaf] for leaf in leaves])
            return output, unflatten([t for state in memory for t in state if t is not None])
        except BaseException as error:
            self._restart(n, f"{type(error).__name__} was raised")
            raise

    def reset(self) -> None:
        """Forgets every tensor. The report of the latest run stays until the next one begins."""
        self._history.forget()
        self._reserve.reset()
        if self._pupil is not None:
            self._pupil = Pupil(self._pupil.teacher)  # a copy of this run may go on with the other
        if self._guide is not None:
            self._guide.sent = None
        self._fresh, self._done = True, False
        self._stage = -1
        self._regime: Hashable = None
        self._x_kind: list[tuple] | None = None
        self._unflatten: Callable[[list[Tensor]], Any] | None = None
        self._structure: Any = None

    def _begin(self) -> None:
        """A new run begins with what was asked for; with a guide, with its first guess again."""
        self.reset()
        if self._pupil is not None and self.plan is not self._asked:
            self.use(self._asked)
        if self._guide is not None:
            self._guide.reset()
            if self.plan is not self._guide.first:
                self.follow(self._guide.first)
        self._record = Record(self.plan, self._levels or None, self.corrects)
        self._fresh = False
        if self._why is not None:
            self._record.fall_back(0, self._why)

    def queries(self, n: int, x: Any = None, *, regime: Hashable = None) -> bool:
        """Whether stage n must be queried, now that the loop has come to it; x and regime are those
        of a call.
        """
        if n == 0 or self._fresh or (self._done and 0 <= n < self.steps - 1):
            self._begin()
        stage = self.plan.grid.effective.get(n)
        turned = regime is not None and self._regime is not None and regime != self._regime
        changed = x is not None and self._x_kind is not None and self._x_kind != kinds(x)
        if self._guide is not None and (turned or (changed and stage is not None)):
            self._guide.turn()
        if stage is not None:
            self._steer(stage)
        if turned:
            reason = f"the regime changed from {self._regime!r} to {regime!r}"
            self._record.fall_back(self._number(n), f"{reason}: a regime begins")
            self._history.begin_regime()
        self._regime = regime if regime is not None else self._regime
        if not 0 <= n < self.steps:
            return self._fall_back(n, f"stage {n} is not on the grid of {self.steps} stages")
        if self.plan.exact:
            return True
        if stage is None:
            return not self._history.seen
        if changed:
            self._restart(n, "the state x changed shape, dtype or device")
        if stage <= self._stage:
            self._restart(n, "the stage was called again or out of order")
        if self.plan.asked[stage]:
            return True
        if not self._history.seen:
            return self._fall_back(n, "no exact output to predict from")
        if stage not in self._history.cell:
            return self._fall_back(n, "an anchor before this stage was never run")
        return stage == self._reserve.stage and self._fall_back(n, self._reserve.reason)

    def _steer(self, stage: int | None = None) -> None:
        """Goes on with other anchors, where the guide asks for them, once a stage is reached at
        which the next can be; None: now. Waits for the device.
        """
        guide = self._guide
        if guide is None or guide.sent is None or (stage is not None and stage < guide.due):
            return
        plan = guide.decided()
        if plan is not None:
            self._history.keep_tables()
            self.follow(plan)
        guide.tell(self._record)

    def observe(self, n: int, output: Any, x: Any = None) -> Any:
        """Takes in the exact output of stage n at state x; returns what the solver receives: the
        output itself, its average over the refined stage, or one that carries the cell's
        correction.
        """
        return self._observe(n, output, x, None)[0]

    def observe_state(
        self, n: int, output: Any, x: Any, memory: Sequence[Sequence[Tensor | None]]
    ) -> tuple[Any, Sequence[Sequence[Tensor | None]]]:
        """The same where the solver's state can be moved: (what it receives, its state).

        memory   for each slot x and the tensors that the solver stores, in the response's order
        """
        return self._observe(n, output, x, memory)

    def _observe(self, n: int, output: Any, x: Any, memory: Any) -> tuple[Any, Any]:
        stage = self.plan.grid.effective.get(n)
        if stage == 0 and self._pupil is not None:
            solver = self._known[0]
            self.use(self._pupil.ask(self._asked, output, x, self.mask, self._levels, solver))
        if stage is None or self.plan.exact:
            self._observe_exact(n, stage, output, x)
        else:
            output, memory = self._observe_anchor(n, stage, output, x, memory)
        self._finish(n)
        return output, memory

    def _observe_exact(self, n: int, stage: int | None, output: Any, x: Any) -> None:
        """Where nothing will be predicted from an output, only what it teaches is kept."""
        if stage is None and 0 <= n < self.steps:
            self._fall_back(n, "the stage has zero length and was queried all the same")
        if stage is not None and self._pupil is not None:
            last = stage == self.plan.steps - 1
            why = self._pupil.keep(stage, last, output, x, self._levels)
            if why is not None:
                self._record.fall_back(stage, why)
        self._record.exact(n if stage is None else stage, on_grid=stage is not None)
        self._stage = self._stage if stage is None else stage

    def _observe_anchor(
        self, n: int, stage: int, output: Any, x: Any, memory: Any
    ) -> tuple[Any, Any]:
        leaves, unflatten = flatten(output)
        check_output(output, leaves, self.plan.grid, self.mask)
        if stage in self.plan.restarts:
            self._history.begin_regime()
        form = structure(output)
        self._join(n, leaves, form)
        self._unflatten, self._structure = unflatten, form
        if memory is not None and len(memory) != len(leaves):
            raise ValueError(
                f"x ({len(memory)} tensors) does not mirror the model's output ({len(leaves)})"
            )
        states = states_of(x, len(leaves), self.plan.space, self._structure)
        errors = self._history.observe(stage, leaves, states, memory)
        if self._history.left is not None:
            self._record.fall_back(stage, f"the cell before is not corrected: {self._history.left}")
        self._record.observed(stage, self._history, errors)
        self._measure(stage, leaves, x)
        if self._guide is not None:
            self._guide.observed(self._record, stage, leaves)
        self._stage, self._x_kind = stage, kinds(x)
        self._reserve.observed(self.plan, stage, errors, self._history.skipped(stage))
        received = self._history.received(stage, leaves, states, memory is None)
        if any(new is not leaf for new, leaf in zip(received, leaves)):
            output = unflatten(received)
        moved = self._history.take_moved()
        if memory is not None and any(m is not None for m in moved):
            memory = [own if m is None else m[1] for own, m in zip(memory, moved)]
        return output, memory

    def _join(self, n: int, leaves: list[Tensor], form: Any) -> None:
        """Restarts the history where these outputs do not continue it; those of another regime can
        be others.
        """
        fits, same = self._history.fits(leaves), self._structure in (None, form)
        if fits and same:
            return
        if not self._history.seen:
            self._history.forget()
        elif not fits:
            self._restart(n, "the model's output changed shape, dtype or device")
        else:
            self._restart(n, "the model's output changed its structure")

    def _measure(self, stage: int, leaves: list[Tensor], x: Any) -> None:
        """Writes down how large the data is: the estimate needs it once, an aim at every anchor."""
        levels, aim = self._levels, self._guide.aim if isinstance(self._guide, Goal) else None
        if x is None and aim is not None:
            raise ValueError(f"target_db={aim.db:g} needs the state: run(n, evaluate, x)")
        due = aim is not None or stage == self.plan.anchors[-1]
        if x is None or not levels or self.plan.refine > 1 or not due:
            return
        try:
            states = flatten(x)[0]
        except (TypeError, ValueError):
            return
        if len(states) == len(leaves):
            self._record.sizes[stage] = self._history.data_sizes(stage, leaves, states, levels)

    def predict(self, n: int, x: Any = None) -> Any:
        """The predicted output of the skipped stage n at state x."""
        if self._unflatten is None or not self._history.seen:
            raise RuntimeError(f"stage {n} cannot be predicted: nothing was observed before it")
        stage, slots = self.plan.grid.effective.get(n), len(self._history.slots)
        states = states_of(x, slots, self.plan.space, self._structure)
        if stage is None:  # zero length: the solver does not move, so the latest output is held
            point = bisect_left(self.plan.grid.kept, n)
            leaves = self._history.predict(point, states, hold=True)
        else:
            self._stage = stage
            self._record.predicted(stage, self._history)
            leaves = self._history.predict(stage, states)
        output = self._unflatten(leaves)
        self._finish(n)
        return output

    def leap(self, x: list[Tensor]) -> tuple[int, list[Tensor]]:
        """(next stage, x there): the skipped stages after an anchor by Euler, in one update."""
        self._steer()
        stages = self._history.skipped(self._stage)
        if stages:
            x = self._history.leap(stages, x)
            self._stage = stages[-1]
        for n in stages:
            self._record.predicted(n, self._history)
        return self._stage + 1, x

    def _finish(self, n: int) -> None:
        """After the last stage nothing is left to predict, so nothing is kept."""
        if n == self.steps - 1:
            self._history.forget()
            self._done = True

    def _restart(self, n: int, reason: str) -> None:
        self._record.fall_back(self._number(n), f"{reason}: the history restarts")
        self._history.forget()
        if self._guide is not None:
            self._guide.forget()
        self._unflatten = self._structure = None

    def _fall_back(self, n: int, reason: str) -> bool:
        if not self._record.explained(self._number(n)):
            self._record.fall_back(self._number(n), reason)
        return True

    def _number(self, n: int) -> int:
        """A stage's number in the report: the plan's, where it has one."""
        return self.plan.grid.effective.get(n, n)

    @property
    def steps(self) -> int:
        """How many stages the caller's grid has, those of zero length included."""
        return self.plan.grid.given

    @property
    def reserve(self) -> int:
        """How many queries are kept in hand at the start of a run."""
        return self._reserve.count

    @property
    def report(self) -> Report:
        """What happened in the latest run. Reads the device: ask after the run, not inside it."""
        record, known = self._record, self._reported
        if known is None or known[0] is not record or known[1] != record.size:
            self._reported = known = record, record.size, Report.of(record)
        return known[2]

    @property
    def estimate(self) -> Estimate:
        """The report's, without the rest of it. Reads the device, once."""
        return estimate(on_host(self._record, NEEDED))

    @property
    def self_check(self) -> float | None:
        """The report's, without the rest of it. Reads the device, once."""
        return self_check(on_host(self._record, ["errors"]))

    def know(
        self,
        solver: str | Sequence[Response] | None,
        levels: Sequence[Track] | None = None,
        why: str | None = None,
    ) -> None:
        """Says what solver the outputs go to, so that cells can be corrected.

        solver   the name of one of ours, or the response of each slot's solver; None: not known
        levels   the tracks that say what an output says about the data; default: the plan's own;
                 () if nobody knows
        why      the reason that stands in the report where the solver is None
        """
        plan, self._why, self._history.corrector = self.plan, None, None
        self._known = solver, levels, why
        tracks = plan.grid.tracks if levels is None else levels
        known = bool(tracks) and all(track.levels is not None for track in tracks)
        self._levels = tuple(tracks) if known else ()
        if plan.correct is None or plan.exact:
            return
        try:
            self._history.corrector = corrector_of(plan, solver, levels, why)
        except ValueError as error:
            self._why = f"cells are not corrected: {error}"

    @property
    def corrects(self) -> bool:
        """Whether cells are corrected in this run."""
        return self._history.corrector is not None

    @property
    def levels(self) -> tuple[Track, ...]:
        """The tracks that say what an output says about the data; () if nobody knows."""
        return self._levels

    @property
    def uncorrected(self) -> str:
        """Why cells are not corrected, where the plan says that they are."""
        return self._why or ""

    def stored(self, slot: int) -> tuple[Place, ...]:
        """Where a slot's solver has the tensors that a correction moves."""
        corrector = self._history.corrector
        return () if corrector is None else corrector.response(slot).stored

    def leave_cell(self, reason: str) -> None:
        """The open cell is not corrected at its end: the state is not what the solver made it."""
        self._history.uncorrected = reason

    @property
    def adapts(self) -> bool:
        """Whether it may go on with other anchors than its plan has."""
        return self._guide is not None or self.learns

    @property
    def learns(self) -> bool:
        """Whether what it runs is decided by what exact runs have taught."""
        return self._pupil is not None

    @property
    def teaches(self) -> bool:
        """Whether this run is exact, and is recorded to learn from."""
        return self._pupil is not None and self._pupil.recording is not None

    def use(self, plan: Plan) -> None:
        """Another plan of the same grid, before anything was predicted by this one."""
        self._take(plan)
        self.know(*self._known)
        self._record.corrects = self.corrects
        self._guide = guide_of(plan)

    def follow(self, plan: Plan) -> None:
        """Other anchors from here on, on the same grid, with the same solver."""
        self._take(plan)
        corrector = self._history.corrector
        if corrector is not None and plan.correct is not None:
            self._history.corrector = corrector.with_plan(plan)
        if self._history.seen:
            self._history.open_cell()

    def go_on_with(self, plan: Plan) -> None:
        """Another plan of the same grid takes over from here; neither is refined."""
        self._take(plan)
        self.know(None, self._levels)
        self._record.corrects = False
        self._guide = guide_of(plan, self._guide.seen if isinstance(self._guide, Goal) else ())
        if self._history.seen:
            self._history.open_cell()

    def stay(self) -> None:
        """It keeps its anchors, however slowly its outputs move."""
        if isinstance(self._guide, Pace):
            self._guide, plan = None, replace(self.plan, slow=())
            self.plan = self._asked = self._history.plan = self._record.plan = plan

    def _take(self, plan: Plan) -> None:
        self.plan = self._history.plan = self._record.plan = plan
        self._history.tables, self._reported = [], None


def guide_of(plan: Plan, seen: Sequence[int] = ()) -> Goal | Pace | None:
    """What looks at a run of this plan, and may have it go on with other anchors.

    seen   anchors that it has had already
    """
    if plan.aim is not None:
        return Goal(plan, seen)
    return Pace(plan) if plan.slow and plan.refine == 1 else None
