"""Refinement: R Euler steps in place of each of the solver's, at no further model call.

A stage of the solver's grid is crossed in R steps. At an anchor the first of them has the exact
output, all others are predicted. Under Euler they add up to one step with one output, their average

    v̄_n = ((A − p_n)·x + Σ c_r·ẑ_r)/g_n,    x_{n+1} = p_n·x + g_n·v̄_n

where A and c_r are the refined steps' weights (in output space A = p_n, and c_r/g_n are shares of
the stage). So the solver's step simply receives v̄_n, at anchors too: its grid stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid, Track
from ..plan import Plan
from .cell import Coefficients, History
from .correction import Corrector
from .slot import Slot


def refined_track(track: Track, times: int) -> Track:
    """Every stage cut into equal parts, in σ and in α."""

    def cut(values: Sequence[float]) -> tuple[float, ...]:
        parts = [a + (b - a) * r / times for a, b in pairwise(values) for r in range(times)]
        return (*parts, values[-1])

    alphas = None if track.alphas is None else cut(track.alphas)
    return replace(track, sigmas=cut(track.sigmas), alphas=alphas)


def refined_grid(grid: Grid, times: int) -> Grid:
    steps = grid.steps * times
    tracks = tuple(refined_track(track, times) for track in grid.tracks)
    regimes = tuple(start * times for start in grid.regimes)
    return replace(grid, tracks=tracks, kept=tuple(range(steps)), given=steps, regimes=regimes)


def refined_plan(plan: Plan) -> Plan:
    """The same run as a plan of the refined grid, which nothing refines any more."""
    anchors = tuple(a * plan.refine for a in plan.anchors)
    grid = refined_grid(plan.grid, plan.refine)
    return replace(plan, grid=grid, anchors=anchors, refine=1, slow=())


class RefinedHistory:
    """A History on the refined grid, spoken to in stages of the solver's own."""

    def __init__(self, plan: Plan, *options: Any):
        self.plan, self.times = plan, plan.refine
        self.fine = History(refined_plan(plan), *options)
        self.fits, self.turning = self.fine.fits, self.fine.turning
        self.begin_regime = self.fine.begin_regime
        self.forget()

    def forget(self) -> None:
        self.fine.forget()
        self.shares: list[Tensor] = []

    @property
    def seen(self) -> list[int]:
        return [n // self.times for n in self.fine.seen]

    @property
    def source(self) -> tuple[int, ...]:
        return tuple(n // self.times for n in self.fine.source)

    @property
    def cell(self) -> range:
        """The stages up to the next anchor, itself included."""
        first, end = self.fine.cell.start // self.times + 1, -(-self.fine.cell.stop // self.times)
        return range(first, end) if self.fine.cell else range(0)

    @property
    def slots(self) -> list[Slot]:
        return self.fine.slots

    @property
    def bytes(self) -> int:
        return self.fine.bytes

    @property
    def corrector(self) -> Corrector | None:
        return self.fine.corrector

    @corrector.setter
    def corrector(self, corrector: Corrector | None) -> None:
        self.fine.corrector = corrector

    @property
    def left(self) -> str | None:
        return self.fine.left

    @property
    def uncorrected(self) -> str | None:
        return self.fine.uncorrected

    @uncorrected.setter
    def uncorrected(self, reason: str | None) -> None:
        self.fine.uncorrected = reason

    def observe(
        self,
        stage: int,
        leaves: Sequence[Tensor],
        states: Sequence[Tensor | None],
        memory: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> list[Tensor] | None:
        """Without a memory d itself is moved from 0, for received() to add."""
        if memory is None and self.corrector is not None:
            memory = [[torch.zeros_like(leaf)] for leaf in leaves]
        return self.fine.observe(stage * self.times, leaves, states, memory)

    def take_moved(self) -> list[Any]:
        return self.fine.take_moved()

    def skipped_before(self, stage: int) -> range:
        return self.fine.skipped_before(stage * self.times)

    def received(
        self, stage: int, leaves: Sequence[Tensor], states: Sequence[Tensor | None], effective: bool
    ) -> list[Tensor]:
        """What the solver receives at the anchor just observed; the output itself at a first one,
        which is held.

        effective   the solver's x was not moved: the output carries the correction
        """
        rest = range(stage * self.times + 1, (stage + 1) * self.times)
        if self.fine.source or self.plan.space == "output":
            self.fine.predicted += rest
        else:
            self.fine.uncorrected = "the first output was held as it is, not as data"
        received = []
        for i, (leaf, omega, x) in enumerate(zip(leaves, self.omega_at(stage), states)):
            moved = self.fine.slots[i].moved
            if moved is not None and x is not None:
                x = x + moved[1][0] if effective else moved[1][0]
            output = leaf if omega is None else self.output(i, stage, omega, x)
            p, g = self.plan.track(i).euler(stage)
            if moved is not None and effective and g:
                output = (output + (p / g) * moved[1][0]).to(output.dtype)
            received.append(output)
        return received

    def predict(
        self, stage: int, states: Sequence[Tensor | None], hold: bool = False
    ) -> list[Tensor]:
        if hold:
            return self.fine.predict(stage * self.times, states, hold=True)
        self.fine.predicted += self.steps_of(stage)
        means = self.omega_at(stage)
        return [self.output(i, stage, w, x) for i, (w, x) in enumerate(zip(means, states))]

    def omega_at(self, stage: int) -> Coefficients:
        """ω̄ of a stage: its refined stages' ω in the shares of their steps; an anchor's first has
        none.
        """
        first = max(stage * self.times, self.fine.cell.start)
        place = slice(first - self.fine.cell.start, (stage + 1) * self.times - self.fine.cell.start)
        found: Coefficients = []
        for i, omega in enumerate(self.fine.omega):
            if omega is None or first not in self.fine.cell:
                found.append(None)
                continue
            some = omega[place]
            shares = self.table(i)[stage, -len(some) :]
            found.append((shares.reshape(-1, *[1] * (omega.ndim - 1)) * some).sum(0))
        return found

    def output(self, i: int, stage: int, omega: Tensor | None, x: Tensor | None) -> Tensor:
        """v̄ of a slot."""
        slot, (p, g) = self.fine.slots[i], self.plan.track(i).euler(stage)
        if not slot.data_space or x is None or not g:
            return slot.predict(stage * self.times, omega, x)
        assert slot.z is not None and slot.kind is not None
        shrink, weights = slot.track.euler_weights(self.steps_of(stage), slot.data_space)
        z = slot.z
        if omega is not None and slot.dz is not None:
            z = z + slot.blocks.spread(omega, z) * slot.dz
        return ((sum(weights) / g) * z + ((shrink - p) / g) * x).to(slot.kind[1])

    def steps_of(self, stage: int) -> range:
        return range(stage * self.times, (stage + 1) * self.times)

    def table(self, i: int) -> Tensor:
        """(T, R): the refined steps' shares c_r/Σc of their stage, uploaded once per run."""
        if not self.shares:
            for slot in range(len(self.fine.slots)):
                rows = [self.shares_of(slot, n) for n in range(self.plan.steps)]
                self.shares.append(self.fine.upload(slot, rows))
        return self.shares[i]

    def shares_of(self, i: int, stage: int) -> list[float]:
        slot = self.fine.slots[i]
        weights = slot.track.euler_weights(self.steps_of(stage), slot.data_space)[1]
        total = sum(weights)
        return [w / total for w in weights] if total else [1 / self.times] * self.times

    skipped = History.skipped

    def leap(self, stages: range, x: Sequence[Tensor]) -> list[Tensor]:
        return self.fine.leap(range(stages.start * self.times, stages.stop * self.times), x)


def history_of(plan: Plan, *options: Any) -> History:
    """The history of a run; a refined one answers the same calls."""
    if plan.refine == 1:
        return History(plan, *options)
    return RefinedHistory(plan, *options)  # type: ignore[return-value]
