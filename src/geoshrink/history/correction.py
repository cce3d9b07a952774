"""What a closed cell was wrong by, and by how much each thing moves: d = a·(z_l − z_k) − b·Δz.

a is a number, b = Σ c_n·ω_n one per block. ‖d‖, the factor that shrinks it and the dot products of
what is kept afterwards all follow from the three dot products at hand, so the tensors are read once
more and the device is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor

from ..clock import Clock
from ..plan import Plan
from ..rules.retention import Statistics, positive, root
from ..solvers.response import Response
from ..tracing import bare
from ..track import Track

#: A correction is dropped if it is this many times as long as the cell's own way.
OUTLYING = 2.0


@dataclass
class Closing:
    """How one slot's cell is put right.

    a         for x, then for each stored tensor of the solver: it moves by a·(z_l − z_k) − b·Δz
    table     on the device, c_n of the cell's stages for the same, and then a: (parts, stages + 1)
    omega     ω of these stages, (stages, blocks…); None if the cell was held
    idle      which of these do not depend on the cell
    limit     Σ|c_n|: limit·‖z_k‖ is how far the cell moves x
    kept      what the kept z moves by, in units of d
    received  what the output that the solver receives moves by, in units of d; None if no output
              can take the place of moving x
    caution   q of the factor (1 + r²)^−q
    """

    a: list[float]
    table: Tensor
    omega: Tensor | None
    idle: list[bool]
    limit: float
    kept: float
    received: float | None
    caution: float

    def fault(self, state: Sequence[Tensor | None] | None, shape: Sequence[int]) -> str | None:
        """Why it cannot be applied to this state of the solver, or None."""
        if state is None:
            out = self.received is None
            return "this solver's x must be moved, and it is out of reach" if out else None
        if any(t is not None and [*t.shape] != [*shape] for t in state):
            return "the state is not of the output's shape"
        given = [*(t is not None for t in state), *[False] * len(self.idle)]
        if all(there or idle for there, idle in zip(given, self.idle)):
            return None
        return "the solver stores outputs that are out of reach"

    def factor(
        self, stats: Statistics, size: Tensor, omega: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(what d is multiplied by, ‖d‖² before that) of every block.

        stats   ‖z_l − z_k‖², ‖Δz‖² and their product, of the output as evaluated
        size    ‖z_k‖²
        omega   ω of the anchor's own prediction; None if it was held
        """
        S, P, D = stats
        b, w = self.weight(0, S), torch.zeros_like(S) if omega is None else omega
        d2 = (self.a[0] ** 2 * S - 2 * self.a[0] * b * D + b.square() * P).clamp_min(0)
        fine = S.isfinite() & (d2 <= (OUTLYING * self.limit) ** 2 * size)
        if not self.caution:
            return torch.where(fine, 1.0, torch.zeros_like(S)), d2
        r2 = (S - 2 * w * D + w.square() * P).clamp_min(0) / positive(S)
        return torch.where(fine & (S > 0), (1 + r2) ** -self.caution, 0.0), d2

    def weight(self, part: int, like: Tensor) -> Tensor:
        """b = Σ c_n·ω_n of every block, summed in float64."""
        if self.omega is None:
            return torch.zeros_like(like)
        rows = self.table[part, :-1].reshape(-1, *[1] * (self.omega.ndim - 1))
        return (rows * self.omega.to(rows.dtype)).sum(0).to(like.dtype)

    def moved(self, stats: Statistics, factor: Tensor) -> Statistics:
        """The dot products once z_l has moved: Δz' = (1 + m·a)·(z_l − z_k) − m·b·Δz."""
        S, P, D = stats
        m = self.kept * factor
        u, w = 1 + m * self.a[0], m * self.weight(0, S)
        new = u.square() * S - 2 * u * w * D + w.square() * P
        return Statistics(new.clamp_min(0), P, u * D - w * P)


def told(factor: Tensor, d2: Tensor, size: Tensor) -> Tensor:
    """How far the state was moved, relative to ‖z_k‖."""
    return bare(factor * root(d2) / positive(size).sqrt())


