"""Run: at an anchor the model, elsewhere v¹ + ω·Δv. One object for one loop after another."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from .history import Slot, kind_of
from .outputs import flatten
from .plan import Plan
from .report import Record, Report
from .retention import Statistics, retention, shared_retention, turning


class Run:
    """Carries a plan through your own loop.

        run = Run(sigmas, budget=10)
        for n in range(run.steps):
            v = run(n, lambda: velocity(x, sigmas[n]), x)
            x = x + (sigmas[n + 1] - sigmas[n]) * v
        print(run.report)

    `x` is needed only with space="data". Takes a Plan, or what Plan.of takes. Stage 0 starts a new
    run. What the plan did not foresee (a stage off the grid, a changed shape, another `regime`)
    runs the model, restarts the history where it must, and is counted and reported.

    mask    a boolean tensor that broadcasts against the output, or one per slot: which coordinates
            the statistics see (all are predicted)
    dtype   statistics are accumulated in this precision or better
    """

    def __init__(
        self,
        sigmas: Any,
        budget: int | None = None,
        *,
        mask: Tensor | Sequence[Tensor | None] | None = None,
        dtype: torch.dtype = torch.float32,
        **options: Any,
    ):
        if isinstance(sigmas, Plan):
            if budget is not None or options:
                raise ValueError(
                    f"a plan decides everything: leave out {', '.join(options) or 'budget'}"
                )
            self.plan = sigmas
        else:
            self.plan = Plan.of(sigmas, budget, **options)
        self.mask, self.dtype = mask, check_dtype(dtype)
        self._anchors = frozenset(self.plan.anchors)
        self._record = Record(self.plan)
        self.reset()

    @property
    def steps(self) -> int:
        """How many stages the caller's grid has, those of zero length included."""
        return self.plan.grid.given

    @property
    def report(self) -> Report:
        """What happened in the latest run. Reads the device: ask after the run, not inside it."""
        return Report.of(self._record)

    def reset(self) -> None:
        """Forgets every tensor; the record of the latest run stays."""
        self._slots: list[Slot] = []
        self._tables: list[Tensor] = []
        self._seen: list[int] = []  # observed stages since the last restart, latest first
        self._stage = -1
        self._regime: Hashable = None
        self._x_kind: list[tuple] | None = None
        self._cell = range(0)
        self._omega: list[Tensor | None] = []

    def __call__(
        self, n: int, evaluate: Callable[[], Any], x: Any = None, *, regime: Hashable = None
    ) -> Any:
        """The output of stage n: evaluate() at an anchor, a prediction elsewhere."""
        try:
            if self.queries(n, x, regime=regime):
                output = evaluate()
                self.observe(n, output, x)
                return output
            return self.predict(n, x)
        except BaseException:
            self.reset()
            raise

    def queries(self, n: int, x: Any = None, *, regime: Hashable = None) -> bool:
        """Whether stage n must be queried, now that the loop has come to it."""
        if n == 0:
            self.reset()
            self._record = Record(self.plan)
        stage = self.plan.grid.effective.get(n)
        if regime is not None and self._regime is not None and regime != self._regime:
            self._restart(n, f"the regime changed from {self._regime!r} to {regime!r}")
        self._regime = regime if regime is not None else self._regime
        if not 0 <= n < self.steps:
            return self._fall_back(n, f"stage {n} is not on the grid of {self.steps} stages")
        if self.plan.exact:
            return True
        if stage is None:
            return not self._seen
        if self._x_kind is not None and x is not None and self._x_kind != kinds(x):
            self._restart(n, "the state x changed shape, dtype or device")
        if stage <= self._stage:
            self._restart(n, "the stage was called again or out of order")
        if stage in self._anchors:
            return True
        if not self._seen:
            return self._fall_back(n, "no exact output to predict from")
        return False

    def observe(self, n: int, output: Any, x: Any = None) -> None:
        """Takes in the exact output of stage n."""
        stage = self.plan.grid.effective.get(n)
        if stage is None or self.plan.exact:
            self._record.exact(n if stage is None else stage, on_grid=stage is not None)
            return
        leaves, self._unflatten = flatten(output)
        states = leaves_of(x, len(leaves))
        if stage in self.plan.restarts:
            self._forget()
        if self._slots and [slot.kind for slot in self._slots] != [
            kind_of(leaf) for leaf in leaves
        ]:
            if self._seen:
                self._restart(n, "the model's output changed shape, dtype or device")
            self._slots = []
        if not self._slots:
            self._slots = self._make_slots(leaves)
            self._tables = []
        self._x_kind = None if x is None else kinds(x)
        errors = self._self_check(stage, leaves, states) if self._seen else None
        for slot, leaf, state in zip(self._slots, leaves, states):
            slot.observe(stage, leaf, state)
        self._seen = [stage, *self._seen[:2]]
        self._stage = stage
        self._open_cell(stage)
        self._record.observed(stage, self._slots, self._turning(), errors)

    def predict(self, n: int, x: Any = None) -> Any:
        """The predicted output of a skipped stage."""
        stage = self.plan.grid.effective.get(n)
        if not self._seen:
            raise RuntimeError(
                f"stage {n} cannot be predicted: no exact output was observed before it"
            )
        states = leaves_of(x, len(self._slots))
        if stage is None:  # zero length: the solver does not move, so the latest output is held
            point, omega = bisect_left(self.plan.grid.kept, n), [None] * len(self._slots)
        else:
            point, omega = stage, self._omega_at(stage)
            self._stage = stage
            self._record.predicted(stage, omega)
        return self._unflatten(
            [slot.predict(point, w, s) for slot, w, s in zip(self._slots, omega, states)]
        )

    def leap(self, x: list[Tensor]) -> tuple[int, list[Tensor]]:
        """(next stage to query, x there): the skipped stages after the latest anchor by Euler, in
        one update.
        """
        stages = range(self._cell.start, self._cell.stop - (self._cell.stop - 1 in self._anchors))
        if not stages:
            return self._stage + 1, x
        moved = [
            slot.collapsed(
                stages,
                w,
                None if w is None else self._planned(i)[2, stages.start : stages.stop],
                state,
            )
            for i, (slot, w, state) in enumerate(zip(self._slots, self._omega, x))
        ]
        for n in stages:
            self._record.predicted(n, self._omega_at(n))
        self._stage = stages[-1]
        return stages.stop, moved

    # -- the cell after an anchor: every ω at once

    def _open_cell(self, stage: int) -> None:
        """All coefficients of the stages up to the next anchor (itself included, for its self-
        check).
        """
        following = [a for a in self.plan.anchors if a > stage]
        stop = following[0] + 1 if following else self.plan.steps
        self._cell = range(stage + 1, stop)
        if len(self._seen) < 2 or not self._cell:
            self._omega = [None] * len(self._slots)
            return
        rule = self.plan.rules[bisect_right(self.plan.anchors, stage) - 1]
        stats = [slot.stats for slot in self._slots if slot.stats is not None]
        tables = [self._table(i) for i in range(len(self._slots))]
        if self.plan.blocks.shared:
            columns = [t[..., None] for t in tables]
            self._omega = list(
                shared_retention(rule, stats, [c[0] for c in columns], [c[1] for c in columns])
            )
        else:
            self._omega = [own_retention(rule, s, t) for s, t in zip(stats, tables)]
        for n in self._cell if self.plan.coefficients else ():
            if (given := self.plan.coefficients[n]) is not None:  # type: ignore[index]
                for omega in self._omega:
                    omega[n - self._cell.start] = given  # type: ignore[index]

    def _omega_at(self, stage: int) -> list[Tensor | None]:
        return [None if w is None else w[stage - self._cell.start] for w in self._omega]

    def _table(self, i: int) -> Tensor:
        """ρ and λ of the open cell on the device, (2, length). Planned cells are slices of one
        upload.
        """
        stage, before = self._seen[0], self._seen[1]
        if self.plan.history[self._cell.start][:2] == (stage, before):
            return self._planned(i)[:2, self._cell.start : self._cell.stop]
        track = self._slots[i].track
        pairs = [
            (track.horizon(n, stage, before), track.reach(n, stage, before)) for n in self._cell
        ]
        return self._upload(i, list(zip(*pairs)))

    def _planned(self, i: int) -> Tensor:
        """(3, T) on the device: ρ, λ and the Euler weight of every stage as planned."""
        if not self._tables:
            for slot_index, slot in enumerate(self._slots):
                rows = [list(row) for row in zip(*self.plan.horizons(slot_index))]
                weights, ends = [0.0] * self.plan.steps, (*self.plan.anchors[1:], self.plan.steps)
                for first, end in zip(self.plan.anchors, ends):
                    weights[first + 1 : end] = slot.euler_weights(range(first + 1, end))[1]
                self._tables.append(self._upload(slot_index, [*rows, weights]))
        return self._tables[i]

    def _upload(self, i: int, rows: list) -> Tensor:
        stats = self._slots[i].stats
        assert stats is not None
        return torch.tensor(rows, dtype=stats.S.dtype, device=stats.S.device)

    # -- history

    def _make_slots(self, leaves: list[Tensor]) -> list[Slot]:
        grids = len(self.plan.grid.tracks)
        if grids not in (1, len(leaves)):
            raise ValueError(
                f"the plan has {grids} σ-grids, but the model returned {len(leaves)} tensors"
            )
        masks = check_masks(self.mask, leaves)
        data = self.plan.space == "data"
        return [
            Slot(self.plan.track(i), data, self.plan.blocks, m, self.dtype)
            for i, m in enumerate(masks)
        ]

    def _self_check(
        self, stage: int, leaves: list[Tensor], states: list[Tensor | None]
    ) -> list[Tensor]:
        """How far the prediction of this anchor would have been from its exact output."""
        omega = self._omega_at(stage) if stage in self._cell else [None] * len(leaves)
        return [
            slot.error(slot.predict(stage, w, s), leaf)
            for slot, w, s, leaf in zip(self._slots, omega, states, leaves)
        ]

    def _turning(self) -> list[Tensor | None]:
        rule = self.plan.rules[max(0, bisect_right(self.plan.anchors, self._stage) - 1)]
        return [None if slot.stats is None else turning(rule, slot.stats) for slot in self._slots]

    def _forget(self) -> None:
        self._seen = []
        for slot in self._slots:
            slot.forget()

    def _restart(self, n: int, reason: str) -> None:
        self._record.fall_back(n, f"{reason}: the history restarts")
        self._forget()

    def _fall_back(self, n: int, reason: str) -> bool:
        if not self._record.explained(n):
            self._record.fall_back(n, reason)
        return True


