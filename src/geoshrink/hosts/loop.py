"""One denoising loop: which stage it is in, whether it is skipped, and a Run for every output.

A round is "denoiser calls, then step calls"; a stage is one round, or as many as the scheduler's
order. What is predicted is what step receives: at a skipped stage the denoisers return stand-ins,
the pipeline does with them what it does, and step gets the prediction instead.
"""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..grid import Grid
from ..learning.learning import Seat
from ..outputs import flatten
from ..plan import Plan
from ..purpose import Purpose
from ..quality.estimate import TWO_OUTPUTS
from ..report import ASTRAY, Report
from ..run import Run
from .caches import check_hooks
from .correcting import Correcting
from .facts import facts_of
from .handle import tell
from .hooks import Hooks
from .memory import Memory
from .options import fault, plan_of, plan_without, warn
from .scheduling import read_ahead
from .seats import seat_of, words_of
from .signatures import hollow, shapes
from .stack import running, stack
from .steering import Steering

if TYPE_CHECKING:
    from .seam import Seam


class Loop:
    def __init__(self, seam: Seam, host: Any, counted: bool, denoisers: list[nn.Module]):
        self.seam, self.host = seam, weakref.ref(host)
        self.denoisers, self.hooks = denoisers, Hooks()
        self.thread, self.over = threading.current_thread(), False
        self.counted = counted  # the host runs the loop itself, and knows its length
        self.owned = seam.owned_by(host)
        self.steering = Steering(host, seam.reader.method)
        self.memory = Memory(list(seam.reader.parts(host).values()), seam.reader.method)
        self.names: dict[int, list[str]] = {}  # of the arguments of each scheduler's step
        self.schedulers: list[Any] = []
        self.rounds = 0  # opened so far
        self.total: int | None = None  # rounds of the whole loop, known after the first step
        self.order = 1
        self.stepped = True  # a step was made since the last denoiser call
        self.undecided, self.skipping = True, False
        self.switched = False  # the stage opened unlike the last exact one
        self.regime = 0
        self.flags: tuple = ()
        self.turned: list[str] = []  # by a callback, since the stage was opened
        self.ordinal = 0  # step calls in this stage
        self.calls: list[tuple] = []  # denoiser calls in this stage
        self.exact_calls: list[tuple] | None = None
        self.forwards = 0  # denoiser calls that were really made; one within another counts as one
        self.within = False  # one of them runs now
        self.callers: set[CodeType | None] = set()
        self.stand_ins: dict[tuple, Any] = {}
        self.runs: dict[tuple[int, int], Run] = {}
        self.plan: Plan | None = None
        self.facts: Purpose | None = None  # of this run, as a plan's purpose has them
        self.refused = False  # it is exact, since what was asked for does not fit it
        self.seat: Seat | None = None  # where its runs learn
        self.correcting = Correcting(seam.options)
        self.under: list[FrameType] | None = None  # frames of a bare loop, innermost first
        self.queried: list[int] = []
        self.notes: list[tuple[int, str]] = []
        self.forced = False
        self.paints = False  # the solver works on pictures' pixels
        self.finished = self.told = False

    @property
    def stage(self) -> int:
        return (self.rounds - 1) // self.order

    def add_scheduler(self, scheduler: Any) -> None:
        read_ahead(scheduler)
        if all(scheduler is not other for other in self.schedulers):
            self.schedulers.append(scheduler)

    def has_scheduler_of(self, host: Any) -> bool:
        """Whether the host still has one of the schedulers that we are attached to."""
        if any(getattr(host, name, None) is scheduler for name, scheduler in self.owned):
            return True
        self.owned = self.seam.owned_by(host)
        return bool(self.owned)

    def expects(self, code: CodeType | None) -> bool:
        """Whether denoiser calls from this code belong to the loop: the first stage shows which."""
        if self.rounds <= 1 and self.plan is None:
            self.callers.add(code)
        return code in self.callers

    def on_stack(self) -> bool:
        """Whether the code that runs the loop is still at it, in whatever thread."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        if frame is None:
            return False
        if not self.counted:
            return not self.under or self.under[0] in list(stack(frame))
        host = self.host()
        return running(lambda it: it is host, self.seam.reader.method, frame) is not None

    # -- denoiser calls

    def release(self) -> None:
        self.hooks.lift()
        self.memory.release()

    def evaluate(self, module: nn.Module, call: Callable, args: tuple, kwargs: dict) -> Any:
        if self.stepped:
            self.open_round()
        key = (id(module), len(self.calls), self.seam.signature(args, kwargs))
        self.calls.append(key)
        if self.undecided:
            self.skipping, self.undecided = self.decide(key), False
            if self.skipping and not self.counted and not self.on_stack():
                self.seam.close(self)  # the loop was left by an exception: this call is not its own
                return call(*args, **kwargs)
        if len(self.calls) == 1:
            self.memory.open_stage(self.host(), self.skipping)
        if self.skipping and not self.counted and len(self.calls) > len(self.exact_calls or ()):
            raise RuntimeError(
                f"stage {self.stage} was skipped, but its scheduler was not stepped before the "
                "next model call: if that loop was left, call handle.remove() and run again"
            )
        if self.skipping and key in self.stand_ins:
            return self.stand_ins[key]
        if not self.skipping:
            self.remember_frames()
        self.within = True
        try:
            output = self.forward(call, args, kwargs)
        finally:
            self.within = False
        if self.exact_calls is None and len(self.calls) == 1:
            check_hooks(self.denoisers)
        if self.skipping:
            self.note("a denoiser call that no exact stage had made: it was run")
        else:
            self.stand_ins[key] = hollow(output)
        return output

    def forward(self, call: Callable, args: tuple, kwargs: dict) -> Any:
        before = self.forwards
        output = call(*args, **kwargs)
        self.forwards = max(self.forwards, before + 1)
        return output

    def open_round(self) -> None:
        self.rounds, self.stepped = self.rounds + 1, False
        self.turned += self.steering.turned(self.host())
        if (self.rounds - 1) % self.order == 0:
            self.calls, self.ordinal, self.undecided = [], 0, True

    def decide(self, key: tuple) -> bool:
        """Whether the stage that opens with this call is skipped."""
        flags = self.steering.flags(self.host())
        self.switched = self.exact_calls is not None and (
            self.exact_calls[:1] != [key] or flags != self.flags
        )
        self.flags = flags
        if self.plan is None:
            return False
        if self.stage == 1 and self.asynchronous():
            self.force("its schedulers step at times of their own")
            self.total = None
        if self.switched:
            self.note("the denoiser calls changed (another expert, guidance or batch)")
        if self.turned and not self.plan.exact:
            self.note(f"a callback changed {', '.join(dict.fromkeys(self.turned))}")
            self.switched = True
        self.turned = []
        self.regime += self.switched
        lead, *others = self.runs.values()
        wanted = [lead.queries(self.stage, regime=self.regime)]
        self.keep_up(lead, others)
        wanted += [run.queries(self.stage, regime=self.regime) for run in others]
        return not any(wanted) and not self.forced

    def keep_up(self, lead: Run, others: list[Run]) -> None:
        """The first run may go on with other anchors: so do the others."""
        for run in others if lead.adapts else ():
            if run.steps == lead.steps and run.plan.anchors != lead.plan.anchors:
                anchors, rules = lead.plan.anchors, lead.plan.rules
                correct = lead.plan.correct if run.plan.correct is not None else None
                run.follow(replace(run.plan, anchors=anchors, rules=rules, correct=correct))

    def asynchronous(self) -> bool:
        """Whether some of several copied schedulers did not step in the first stage."""
        copies = [s for s in self.schedulers if all(s is not own for own in self.seam.schedulers)]
        stepped = {scheduler for scheduler, _ in self.runs}
        return len(copies) > 1 and any(id(s) not in stepped for s in copies)

    def force(self, reason: str) -> None:
        """From here on every stage is queried."""
        if not self.forced:
            self.note(f"{reason}: every stage is queried")
        self.forced = True

    def remember_frames(self) -> None:
        """Keeps, innermost first, the frames that all calls and steps so far were made under.

        Only for a loop that no host runs: a host is recognised by itself.
        """
        if not self.counted:
            now = list(stack())
            self.under = now if self.under is None else [f for f in self.under if f in now]

    # -- step calls

    def step(self, scheduler: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        if id(scheduler) not in self.names:
            self.names[id(scheduler)] = list(inspect.signature(original).parameters)
        names = self.names[id(scheduler)]
        given = {**dict(zip(names, args)), **kwargs}
        output, x = given[names[0]], given.get("sample")
        key = (id(scheduler), self.ordinal)
        if not self.stepped:
            self.end_of_calls()
        elif self.stage and key not in self.runs:
            self.force("a step was given the output of a network that is not accelerated")
            return original(*args, **kwargs)
        self.stepped = True
        self.ordinal += 1
        run = self.runs.get(key)
        if run is not None and run.corrects:
            why = self.correcting.check(key, run, x)
            if why is not None and self.stage == 1 and len(self.runs) == 1:
                self.give_up(run, scheduler, why)
        if self.skipping or (run is not None and (run.plan.refine > 1 or run.corrects)):
            received, moved = output, x
            if self.skipping:
                received = self.predict(scheduler, key, output, x)
            elif run is not None and run.corrects:
                received, moved = self.correcting.move(scheduler, run, self.stage, output, x)
            else:
                received = self.observe(scheduler, key, output, x, given)
            new = {names[0]: received, "sample": moved}
            changed = {k: new.get(k, v) for k, v in kwargs.items()}
            result = original(*(new.get(k, v) for k, v in zip(names, args)), **changed)
        else:
            if run is None:
                self.correcting.meet(scheduler)
            result = original(*args, **kwargs)
            self.observe(scheduler, key, output, x, given)
        self.correcting.stepped(key, x, result)
        if not self.skipping and self.stage not in self.queried:
            self.queried.append(self.stage)
        self.seam.show(len(self.queried))
        if self.total is not None and self.rounds >= self.total:
            self.finish()
        elif self.counted:
            self.steering.after_step(self.host(), result, self.denoisers)
        return result

    def end_of_calls(self) -> None:
        """The round's denoiser calls are made: are they those of the last exact stage?"""
        self.remember_frames()
        if self.rounds % self.order:
            return  # the stage has more rounds to come, or is the last one and has fewer
        if self.exact_calls not in (None, self.calls) and not self.switched:
            self.regime += 1
            if self.skipping:
                self.note("the denoiser calls changed at a skipped stage: the next is queried")
                self.exact_calls = self.calls
            else:
                for run in self.runs.values():
                    run.queries(self.stage, regime=self.regime)
        if not self.skipping:
            self.exact_calls = self.calls

    def predict(self, scheduler: Any, key: tuple[int, int], output: Any, x: Any) -> Any:
        name, run = type(scheduler).__name__, self.runs.get(key)
        if run is None:
            raise RuntimeError(
                f"stage {self.stage} was skipped, but {name} steps an output that was never "
                "observed; run this pipeline without geoshrink and report it"
            )
        predicted = run.predict(self.stage, x)
        if shapes(predicted) != shapes(output):
            raise RuntimeError(
                f"the output of the skipped stage {self.stage} should be {shapes(predicted)}, but "
                f"{name} was given {shapes(output)}; run this pipeline without geoshrink"
            )
        return predicted

    def observe(
        self, scheduler: Any, key: tuple[int, int], output: Any, x: Any, given: dict[str, Any]
    ) -> Any:
        """What step receives: the output, or its average over a refined stage."""
        if key in self.runs:
            return self.runs[key].observe(self.stage, output, x)
        run = self.make_run(scheduler, given.get("timestep"))
        known = (id(output), id(x), id(given.get("timestep")))
        more = {k: v for k, v in given.items() if id(v) not in known}
        self.correcting.learn(run, scheduler, self.order, given.get("timestep"), more)
        if not self.runs and run.plan.correct is not None and not run.corrects:
            run = self.uncorrected(run, scheduler)
        run.queries(self.stage, regime=self.regime)
        try:
            self.check_aim(run, type(scheduler).__name__)
            for leaf in flatten(output)[0]:
                run.plan.blocks.sum(leaf.new_empty(leaf.shape, device="meta"))
            received = run.observe(self.stage, output, x)
        except (TypeError, ValueError) as error:  # these outputs cannot be predicted as was asked
            self.force(warn(error))
            run = Run(Plan.of(run.plan.grid))
            run.queries(self.stage, regime=self.regime)
            received = run.observe(self.stage, output, x)
        self.paints = self.paints or (not self.runs and self.makes_pixels(x))
        self.runs[key] = run
        self.seam.here.teaching = self.seam.here.teaching or (run.teaches and self.counted)
        return received

    def check_aim(self, run: Run, name: str) -> None:
        """A run of which nothing can be estimated cannot hold a quality."""
        aim = run.plan.aim
        if aim is not None and self.order > 1:
            raise ValueError(
                f"target_db={aim.db:g} needs one output a stage, and {name} takes two: give it a "
                "budget"
            )
        if aim is not None and not run.levels:
            raise ValueError(
                f"target_db={aim.db:g} needs to know the noise levels of {name}, and geoshrink "
                "does not: give it a budget"
            )

    def makes_pixels(self, x: Any) -> bool:
        """Whether x is a batch of pictures in grey or colour, and nothing decodes them."""
        host = self.host()
        parts = {} if host is None else self.seam.reader.parts(host)
        decoders = [p for p in parts.values() if isinstance(p, nn.Module) and hasattr(p, "decode")]
        return not decoders and isinstance(x, Tensor) and x.ndim == 4 and x.shape[1] in (1, 3)

    def make_run(self, scheduler: Any, timestep: Any) -> Run:
        """The first scheduler that steps decides the plan; the others follow its anchors."""
        if self.runs and self.plan is not None:  # of one of several outputs nothing is concluded
            self.plan = replace(self.plan, slow=())
            next(iter(self.runs.values())).stay()
        if any(known == id(scheduler) for known, _ in self.runs):
            first = next(r for (known, _), r in self.runs.items() if known == id(scheduler))
            return Run(replace(first.plan, aim=None, slow=()))
        order = max(1, getattr(scheduler, "order", 1))
        host = self.host() if self.counted else None
        grid, reason = self.seam.reader.grid_of(scheduler, host, order, timestep)
        if self.plan is not None:
            return Run(self.follow(grid, scheduler))
        self.order, self.total = order, grid.given * order - (order - 1)
        blocks = self.seam.reader.blocks_of(scheduler)
        known = self.seam.variables(host) if host is not None else {}
        self.facts = facts_of(self.host(), scheduler, self.denoisers, grid.given, known)
        self.plan, note = plan_of(grid, self.seam.options, reason, scheduler, blocks, self.facts)
        if order > 1:  # what is seen at a stage is two outputs
            self.plan = replace(self.plan, slow=())
        self.refused = note is not None
        if note is None and self.seam.here.teaching:
            self.plan, note = Plan.of(grid), "the call has a loop that teaches: all of it is exact"
        self.notes += [] if note is None else [(0, note)]
        self.seat = self.find_seat(type(scheduler).__name__) if note is None else None
        return Run(self.plan, learn=self.seat)

    def find_seat(self, name: str) -> Seat | None:
        """Where the runs of this loop learn; None if they are not to, or cannot."""
        host = self.host()
        if "learn" not in self.seam.options or host is None:
            return None
        if self.order > 1:
            self.note(f"nothing is learned: {name} takes two outputs a stage")
            return None
        known = self.seam.variables(host) if self.counted else {}
        words = words_of(known, vars(host))
        return seat_of(self.seam.options, self.denoisers, f"{name}, {words}")

    def uncorrected(self, run: Run, scheduler: Any) -> Run:
        """A run whose cells cannot be corrected; with other anchors, unless that was asked for."""
        plan = self.plan_without(run, scheduler, run.uncorrected)
        if plan is None:
            return run
        self.plan = plan
        plain = Run(plan, learn=self.seat)
        plain.know(None, run.levels)
        return plain

    def give_up(self, run: Run, scheduler: Any, why: str) -> None:
        """The state is changed behind the first step, and so it will be behind the others (a host
        that blends a known region in): no cell will be corrected, as where none can be.
        """
        plan = self.plan_without(run, scheduler, f"cells are not corrected: {why}")
        if plan is not None and (plan.asked[1] or not run.plan.asked[1]):
            self.plan = plan
            run.go_on_with(plan)
            if run.learns:
                self.note("what was learned is for corrected cells, and is not used")

    def plan_without(self, run: Run, scheduler: Any, why: str) -> Plan | None:
        """The plan that does not correct its cells; None where somebody asked for it."""
        blocks = self.seam.reader.blocks_of(scheduler)
        return plan_without(run.plan, self.seam.options, scheduler, blocks, why)

    def follow(self, grid: Grid, scheduler: Any) -> Plan:
        assert self.plan is not None
        if grid.steps != self.plan.steps:
            self.force(f"a second scheduler has {grid.steps} stages, not {self.plan.steps}")
            self.total = None
        elif not self.plan.exact and (wrong := fault(self.seam.options, scheduler)) is not None:
            self.force(wrong)
        if self.plan.exact or self.forced:
            return Plan.of(grid)
        try:
            return replace(self.plan, grid=grid, aim=None, slow=())
        except ValueError as error:
            self.force(warn(error))
            return Plan.of(grid)

    # -- what happened

    def finish(self) -> None:
        """After the last round the denoisers are their own again."""
        self.release()
        self.under = None
        if self.finished or not self.runs:
            return
        self.finished = True
        if not self.seam.here.inside:
            self.tell()

    def tell(self) -> None:
        """Logs what was done, once. It waits for the device, so where we can it is left until the
        host's method has ended.
        """
        if not self.told:
            self.told = True
            told = next(iter(self.runs.values())), self.report, self.notes
            self.seam.warned = tell(*told, self.seam.warned)

    def planned(self) -> Plan | None:
        """The plan of its runs; where they learn, what they were taught; where outputs moved slowly
        at first, with the anchors that were then taken.
        """
        lead = next(iter(self.runs.values()), None)
        if lead is None or self.plan is None:
            return self.plan
        followed = bool(self.plan.slow) and lead.plan.anchors == self.plan.slow
        return lead.plan if lead.learns or followed else self.plan

    def note(self, reason: str) -> None:
        self.notes.append((self.stage, reason))

    def report(self) -> Report | None:
        if not self.runs or self.plan is None:
            return None
        reports = [run.report for run in self.runs.values()]
        number = self.plan.grid.effective  # of zero length: none
        asked = [n for n in self.queried if number.get(n) in reports[0].queried]
        notes = [*self.notes]
        if self.total is not None and self.rounds < self.total:
            notes.append((self.stage, "the loop has come no further"))
        if self.skipping and not self.stepped:
            notes.append((self.stage, ASTRAY))
        reasons = {(number.get(n, n), reason) for n, reason in notes}
        reasons |= {reason for report in reports for reason in report.reasons}
        held = sum(report.bytes_held for report in reports) + self.memory.bytes
        estimate = reports[0].estimate
        if self.order > 1 and reports[0].predicted:
            estimate = TWO_OUTPUTS
        return replace(
            reports[0],
            estimate=estimate.of_pixels() if self.paints else estimate,
            queried=tuple(number[n] for n in asked),
            extra=tuple(number.get(n, n) for n in self.queried if n not in asked),
            reasons=tuple(sorted(reasons)),
            bytes_held=held,
            forwards=self.forwards,
        )
