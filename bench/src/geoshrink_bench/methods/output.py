"""Where output-level methods act: on the guided velocity, or on the network before guidance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from geoshrink.outputs import flatten

from .base import Case, Session

Parts = list[Tensor]


class OutputSession(Session):
    """At a skipped stage the whole output is predicted from x and earlier outputs, part by part.

    Subclasses say when (`decide`) and how (`predict`), keep what they need (`observe`) and let go
    of it (`forget`): where guidance switches the output jumps, so that stage runs in full and
    nothing from before it is used.

    guided      True: after guidance. False: the network itself, where each branch of guidance is a
                sample of its own and the conditional ones come first.
    """

    guided = True

    def __init__(self, case: Case, stages: Iterable[int] = ()):
        super().__init__(case, stages)
        grid = case.grid()
        self.tracks, self.regimes = grid.tracks, frozenset(grid.regimes)
        self.modules = () if self.guided else (case.network,)

    def decide(self, x: Parts) -> bool:
        """Whether this stage runs in full."""
        return self.stage in self.stages

    def observe(self, x: Parts, output: Parts) -> None:
        """What a full stage made of x."""
        raise NotImplementedError

    def predict(self, x: Parts) -> Parts:
        raise NotImplementedError

    def forget(self) -> None:
        raise NotImplementedError

    def track(self, part: int):
        return self.tracks[part if len(self.tracks) > 1 else 0]

    def output(self, x: Any, forward: Callable[[], Any]) -> Any:
        parts, unflatten = flatten(x)
        fresh = self.shapes != [part.shape for part in parts] or self.stage in self.regimes
        if fresh:
            self.forget()
        if not self.begins(self.decide(parts) or fresh, parts):
            return unflatten(self.predict(parts))
        output = forward()
        self.observe(parts, flatten(output)[0])
        return output

    def velocity(self, x: Any, sigma: Any) -> Any:
        if not self.guided:
            return super().velocity(x, sigma)
        self.stage += 1
        return self.output(x, lambda: self.inner(x, sigma))

    def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        return self.output(args[0], lambda: forward(*args, **kwargs))
