"""What `learn` stands for, where runs are: who says where they query (learning/), and who asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from .history.masks import fit_masks
from .outputs import flatten
from .plan import Plan
from .targets import RUN
from .tracing import transformed
from .track import Track

#: What leaves a learned plan nothing to choose.
PLACED = ("anchors", "coefficients", "refine", "blocks")
RULES = ("signed time", "time", "linear")


@runtime_checkable
class Teacher(Protocol):
    """Of the runs of one model in settings that it tells apart: learning.Seat."""

    def begin(
        self,
        asked: Plan,
        leaves: Sequence[Tensor],
        solver: str,
        masks: Sequence[Tensor | None],
        why: str | None,
    ) -> tuple[Plan, Any]:
        """(the plan of a run whose first outputs are there, what records it if it is exact).

        why   nothing can be learned from it
        """
        ...


class Pupil:
    """A Run that is taught: it asks, and hands over its exact runs.

    recording   of the run, where it is exact and something is learned from it
    """

    def __init__(self, teacher: Teacher):
        self.teacher = teacher
        self.recording: Any = None

    def ask(
        self, asked: Plan, output: Any, x: Any, mask: Any, levels: Sequence[Track], solver: Any
    ) -> Plan:
        """The plan of a run whose first output is there."""
        leaves, why = flatten(output)[0], None
        if x is None:
            raise ValueError("learn=… needs the state: run(n, evaluate, x)")
        if transformed(*leaves):
            why = "the run is compiled, or under a transform of torch.func"
        elif not levels:
            why = "it is not known what the outputs say about the data"
        elif [t.shape for t in flatten(x)[0]] != [leaf.shape for leaf in leaves]:
            why = "x does not mirror the model's output"
        masks = () if mask is None else fit_masks(mask, leaves)
        name = solver if isinstance(solver, str) else ""
        plan, self.recording = self.teacher.begin(asked, leaves, name, masks, why)
        return plan

    def keep(
        self, stage: int, last: bool, output: Any, x: Any, levels: Sequence[Track]
    ) -> str | None:
        """Hands over a stage of an exact run; why nothing is learned from it, or None."""
        if self.recording is None:
            return None
        try:
            why = self.recording.keep(stage, flatten(output)[0], flatten(x)[0], levels)
        except Exception as error:  # the output is there: it is not lost for this
            why = f"{type(error).__name__}: {error}"
        ended = self.recording
        if why is not None or last:
            self.recording = None
        if why is None and last:
            ended.end()
        return None if why is None else f"nothing is learned from this run: {why}"


#: Makes a teacher of what people pass as `learn` and of the callable that is the model. Set by the
#: package: learning/ knows planning/, which knows runs.
TEACHERS: list[Callable[[Any, Any], Teacher]] = []


def teacher_of(
    learn: Any,
    options: Mapping[str, Any],
    plan: Any = None,
    reserve: int = 0,
    group: Any = None,
    model: Any = None,
) -> Teacher | None:
    """Who places the anchors, where `learn` asks for it; a host brings its own."""
    if is_off(learn):
        return None
    check_learning(learn, options)
    if isinstance(learn, Teacher):
        return learn
    for name, value in (("plan", plan), ("reserve", reserve), ("group", group)):
        if value is not None and value is not False and value != 0:
            raise ValueError(f"learn={learn!r} does not go with {name}: leave one of them out")
    return TEACHERS[-1](learn, model)


def is_off(learn: Any) -> bool:
    return learn is None or (isinstance(learn, (bool, np.bool_)) and not learn)


def check_learning(learn: Any, options: Mapping[str, Any]) -> None:
    """Refuses options beside which nothing can be learned."""
    if is_off(learn):
        return
    for name in PLACED:
        if options.get(name) is not None:
            raise ValueError(
                "learn places the anchors, for the default's prediction: leave out "
                f"{name}={options[name]!r}"
            )
    rule = options.get("rule")
    if rule is not None and str(rule) not in RULES:
        raise ValueError(f"learn goes with the default's rule: leave out rule={rule!r}")
    if options.get("target", RUN) != RUN:
        raise ValueError(f"learn is for target='run', not {options['target']!r}")
