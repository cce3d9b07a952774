"""The history of a run: every slot's two tensors, and the coefficients of the cell that is open.

All ω of a cell are computed at its anchor in one call, from one table of ρ and λ that is uploaded
once per run: a skipped stage then needs no arithmetic on the host and no answer from the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..plan import Plan, source_of
from ..rules import Rule
from ..rules.retention import Statistics, retention, shared_retention, turning
from ..tracing import bare
from ..track import Track
from .correction import Closing, Corrector
from .masks import fit_masks
from .slot import Slot, kind_of

#: What is kept of ω in the first cell of a regime, where Δz is that of the regime before
#: (benchmarks/regimes.md).
KEPT = 0.5

Coefficients = list[Tensor | None]  # one ω per slot; None holds


class History:
    """What was observed since the last restart, and what follows from it."""

    def __init__(self, plan: Plan, mask: object, dtype: torch.dtype, group: object = None):
        self.plan, self.mask, self.dtype, self.group = plan, mask, dtype, group
        self.corrector: Corrector | None = None
        self.forget()

    def forget(self) -> None:
        self.slots: list[Slot] = []
        self.seen: list[int] = []  # observed stages of the regime, latest first, three at most
        self.before: tuple[int, ...] = ()  # the two latest of the regime before
        self.cell = range(0)  # the stages up to the next anchor, itself included
        self.omega: Coefficients = []
        self.turned: Coefficients = []  # sin²θ, where it was computed along with ω
        self.tables: list[Tensor] = []
        self.predicted: list[int] = []  # stages since the latest exact one
        self.uncorrected: str | None = None  # why the open cell must not be corrected
        self.left: str | None = None  # why the cell before was not, where it should have been

    def begin_regime(self) -> None:
        """The next exact output is another model's. Its predecessors are forgotten, but for Δz."""
        if len(self.seen) == 1:
            self.forget()
        elif self.seen:
            self.before, self.seen = tuple(self.seen[:2]), []

    @property
    def source(self) -> tuple[int, ...]:
        """The anchors behind a prediction, as Plan.sources."""
        return source_of(self.seen, self.before)

    @property
    def bytes(self) -> int:
        return sum(slot.bytes for slot in self.slots)

    def fits(self, leaves: Sequence[Tensor]) -> bool:
        """Whether these outputs continue the history."""
        return not self.slots or [s.kind for s in self.slots] == [kind_of(leaf) for leaf in leaves]

    def observe(
        self,
        stage: int,
        leaves: Sequence[Tensor],
        states: Sequence[Tensor | None],
        memory: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> list[Tensor] | None:
        """Takes in an anchor; returns its self-check: how far its prediction was off.

        memory   for each slot x and what the solver stores, which the correction of the cell that
                 ends here moves; None if the solver's state is out of reach
        """
        if not self.slots:
            self.slots = self.make_slots(leaves)
        state = [()] * len(leaves) if memory is None else memory
        closings = self.closings(stage, memory)
        each = zip(self.slots, leaves, states, self.omega_at(stage), closings, state)
        if self.seen or not self.before:
            errors = [slot.observe(stage, *rest) for slot, *rest in each]
        else:
            errors = [slot.begin(stage, *rest[:2]) for slot, *rest in each]
        self.left = self.uncorrected if self.skipped_before(stage) else None
        self.seen = [stage, *self.seen[:2]]
        self.predicted, self.uncorrected = [], None
        self.open_cell()
        return errors if len(self.seen) > 1 else None  # type: ignore[return-value]

    def data_sizes(
        self, stage: int, leaves: Sequence[Tensor], x: Sequence[Tensor], levels: Sequence[Track]
    ) -> list[Tensor | None]:
        """‖x̂₀‖² of the samples of every slot, and of how many coordinates; None where x is not of
        its shape.
        """
        found: list[Tensor | None] = []
        for i, (slot, output, state) in enumerate(zip(self.slots, leaves, x)):
            track = levels[i if len(levels) > 1 else 0]
            alike = state.shape == output.shape and state.device == output.device
            found.append(slot.data_size(track, stage, output, state) if alike else None)
        return found

    def received(
        self, stage: int, leaves: Sequence[Tensor], states: Sequence[Tensor | None], effective: bool
    ) -> list[Tensor]:
        """What the solver receives at the anchor just observed: its output, or what it moved to."""
        return [leaf if s.moved is None else s.moved[0] for s, leaf in zip(self.slots, leaves)]

    def take_moved(self) -> list[Any]:
        """(output, state) of every slot after the correction, None where there was none: once."""
        found = [slot.moved for slot in self.slots]
        for slot in self.slots:
            slot.moved = None
        return found

    def skipped_before(self, stage: int) -> range:
        """The stages between the latest exact one and a stage."""
        return range(self.seen[0] + 1, stage) if self.seen else range(0)

    def closings(
        self, stage: int, memory: Sequence[Sequence[Tensor | None]] | None
    ) -> list[Closing | None]:
        """How each slot's cell is corrected that ends at an anchor; None: it is not."""
        cell = self.skipped_before(stage)
        none: list[Closing | None] = [None] * len(self.slots)
        if self.corrector is None or not cell:
            return none
        if self.predicted != [*cell] and self.uncorrected is None:
            self.uncorrected = "not all of its stages were predicted"
        place = slice(cell.start - self.cell.start, cell.stop - self.cell.start)
        found: list[Closing | None] = []
        for i, omega in enumerate(self.omega):
            if self.uncorrected is not None:
                return none
            omega = None if omega is None else omega[place]
            device = self.slots[i].kind[2]  # type: ignore[index]
            closing = self.corrector.closing(i, cell, omega, device, memory is None)
            state = None if memory is None else memory[i]
            self.uncorrected = closing.fault(state, self.slots[i].kind[0])  # type: ignore[index]
            found.append(closing)
        return none if self.uncorrected is not None else found

    def predict(
        self, stage: int, states: Sequence[Tensor | None], hold: bool = False
    ) -> list[Tensor]:
        if not hold:
            self.predicted.append(stage)
        omega = [None] * len(self.slots) if hold else self.omega_at(stage)
        return [slot.predict(stage, w, s) for slot, w, s in zip(self.slots, omega, states)]

    def keep_tables(self) -> None:
        """Uploads what the plan would need, before another one takes over."""
        if self.corrector is not None:
            for i, slot in enumerate(self.slots):
                if slot.kind is not None:
                    self.corrector.keep_table(i, slot.kind[2])

    def omega_at(self, stage: int) -> Coefficients:
        if stage not in self.cell:
            return [None] * len(self.slots)
        return [None if w is None else w[stage - self.cell.start] for w in self.omega]

    def skipped(self, after: int) -> range:
        """The stages of the open cell that come after a stage, without the anchor that ends it."""
        end = self.cell.stop - self.plan.asked[self.cell.stop - 1]
        return range(max(self.cell.start, after + 1), end)

    def leap(self, stages: range, x: Sequence[Tensor]) -> list[Tensor]:
        """x after these stages, up to the end of the open cell, by Euler in one update."""
        moved = []
        self.predicted += stages
        for i, (slot, omega, state) in enumerate(zip(self.slots, self.omega, x)):
            weights = None
            if omega is not None:
                omega = omega[stages.start - self.cell.start : stages.stop - self.cell.start]
                weights = self.planned(i)[2, stages.start : stages.stop]
            moved.append(slot.collapsed(stages, omega, weights, state))
        return moved

    def turning(self) -> Coefficients:
        return [
            known if known is not None or slot.stats is None else turning(self.rule(), slot.stats)
            for slot, known in zip(self.slots, self.turned)
        ]

    def rule(self) -> Rule:
        return self.plan.rules[max(0, self.opened() - 1)]

    def opened(self) -> int:
        """How many of the plan's anchors lie at or before the latest exact stage."""
        return sum(anchor <= self.seen[0] for anchor in self.plan.anchors)

    def open_cell(self) -> None:
        """Every coefficient up to the next anchor, its self-check included."""
        end = (*(a + 1 for a in self.plan.anchors), self.plan.steps)[self.opened()]
        self.cell = range(self.seen[0] + 1, end)
        self.omega, self.turned = [None for _ in self.slots], [None for _ in self.slots]
        if self.source and self.cell:
            stats = [slot.stats for slot in self.slots if slot.stats is not None]
            tables = [self.table(i) for i in range(len(self.slots))]
            kept = 1.0 if len(self.seen) > 1 else KEPT
            self.omega = [w if kept == 1 else kept * w for w in self.coefficients(stats, tables)]
            self.override()

    def coefficients(self, stats: list[Statistics], tables: list[Tensor]) -> list[Tensor]:
        if self.plan.blocks.shared:
            rho, lam = ([table[i][:, None] for table in tables] for i in (0, 1))
            return shared_retention(self.rule(), stats, rho, lam)
        rule, found = self.rule(), []
        for i, (s, table) in enumerate(zip(stats, tables)):
            kernels = self.slots[i].retains(rule)
            if kernels is not None:
                omega, self.turned[i] = kernels.retain(rule, s, table)
            else:
                rho, lam = table.reshape(2, -1, *[1] * s.S.ndim)
                self.turned[i] = sin2 = turning(rule, s)
                omega = retention(rule, s, rho, lam, sin2)
            found.append(omega)
        return found

    def override(self) -> None:
        """The plan's own coefficients take the place of the rule's."""
        given = self.plan.coefficients or ()
        for n in self.cell if given else ():
            if given[n] is not None:
                for omega in self.omega:
                    omega[n - self.cell.start] = given[n]  # type: ignore[index]

    def table(self, i: int) -> Tensor:
        """ρ and λ of the open cell, (2, stages). As planned, it is a slice of one upload; a plan
        with an aim may change at every anchor.
        """
        if self.plan.aim is None and self.plan.sources[self.cell.start] == self.source:
            return self.planned(i)[:2, self.cell.start : self.cell.stop]
        clock, source = self.plan.clock_of(i), self.source
        return self.upload(
            i, [[f(n, *source) for n in self.cell] for f in (clock.horizon, clock.reach)]
        )

    def planned(self, i: int) -> Tensor:
        """(3, T): ρ, λ and the Euler weight of every stage as planned."""
        if not self.tables:
            for index, slot in enumerate(self.slots):
                assert slot.stats is not None
                like = slot.stats.S
                kept = like.is_cuda and type(like) is Tensor
                make = planned_table if kept else planned_table.__wrapped__
                self.tables.append(make(self.plan, index, like.dtype, like.device))
        return self.tables[i]

    def upload(self, i: int, rows: list[list[float]]) -> Tensor:
        stats = self.slots[i].stats
        assert stats is not None
        return upload(torch.tensor(rows, dtype=torch.float64), stats.S.dtype, stats.S.device)

    def make_slots(self, leaves: Sequence[Tensor]) -> list[Slot]:
        grids = len(self.plan.grid.tracks)
        if grids not in (1, len(leaves)):
            raise ValueError(
                f"the plan has {grids} σ-grids, but the model returned {len(leaves)} tensors"
            )
        masks = fit_masks(self.mask, leaves)
        data = self.plan.space == "data"
        return [
            Slot(self.plan.track(i), data, self.plan.blocks, m, self.dtype, self.group)
            for i, m in enumerate(masks)
        ]


@lru_cache(maxsize=256)
def planned_table(plan: Plan, i: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The table of slot i: one upload for all runs of a plan, so that they can be captured."""
    return upload(plan.tables[i if len(plan.grid.tracks) > 1 else 0], dtype, device)


def upload(table: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Without waiting for the device: its queue is what hides the host's work."""
    with torch.inference_mode(False):
        table = bare(table.to(dtype))
        if device.type != "cuda" or torch.compiler.is_compiling():
            return bare(table.to(device))
        return bare(table.pin_memory().to(device, non_blocking=True))
