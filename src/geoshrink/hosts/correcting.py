"""What a loop over a scheduler needs to put its cells right: the scheduler's response, and whether
the state that a step is given is the one that the step before returned.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..run import Run
from ..solvers.response import store
from .options import wants_correction
from .responses import is_plain_euler, levels_of, memory_of, solver_of
from .scheduling import first_index
from .steering import Mark, mark

Key = tuple[int, int]  # a scheduler, and which of its steps in a stage


class Correcting:
    """Of one loop."""

    def __init__(self, options: Mapping[str, Any]):
        self.wanted = wants_correction(dict(options))
        self.before: dict[int, Any] = {}  # schedulers as they were before their first step
        self.state: dict[Key, Mark] = {}  # what each step returned last
        self.in_place = False  # a step has written its result into the sample that it was given

    def meet(self, scheduler: Any) -> None:
        """Before a scheduler's first step: a copy to be tried out, or why there is none."""
        if self.wanted and not is_plain_euler(scheduler):
            try:
                self.before[id(scheduler)] = copy.deepcopy(scheduler)
            except Exception as error:
                self.before[id(scheduler)] = f"{type(error).__name__}: {error}"

    def learn(
        self, run: Run, scheduler: Any, order: int, timestep: Any, more: Mapping[str, Any]
    ) -> None:
        """Tells a run what its scheduler does with the outputs; `more` is what step is given."""
        before = self.before.pop(id(scheduler), "it had begun before it was seen")
        if run.plan.exact:
            return
        start = first_index(scheduler, timestep, run.plan.grid.given)
        try:
            levels = [levels_of(scheduler, run.plan, start)]
        except ValueError:
            levels = []
        if run.plan.correct is None:
            run.know(None, levels)
            return
        try:
            if order > 1:
                raise ValueError(f"{type(scheduler).__name__} takes two outputs a stage")
            run.know(*solver_of(scheduler, before, run.plan, start, more))
        except ValueError as error:
            run.know(None, levels, str(error))

    def check(self, key: Key, run: Run, x: Any) -> str | None:
        """A cell in which somebody changed the state is not corrected: why, or None."""
        why = None
        if self.in_place:
            why = "the scheduler steps in place"
        elif not (key in self.state and is_marked(x, self.state[key])):
            why = "the state was changed between the steps"
        if why is not None:
            run.leave_cell(why)
        return why

    def move(self, scheduler: Any, run: Run, stage: int, output: Any, x: Any) -> tuple[Any, Any]:
        """(output, sample) for step at an anchor. What the scheduler stores moves, too."""
        if not isinstance(x, Tensor):
            return run.observe(stage, output, x), x
        paths = run.stored(0)
        output, memory = run.observe_state(stage, output, x, [memory_of(scheduler, x, paths)])
        for path, tensor in zip(paths, memory[0][1:]):
            if tensor is not None:
                store(scheduler, path, tensor)
        return output, memory[0][0]

    def stepped(self, key: Key, x: Any, result: Any) -> None:
        """Remembers what a step returned."""
        if isinstance(result, (tuple, list)):
            result = result[0]
        after = result if isinstance(result, Tensor) else getattr(result, "prev_sample", None)
        self.in_place = self.in_place or after is x
        if isinstance(after, Tensor):
            self.state[key] = mark(after)


def is_marked(x: Any, known: Mark) -> bool:
    """Whether x is the tensor of a mark, and nobody has written to it; under torch.inference_mode,
    which counts no writes, whether it is that tensor.
    """
    return isinstance(x, Tensor) and known[0]() is x and known[1] == mark(x)[1]