class Corrector:
    """Makes the Closing of every cell of a run.

    responses   of the solver, one per slot or one for all
    levels      the tracks that say what an output says about the data; the plan's own, unless the
                plan's grid is in another coordinate
    """

    def __init__(
        self, plan: Plan, responses: Sequence[Response], levels: Sequence[Track] | None = None
    ):
        assert plan.correct is not None
        self.plan, self.options, self.responses = plan, plan.correct, list(responses)
        self.levels = list(plan.grid.tracks if levels is None else levels)

    def with_plan(self, plan: Plan) -> Corrector:
        """The same for other anchors."""
        return Corrector(plan, self.responses, self.levels)

    def keep_table(self, slot: int, device: torch.device) -> None:
        """Uploads the plan's table, so that a run that follows the plan can be captured."""
        if device.type == "cuda" and self.plan.aim is None:
            clock = self.plan.clock_of(slot)
            planned_table(self.plan.anchors, self.response(slot), clock, device)

    def response(self, slot: int) -> Response:
        return self.responses[slot if len(self.responses) > 1 else 0]

    def closing(
        self,
        slot: int,
        cell: range,
        omega: Tensor | None,
        device: torch.device,
        effective: bool,
    ) -> Closing:
        """Of the cell of skipped stages that ends at stage cell.stop.

        omega       ω of these stages, (stages, blocks…); None if they were held
        effective   the solver's x cannot be moved: the output carries the correction
        """
        response, end = self.response(slot), cell.stop
        weights = response.weights(cell)
        a = interpolated(weights, self.plan.clock_of(slot), cell)
        track = self.levels[slot if len(self.levels) > 1 else 0]
        assert track.levels is not None
        gain = self.options.data_gain(*track.levels[end])
        own, scale = track.data_map(end)
        moves = (gain - own) / scale if scale else 0.0
        carry = response.carry(end) if effective else 0.0
        return Closing(
            a,
            self.table(slot, cell, weights, a, device),
            omega,
            [not any(row) for row in weights],
            sum(map(abs, weights[0])),
            gain if self.plan.space == "data" else moves,
            None if carry is None else moves + carry,
            self.options.caution,
        )

    def table(
        self,
        slot: int,
        cell: range,
        weights: list[list[float]],
        a: list[float],
        device: torch.device,
    ) -> Tensor:
        """The Closing's table; as planned, it is a slice of one upload."""
        k, end = cell.start - 1, cell.stop
        planned = self.plan.aim is None
        if not planned or (k, end) not in zip(self.plan.anchors, self.plan.anchors[1:]):
            rows = [[*row, own] for row, own in zip(weights, a)]
            return upload(torch.tensor(rows, dtype=torch.float64, device="cpu"), device)
        make = planned_table if device.type == "cuda" else planned_table.__wrapped__
        table = make(self.plan.anchors, self.response(slot), self.plan.clock_of(slot), device)
        return table[:, k + 1 : end + 1]


def interpolated(weights: list[list[float]], clock: Clock, cell: range) -> list[float]:
    """a = Σ c_n·s_n of every row."""
    shares = [clock.share(n, cell.start - 1, cell.stop) for n in cell]
    return [sum(c * s for c, s in zip(row, shares)) for row in weights]


@lru_cache(maxsize=256)
def planned_table(
    anchors: tuple[int, ...], response: Response, clock: Clock, device: torch.device
) -> Tensor:
    """(parts, T): c_n of every skipped stage, and at every anchor a of the cell before it. One
    upload for all runs of a plan, so that they can be captured.
    """
    columns = [[0.0] * (1 + len(response.stored)) for _ in range(anchors[-1] + 1)]
    for k, end in pairwise(anchors):
        cell = range(k + 1, end)
        if cell:
            weights = response.weights(cell)
            columns[k + 1 : end] = [list(column) for column in zip(*weights)]
            columns[end] = interpolated(weights, clock, cell)
    table = torch.tensor(columns, dtype=torch.float64, device="cpu")
    return upload(table.T.contiguous(), device)


def upload(table: Tensor, device: torch.device) -> Tensor:
    """Without waiting for the device. Where it has no float64, float32 must do."""
    with torch.inference_mode(False):
        table = bare(table if device.type != "mps" else table.float())
        if device.type != "cuda" or torch.compiler.is_compiling():
            return bare(table.to(device))
        return bare(table.pin_memory().to(device, non_blocking=True))
