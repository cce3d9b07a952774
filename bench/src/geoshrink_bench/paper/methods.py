"""A method in a pipeline's own loop: fewer steps, GeoShrink, or a rival inside the transformer.

A rival's session counts the stages by the calls of its velocity. Here the pipeline is the solver:
as a stage begins the session's velocity is called with nothing to evaluate, and what it does inside
the network happens as the pipeline calls its transformer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch import nn

from geoshrink.adapters import Handle, accelerate
from geoshrink.grid import Grid

from ..methods.base import Case, Method
from ..methods.ours import OURS
from ..methods.registry import METHODS
from ..methods.stack import stack_of
from ..metrics.base import Skipped
from .host import Host, Made
from .prompts import Prompt
from .suite import FULL, Row, Suite

#: Rivals that act on the blocks of a transformer, and so can run in a pipeline.
INSIDE = (
    "FORA", "TeaCache", "TeaCache (uncalibrated)", "ToCa", "TaylorSeer", "SpeCa", "ResilPhase",
    "HiCache", "FirstBlockCache", "MagCache", "DBCache",
)  # fmt: skip
TRAINING_SEED = 9000


@dataclass(frozen=True)
class Run:
    """What a method made, and the stages in which the whole network ran."""

    made: Made
    evaluated: tuple[int, ...]
    partial: float = 0.0  # work at the other stages, in whole runs
    reasons: tuple[str, ...] = ()  # why stages were queried that the plan had left out


def check(row: Row, host: Host) -> None:
    """Skipped where a method cannot run in a model's loop."""
    if row is FULL or row.method in ("direct", "GeoShrink", *OURS):
        return
    if row.method in INSIDE:
        if not host.blocks:
            raise Skipped(
                f"{row.method} acts on the blocks of diffusers' transformers, which {host.kind} "
                "does not have"
            )
        return
    raise Skipped(
        f"{row.method} cannot run in a pipeline's own loop: it acts on the guided output, outside "
        "the transformer"
    )


def run(
    host: Host,
    suite: Suite,
    row: Row,
    prompt: Prompt,
    seed: int,
    method: Callable[[], Method] | None = None,
) -> Run:
    """One sample by the method of a row; `method` makes a rival."""
    if row.method in ("full", "direct"):
        steps = suite.steps if row is FULL else host.steps_for(cast(int, row.budget))
        made = host.sample(prompt.given, seed, steps, suite.call)
        return Run(made, tuple(range(made.stages)))
    if row.method == "GeoShrink" or row.method in OURS:
        return ours(host, suite, row, prompt, seed)
    if method is None:
        raise ValueError(f"{row.method} has not been made")
    case = PipelineCase(host, suite, prompt, seed)
    try:
        stack_of(case.network)
    except TypeError as error:
        raise Skipped(f"{row.method} cannot run in {host.kind}: {error}") from error
    outcome = method().run(cast(Case, case), row.budget or case.steps)
    return Run(outcome.x, outcome.evaluated, outcome.partial)


def ours(host: Host, suite: Suite, row: Row, prompt: Prompt, seed: int) -> Run:
    options = {**(OURS[row.method].options if row.method in OURS else {}), **row.options}
    handles: list[Handle] = []

    def within() -> Handle:
        handles.append(accelerate(host.pipe, row.budget, **options))
        return handles[0]

    made = host.sample(prompt.given, seed, suite.steps, suite.call, within=within)
    report = handles[0].report
    if report is None:
        raise RuntimeError("the model was not accelerated: its loop was not entered")
    evaluated = tuple(sorted(report.queried + report.extra))
    return Run(made, evaluated, reasons=tuple(why for _, why in report.reasons))


@dataclass(frozen=True)
class PipelineCase:
    """A prompt and a seed in a pipeline, as much of methods.base.Case as a cache inside needs."""

    host: Host
    suite: Suite
    prompt: Prompt
    seed: int
    costs: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def steps(self) -> int:
        return self.host.stages(self.suite.steps)

    @property
    def labels(self) -> list[str]:
        return [self.prompt.text]

    @property
    def network(self) -> nn.Module:
        return self.host.network()

    def grid(self) -> Grid:
        """The stages by their numbers: σ is the pipeline's own affair."""
        return Grid.of([float(self.steps - i) for i in range(self.steps + 1)])

    def velocity(self) -> Callable[[Any, Any], None]:
        return lambda x, sigma: None

    def solve(self, velocity: Callable[[Any, Any], Any]) -> Made:
        """One run of the pipeline; velocity is called as each stage begins."""
        made = self.host.sample(
            self.prompt.given,
            self.seed,
            self.suite.steps,
            self.suite.call,
            opened=lambda: velocity(None, None),
        )
        if not made.forwards == made.stages == self.steps:
            raise RuntimeError(
                f"{made.forwards} forwards in {made.stages} stages of {self.steps}: a cache inside "
                "the transformer needs one in each (guidance in a second call, or another grid?)"
            )
        return made


def maker(host: Host, suite: Suite, row: Row, spare: Sequence[Prompt]) -> Callable[[], Method]:
    """Makes a rival once, when it is first needed, calibrated on prompts that are not compared."""
    made: list[Method] = []

    def training() -> list[Case]:
        if not spare:
            raise Skipped(
                f"{row.method} is calibrated on prompts that are not compared: give a file with "
                "more than the suite takes"
            )
        return [cast(Case, PipelineCase(host, suite, p, TRAINING_SEED)) for p in spare]

    def method() -> Method:
        if not made:
            budget = row.budget or host.stages(suite.steps)
            made.append(METHODS[row.method](row.options, training, budget))
        return made[0]

    return method