def own_retention(rule, stats: Statistics, table: Tensor) -> Tensor:
    rho, lam = (row.reshape(-1, *[1] * stats.S.ndim) for row in table)
    return retention(rule, stats, rho, lam)


def kinds(x: Any) -> list[tuple]:
    return [kind_of(leaf) for leaf in flatten(x)[0]]


def leaves_of(x: Any, count: int) -> list[Tensor | None]:
    if x is None:
        return [None] * count
    leaves = flatten(x)[0]
    if len(leaves) != count:
        raise ValueError(
            f"x has {len(leaves)} tensors, the model's output {count}: they must mirror each other"
        )
    return list(leaves)


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"statistics are accumulated in torch.float32 or torch.float64, got {dtype}"
        )
    return dtype


def check_masks(mask: Any, leaves: list[Tensor]) -> list[Tensor | None]:
    """One boolean mask per slot, on its device; anything that does not broadcast is an error."""
    masks = [mask] * len(leaves) if mask is None or isinstance(mask, Tensor) else list(mask)
    if len(masks) != len(leaves):
        raise ValueError(f"{len(masks)} masks for {len(leaves)} output tensors")
    out: list[Tensor | None] = []
    for m, leaf in zip(masks, leaves):
        if m is None:
            out.append(None)
            continue
        try:
            fits = torch.broadcast_shapes(m.shape, leaf.shape) == leaf.shape
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(
                f"a mask of shape {tuple(m.shape)} does not broadcast to the output "
                f"{tuple(leaf.shape)}"
            )
        out.append(m.to(device=leaf.device, dtype=torch.bool))
    return out
