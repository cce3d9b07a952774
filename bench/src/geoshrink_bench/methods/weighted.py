"""A stack left out: what it adds, or what comes out of it, as a sum over kept full stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .base import Case
from .caching import StackSession
from .stack import Streams

Weights = Callable[[Sequence[int], int], Sequence[float]]


class Weighted(StackSession):
    """At stage n, Σ_j w_j·R_j over the newest `keep` full stages; w = weights(their stages, n).

    Stages of another batch (guidance that switches) are forgotten. With `feature`, R is the streams
    after the last block themselves, not what the stack added to them.
    """

    def __init__(
        self,
        case: Case,
        stages: Sequence[int],
        weights: Weights,
        keep: int | None = None,
        feature: bool = False,
    ):
        super().__init__(case, stages)
        self.weights, self.keep, self.feature = weights, keep or self.steps, feature
        self.kept: list[tuple[int, Streams]] = []

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        if self.feature:
            self.begin = tuple(s.new_zeros(()) for s in streams)  # R = out − 0
        return super().decide(streams, args, kwargs)

    def observe(self, residual: Streams) -> None:
        shapes = [r.shape for r in residual]
        same = [(n, kept) for n, kept in self.kept if [k.shape for k in kept] == shapes]
        self.kept = [*same, (self.stage, residual)][-self.keep :]
        self.keeps(*(kept for _, kept in self.kept))

    def predict(self) -> Streams:
        weights = self.weights([n for n, _ in self.kept], self.stage)
        streams = zip(*(kept for _, kept in self.kept))
        return tuple(sum(w * r for w, r in zip(weights, stream)) for stream in streams)  # type: ignore[misc]
