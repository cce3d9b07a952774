"""The two places in a network where caches act: the residual of the stack, or every branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .base import Case, Outcome, Session
from .stack import Streams, intercepted, stack_of


class StackSession(Session):
    """At a skipped stage the blocks after the first `head` are left out.

    What they would have added to the streams, R = out − in, is predicted from earlier ones:
    subclasses say when (`decide`) and how (`predict`), and keep what they need (`observe`).
    """

    head, inside = 0, True

    def __init__(self, case: Case):
        super().__init__(case)
        self.stack = stack_of(case.network)
        self.full, self.begin = True, ()
        self.shapes: Any = None  # of the streams at the last full stage

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        """Whether this stage runs in full, given the streams after the head."""
        raise NotImplementedError

    def observe(self, residual: Streams) -> None:
        raise NotImplementedError

    def predict(self) -> Streams:
        raise NotImplementedError

    def block(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        streams, last = self.stack.take(i, args, kwargs), len(self.stack.blocks) - 1
        if i == self.head:
            self.begin = streams
            shapes = [s.shape for s in streams]
            known = self.shapes == shapes  # guidance may switch: another batch
            self.full = self.decide(streams, args, kwargs) or not known
            if self.full:
                self.shapes = shapes
                self.evaluated.append(self.stage)
        if i < self.head or self.full:
            output = forward(*args, **kwargs)
            if i == last:
                pairs = zip(self.stack.read(i, output), self.begin)
                self.observe(tuple(out - start for out, start in pairs))
            return output
        if i < last:
            return self.stack.put(i, streams)
        pairs = zip(self.begin, self.predict())
        return self.stack.put(i, tuple(start + r for start, r in pairs))

    def run(self) -> Outcome:
        with intercepted(list(self.stack.blocks), self.block):
            return super().run()


class BranchSession(Session):
    """At a skipped stage every branch returns a prediction, which the block gates as ever."""

    inside = True

    def __init__(self, case: Case):
        super().__init__(case)
        self.stack = stack_of(case.network)
        self.modules = [branch for block in self.stack.branches for branch in block]
        self.full = True
        self.shape: Any = None
        self.parts: dict[int, list[int]] = {}  # a branch of text and tokens has two outputs

    def decide(self) -> bool:
        """Whether this stage runs in full."""
        raise NotImplementedError

    def observe(self, branch: int, output: Tensor) -> None:
        raise NotImplementedError

    def predict(self, branch: int, args: tuple) -> Tensor:
        raise NotImplementedError

    def call(self, branch: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if branch == 0:
            shape = [t.shape for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
            known = self.shape == shape
            self.full = self.decide() or not known
            if self.full:
                self.shape = shape
                self.evaluated.append(self.stage)
        if not self.full:
            parts = self.parts[branch]
            predicted = tuple(self.predict(key, args) for key in parts)
            return predicted if len(parts) > 1 else predicted[0]
        output = forward(*args, **kwargs)
        several = output if isinstance(output, tuple) else (output,)
        self.parts[branch] = [branch + len(self.modules) * j for j in range(len(several))]
        for key, part in zip(self.parts[branch], several):
            self.observe(key, part)
        return output

    def run(self) -> Outcome:
        with intercepted(self.modules, self.call):
            return super().run()
