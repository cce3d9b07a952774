"""The two places in a network where caches act: the residual of the stack, or every branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from .base import Case, Session
from .stack import Streams, stack_of


class StackSession(Session):
    """At a skipped stage the blocks after the first `head` are left out.

    What they would have added to the streams, R = out − in, is predicted from earlier ones:
    subclasses say when (`decide`) and how (`predict`), and keep what they need (`observe`).
    """

    head, inside = 0, True

    def __init__(self, case: Case, stages: Iterable[int] = ()):
        super().__init__(case, stages)
        self.stack = stack_of(case.network)
        self.modules = self.stack.blocks
        self.full = True
        self.entry: Streams = ()  # the streams before the first block
        self.begin: Streams = ()  # and after the head

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        """Whether this stage runs in full, given the streams after the head."""
        return self.stage in self.stages

    def observe(self, residual: Streams) -> None:
        raise NotImplementedError

    def predict(self) -> Streams:
        raise NotImplementedError

    def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        streams, last = self.stack.take(i, args, kwargs), len(self.modules) - 1
        if i == 0:
            self.entry = streams
        if i == self.head:
            self.begin = streams
            self.full = self.begins(self.decide(streams, args, kwargs), streams)
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


class BranchSession(Session):
    """At a skipped stage every branch returns a prediction, which the block gates as ever."""

    inside = True

    def __init__(self, case: Case, stages: Iterable[int] = ()):
        super().__init__(case, stages)
        self.stack = stack_of(case.network)
        self.modules = [branch for block in self.stack.branches for branch in block]
        self.full = True
        self.parts: dict[int, list[int]] = {}  # a branch of text and tokens has two outputs

    def decide(self) -> bool:
        """Whether this stage runs in full."""
        return self.stage in self.stages

    def observe(self, branch: int, output: Tensor) -> None:
        raise NotImplementedError

    def predict(self, branch: int, args: tuple) -> Tensor:
        raise NotImplementedError

    def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if i == 0:
            self.full = self.begins(self.decide(), (*args, *kwargs.values()))
        if not self.full:
            predicted = [self.predict(key, args) for key in self.parts[i]]
            return tuple(predicted) if len(predicted) > 1 else predicted[0]
        output = forward(*args, **kwargs)
        several = output if isinstance(output, tuple) else (output,)
        self.parts[i] = [i + len(self.modules) * j for j in range(len(several))]
        for key, part in zip(self.parts[i], several):
            self.observe(key, part)
        return output
