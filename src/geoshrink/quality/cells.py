"""What a run saw of its cells, as numbers on the host: by how much each was off, and how curved the
outputs were.

A cell lies between anchors k and l; j is the anchor before k. The three dot products at l give

    d = a·(z_l − z_k) − b·Δz    what the cell's prediction missed, in the state (correction.py)
    c = (z_l − z_k − λ·Δz)/((y_l − y_k)·(y_l − y_j))    half the curvature of the outputs in y

with y the auto mesh's coordinate. Lengths of the state are divided by α + σ, so that they mean the
same on every grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
from torch import Tensor

from ..history.record import Record
from ..meshes.auto import progress
from ..track import Track

Array = np.ndarray
TINY = 1e-30


@dataclass(frozen=True)
class Path:
    """The track of a slot as the estimate sees it; what it computes it remembers."""

    track: Track
    data_space: bool

    def __reduce__(self) -> tuple:  # what is remembered stays behind
        return Path, (self.track, self.data_space)

    @cached_property
    def y(self) -> Array:
        return progress(self.track.noise or ())

    @cached_property
    def noise(self) -> Array:
        return np.asarray(self.track.noise)

    @cached_property
    def weights(self) -> Callable[[int, int], Array]:
        """(k, end) → what the state at `end` owes to the outputs of the stages between, in units of
        α + σ.
        """
        levels = self.track.levels
        assert levels is not None

        def weights(k: int, end: int) -> Array:
            c = self.track.euler_weights(range(k + 1, end), self.data_space)[1]
            return np.asarray(c) / sum(levels[end])

        return cache(weights)

    def mean_weight(self, k: int, end: int) -> float:
        """The mean over the stages from k on of what the state at `end` owes to each."""
        return float(np.abs(self.weights(k - 1, end)).mean())

    def length(self, k: int, end: int) -> float:
        return float(self.y[end] - self.y[k])

    @cached_property
    def reach(self) -> Callable[[int, int], float]:
        """(k, end) → H = |Σ c_n·(y_n − y_k)|: what holding leaves of a cell, per slope."""
        return cache(
            lambda k, end: abs(float(self.weights(k, end) @ (self.y[k + 1 : end] - self.y[k])))
        )

    @cached_property
    def inside(self) -> Callable[[int, int], float]:
        """(k, end) → I = |Σ c_n·(y_n − y_k)·(y_l − y_n)|: what interpolation leaves of a cell, per
        curvature.
        """

        def inside(k: int, end: int) -> float:
            y = self.y[k + 1 : end]
            return abs(float(self.weights(k, end) @ ((y - self.y[k]) * (self.y[end] - y))))

        return cache(inside)

    def before(self, j: int | None, k: int) -> float:
        """y of the anchor before k; without one, as far before as the mesh assumes."""
        return float(self.y[k] - 1.0 if j is None else self.y[j])


@dataclass(frozen=True)
class Cell:
    """One cell of one slot; arrays have a number for each sample.

    missed     ‖d‖; None where no anchor ends the cell, or where it is the end of a regime
    curvature  ‖c‖, and slope, ‖z_l − z_k‖/(y_l − y_k), at l: None likewise
    corrected  whether the state was moved by d
    """

    j: int | None
    k: int
    end: int
    missed: Array | None
    curvature: Array | None
    slope: Array | None
    corrected: bool = False

    @property
    def skipped(self) -> int:
        return self.end - self.k - 1


@dataclass(frozen=True)
class Slot:
    """The cells of one output slot.

    size    ‖x̂₀‖² of each sample, and count, how many coordinates that are
    """

    path: Path
    cells: list[Cell]
    size: Array
    count: Array


def slots_of(record: Record) -> list[Slot]:
    """What a record on the host has seen of a run that has ended."""
    anchors = sorted(record.changes)
    pairs = list(zip([None, *anchors], anchors, [*anchors[1:], record.plan.steps]))
    sizes, found = record.sizes[max(record.sizes)], []
    for i, both in enumerate(sizes):
        assert both is not None
        size, count = array(both)
        path = path_of(record, i)
        cells = [cell_of(record, path, i, j, k, end, len(size)) for j, k, end in pairs]
        found.append(Slot(path, cells, np.maximum(size, TINY), count))
    return found


def path_of(record: Record, i: int) -> Path:
    assert record.levels is not None
    track = record.levels[i if len(record.levels) > 1 else 0]
    return known_path(track, record.plan.space == "data")


@lru_cache(maxsize=64)
def known_path(track: Track, data_space: bool) -> Path:
    return Path(track, data_space)


def cell_of(
    record: Record, path: Path, i: int, j: int | None, k: int, end: int, samples: int
) -> Cell:
    """The cell of slot i from anchor k to `end`; j is the anchor before."""
    j = j if has_innovation(record, k, i) else None
    changes = record.changes.get(end, [None] * (3 * i + 3))[3 * i : 3 * i + 3]
    if changes[0] is None:
        return Cell(j, k, end, None, None, None)
    S, P, D = (array(t) for t in changes)  # type: ignore[arg-type]
    y, c, clock = path.y, path.weights(k, end), record.plan.clock_of(i)
    a = sum(c_n * clock.share(n, k, end) for n, c_n in zip(range(k + 1, end), c))
    omega = [record.omega[n][i] if n in record.omega else None for n in range(k + 1, end)]
    b = sum((c_n * array(w) for c_n, w in zip(c, omega) if w is not None), np.zeros(1))
    gap, span = y[end] - y[k], y[k] - path.before(j, k)
    lam = gap / span if j is not None else 0.0
    missed = per_sample(a**2 * S - 2 * a * b * D + b**2 * P, samples)
    bent = per_sample(S - 2 * lam * D + lam**2 * P, samples)
    return Cell(
        j,
        k,
        end,
        np.sqrt(missed),
        np.sqrt(bent) / (gap * (gap + span)),
        np.sqrt(per_sample(S, samples)) / gap,
        record.corrects and record.corrections.get(end, [None] * (i + 1))[i] is not None,
    )


def has_innovation(record: Record, k: int, i: int) -> bool:
    """Whether Δz at anchor k is the step from the anchor before it."""
    changes = record.changes.get(k)
    return changes is not None and changes[3 * i] is not None


def per_sample(values: Array, samples: int) -> Array:
    """The sum over the blocks of each sample."""
    values = np.maximum(np.asarray(values, dtype=np.float64), 0.0)
    if values.ndim > 1:
        values = values.sum(tuple(range(1, values.ndim)))
    return np.broadcast_to(values, (samples,))


def array(t: Tensor) -> Array:
    return np.asarray(t.tolist(), dtype=np.float64)
