"""Where output-level methods act: on the guided velocity, or on the network before guidance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from geoshrink.outputs import flatten

from .base import Case, Outcome, Session
from .stack import intercepted

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

    def __init__(self, case: Case):
        super().__init__(case)
        self.grid = case.grid()
        self.tracks, self.regimes = self.grid.tracks, frozenset(self.grid.regimes)
        self.shapes: Any = None

    def decide(self, x: Parts) -> bool:
        """Whether this stage runs in full."""
        raise NotImplementedError

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
        shapes = [part.shape for part in parts]
        fresh = self.shapes != shapes or self.stage in self.regimes
        if fresh:
            self.shapes = shapes
            self.forget()
        if not (self.decide(parts) or fresh):
            return unflatten(self.predict(parts))
        self.evaluated.append(self.stage)
        output = forward()
        self.observe(parts, flatten(output)[0])
        return output

    def velocity(self, x: Any, sigma: Any) -> Any:
        self.stage += 1
        if not self.guided:
            return self.inner(x, sigma)
        return self.output(x, lambda: self.inner(x, sigma))

    def run(self) -> Outcome:
        if self.guided:
            return super().run()
        with intercepted([self.case.network], self.network):
            return super().run()

    def network(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        return self.output(args[0], lambda: forward(*args, **kwargs))
