"""Record: what a run writes down as it goes, and how it is read from the device at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..tracing import bare

if TYPE_CHECKING:
    from ..plan import Plan
    from ..track import Track
    from .cell import History

TENSORS = (
    "omega", "turning", "errors", "finite", "usable", "blind", "corrections", "changes", "sizes",
)  # fmt: skip


@dataclass
class Record:
    """What a run writes down as it goes: host numbers, and small tensors left where they are."""

    plan: Plan
    levels: Sequence[Track] | None = None  # what the outputs say about the data, where it is known
    corrects: bool = False  # cells are put right at their ends
    queried: list[int] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)  # queried though the plan did not ask for it
    omega: dict[int, list[Tensor | None]] = field(default_factory=dict)
    source: dict[int, tuple[int, ...]] = field(default_factory=dict)  # the anchors behind it
    turning: dict[int, list[Tensor | None]] = field(default_factory=dict)
    errors: dict[int, list[Tensor]] = field(default_factory=dict)
    finite: dict[int, list[Any]] = field(default_factory=dict)  # the outputs
    usable: dict[int, list[Tensor | None]] = field(default_factory=dict)  # the innovations
    blind: dict[int, list[Tensor | None]] = field(default_factory=dict)  # behind the mask
    corrections: dict[int, list[Tensor | None]] = field(default_factory=dict)  # ‖d‖/‖z_k‖
    changes: dict[int, list[Tensor | None]] = field(default_factory=dict)  # S, P, D of every slot,
    # of the outputs as evaluated
    sizes: dict[int, list[Tensor | None]] = field(default_factory=dict)  # ‖x̂₀‖² of every sample,
    # and how many coordinates that are
    reasons: list[tuple[int, str]] = field(default_factory=list)
    bytes_held: int = 0

    def exact(self, stage: int, on_grid: bool = True) -> None:
        planned = on_grid and stage in self.plan.anchors and stage not in self.queried
        (self.queried if planned else self.extra).append(stage)

    def observed(self, stage: int, history: History, errors: list[Tensor] | None) -> None:
        self.exact(stage)
        angles = history.turning() if len(history.seen) > 1 else [None for _ in history.slots]
        self.turning[stage] = numbers(angles)  # a regime's first anchor has no innovation
        self.finite[stage] = [slot.exact for slot in history.slots]
        self.usable[stage] = [slot.finite for slot in history.slots]
        self.blind[stage] = [slot.blind for slot in history.slots]
        none = (None, None, None)
        self.changes[stage] = numbers([t for s in history.slots for t in s.evaluated or none])
        if any(slot.correction is not None for slot in history.slots):
            self.corrections[stage] = [slot.correction for slot in history.slots]
        self.bytes_held = max(self.bytes_held, history.bytes)
        if errors is not None:
            self.errors[stage] = errors

    def predicted(self, stage: int, history: History) -> None:
        self.omega[stage] = numbers(history.omega_at(stage))
        self.source[stage] = history.source

    def fall_back(self, n: int, reason: str) -> None:
        self.reasons.append((n, reason))

    @property
    def size(self) -> tuple[int, ...]:
        """Grows with everything that is written down."""
        lists = (self.queried, self.extra, self.omega, self.errors, self.reasons)
        return tuple(len(each) for each in lists)

    def explained(self, n: int) -> bool:
        return any(stage == n for stage, _ in self.reasons)


def numbers(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if t is None else bare(t) for t in tensors]


def on_host(record: Record, names: Sequence[str] = TENSORS) -> Record:
    """The record with its tensors on the host: one copy for all of a kind, and one wait."""
    return sent(record, names)()


def sent(record: Record, names: Sequence[str] = TENSORS) -> Callable[[], Record]:
    """Sends the tensors of a record to the host; what is returned waits for them, and reads."""
    columns = {name: getattr(record, name) for name in names}
    kinds: dict[tuple, list[Tensor]] = {}
    for t in {id(t): t for c in columns.values() for row in c.values() for t in row}.values():
        if t is not None and not t.is_meta and not t.is_cpu:
            kinds.setdefault((t.device, t.dtype), []).append(t)
    copies = [(same, ahead(torch.cat([t.flatten() for t in same]))) for same in kinds.values()]

    def read() -> Record:
        known: dict[int, Tensor] = {}
        for same, copy in copies:
            parts = copy().split([t.numel() for t in same])
            known.update({id(t): part.reshape(t.shape) for t, part in zip(same, parts)})
        return replace(
            record,
            **{
                name: {n: [known.get(id(t), t) for t in row] for n, row in column.items()}
                for name, column in columns.items()
            },
        )

    return read


def ahead(t: Tensor) -> Callable[[], Tensor]:
    """A copy that is on its way to the host; what is returned waits for it."""
    if not t.is_cuda:
        return t.cpu
    host, there = t.to("cpu", non_blocking=True), torch.cuda.Event()
    there.record(torch.cuda.current_stream(t.device))

    def wait() -> Tensor:
        there.synchronize()
        return host

    return wait
