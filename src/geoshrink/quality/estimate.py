"""About how far a run is from the full run, from what it saw at its anchors: no reference, no
profile.

Every cell (cells.py) leaves an error in the state at its end τ: where it was corrected,

    e² = (m·v·H·h^q)² + (I·c)²    h is the length of the next cell in y, over which the output that
                                  was evaluated at the predicted state is used

with v the slope and c the curvature of the outputs, H = |Σ c_n·(y_n − y_k)| and I as in cells.py;
where it was not, e² = ‖d‖² + (m·v·H·h^q)². The last cell, which nothing corrects, leaves l·v·H. An
error at τ ends as √G times itself, G = s²/((1 − τ)²s² + τ²), as if the data were Gaussian with
deviation s. With E² = Σ G·e²/‖x̂₀‖², the mean over slots, and N coordinates

    dB = A + B·10·log10(1/E² + f) + D·log10(N)

Direct step reduction with as many calls, P of T, holds each output over T/P stages:
E = (T/P − 1)·Σ √G·‖z_l − z_k‖·W/‖x̂₀‖, W the mean weight of a stage; its dB has the same form.
The constants are fitted to runs of our models and of others (benchmarks/quality_fit.py) and judged
on families left out (benchmarks/estimate.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..history.record import Record
from .cells import Array, Cell, Path, Slot, slots_of

#: What the estimate reads of a record.
NEEDED = ("omega", "changes", "sizes", "finite", "blind")


@dataclass(frozen=True)
class Constants:
    """Those of the formulas above: of runs whose cells are corrected, or are not."""

    a: float
    slope: float
    floor: float
    count: float
    spread: float
    last: float
    power: float
    moved: float
    direct_a: float
    direct_slope: float
    direct_floor: float
    direct_count: float
    direct_spread: float
    direct_budget: float
    between: float  # half of the band in which 90 % of the runs of families left out were,
    within: float  # √(between² + within²/samples)


CORRECTED = Constants(
    a=8.005, slope=1.036, floor=4.994, count=-2.661, spread=6.892,
    last=0.9381, power=1.305, moved=0.8021,
    direct_a=19.53, direct_slope=0.7343, direct_floor=0.158, direct_count=-4.476,
    direct_spread=4.96, direct_budget=8.285, between=5.186, within=5.89,
)  # fmt: skip
UNCORRECTED = Constants(
    a=15.19, slope=0.9408, floor=0.3883, count=-2.882, spread=8.572,
    last=0.7342, power=1.84, moved=0.812,
    direct_a=21.02, direct_slope=0.7534, direct_floor=0.1878, direct_count=-4.779,
    direct_spread=4.15, direct_budget=7.539, between=6.657, within=6.594,
)  # fmt: skip

#: A run is doubtful if it is not expected to be this many dB ahead of direct step reduction: so
#: that four of five runs behind it are found (benchmarks/estimate.md).
MARGIN = 4.0
#: N is taken to be no larger: the largest model of the fit has 110,592.
MOST_COORDINATES = 1e5
LEAST = 1e-12  # E²


@dataclass(frozen=True)
class Estimate:
    """About how far the result is from the full run: 10·log10(‖full run‖²/‖error‖²).

    db         mean over samples; infinite if the run is the full run, None if it is not known
    low, high  the band in which 90 % of the runs of models left out were
    samples    of each sample
    direct     what direct step reduction with as many calls is expected to have
    energy     10·log10 of the mean square of the data's coordinates, mean over samples
    psnr       of the pictures, for a host whose solver works on pixels from −1 to 1
    why        it is not known
    """

    db: float | None = None
    low: float | None = None
    high: float | None = None
    samples: tuple[float, ...] = ()
    direct: float | None = None
    energy: float | None = None
    psnr: float | None = None
    why: str | None = None

    @property
    def doubt(self) -> str | None:
        """Why the run is not to be trusted, or None."""
        if self.db is None or self.direct is None or self.db >= self.direct + MARGIN:
            return None
        return f"{self}, where direct step reduction is expected to have about {self.direct:.0f} dB"

    def of_pixels(self) -> Estimate:
        """The same for pictures whose pixels the solver works on, from −1 to 1."""
        if self.db is None or self.energy is None or not math.isfinite(self.db):
            return self
        return replace(self, psnr=self.db + 20 * math.log10(2) - self.energy)

    def __str__(self) -> str:
        if self.db is None or self.low is None or self.high is None:
            return f"distance to the full run unknown: {self.why}"
        if math.isinf(self.db):
            return "exact"
        line = f"about {self.db:.0f} dB to the full run ({self.low:.0f} to {self.high:.0f})"
        return line if self.psnr is None else f"{line}, PSNR of the pictures about {self.psnr:.0f}"


UNKNOWN = Estimate(why="nothing was run")
EXACT = Estimate(math.inf, math.inf, math.inf)
TWO_OUTPUTS = Estimate(why="a solver with two outputs a stage was not among those of the fit")


@np.errstate(all="ignore")  # what overflows is not finite, and is told
def estimate(record: Record) -> Estimate:
    """Of a run that has ended, from its record on the host."""
    why = unknown(record)
    if why is not None:
        return Estimate(why=why)
    if not record.omega:
        return EXACT
    constants, calls = constants_of(record), len(record.queried) + len(record.extra)
    slots = slots_of(record)
    db = decibels(slots, constants)
    direct = direct_decibels(slots, constants, calls, record.plan.steps)
    if not (np.isfinite(db).all() and np.isfinite(direct).all()):
        return Estimate(why="a statistic was not finite")
    mean, half = float(db.mean()), math.hypot(constants.between, constants.within / len(db) ** 0.5)
    energy = np.mean([10 * np.log10(slot.size / slot.count).mean() for slot in slots])
    return Estimate(
        mean, mean - half, mean + half, tuple(db.tolist()), float(direct.mean()), float(energy)
    )


def unknown(record: Record) -> str | None:
    """Why nothing can be said of a run."""
    plan, done = record.plan, {*record.queried, *record.extra, *record.omega}
    if not done:
        return "nothing was run"
    if plan.refine > 1:
        return "the run aims at the exact flow, not at the full run"
    if plan.steps - 1 not in done:
        return "the run has not come to its end"
    if not record.omega:
        return None
    if record.levels is None:
        return "the noise levels of the grid are not known"
    if 0 not in plan.blocks.dims:
        return f"blocks={plan.blocks} do not keep the samples apart"
    sizes = record.sizes.get(max(record.sizes, default=-1)) or [None]
    if any(size is None for size in sizes):
        return "the run was not given its state: run(n, evaluate, x)"
    changes = [t for row in record.changes.values() for t in row if t is not None]
    if any(t.is_meta for t in changes):
        return "there are no numbers on the meta device"
    samples = {size.shape[1:] for size in sizes if size is not None}
    alike = len(samples) == 1 and all(t.shape[:1] in samples for t in changes)
    if not alike or 0 in next(iter(samples)):
        return "the batch is empty, or was another one at some anchors"
    if not all(bool(flag.all()) for row in record.finite.values() for flag in row):
        return "an output was not finite"
    if any(b is not None and bool(b.any()) for row in record.blind.values() for b in row):
        return "the mask hides some samples altogether"
    if any(all(row[3 * i] is None for row in record.changes.values()) for i in range(len(sizes))):
        return "no anchor has another before it"
    return None


def constants_of(record: Record) -> Constants:
    return CORRECTED if record.corrects else UNCORRECTED


def decibels(slots: Sequence[Slot], p: Constants) -> Array:
    """dB to the full run, of each sample."""
    return told(np.mean([error(slot, p) for slot in slots], 0), count_of(slots), p)


def told(error: Array, count: Array, p: Constants) -> Array:
    """dB from E²."""
    ratio = 10 * np.log10(1 / np.maximum(error, LEAST) + p.floor)
    return p.a + p.slope * ratio + p.count * np.log10(np.minimum(count, MOST_COORDINATES))


def inverse(db: float, count: Array, p: Constants) -> Array:
    """The E² that has so many dB."""
    scale = p.count * np.log10(np.minimum(count, MOST_COORDINATES))
    return 1 / np.maximum(10 ** ((db - p.a - scale) / p.slope / 10) - p.floor, LEAST)


def count_of(slots: Sequence[Slot]) -> Array:
    return np.mean([slot.count for slot in slots], 0)


def error(slot: Slot, p: Constants) -> Array:
    """E² of a slot, of each sample."""
    path, total = slot.path, np.zeros_like(slot.size)
    for i, cell in enumerate(slot.cells):
        after = slot.cells[min(i + 1, len(slot.cells) - 1)]
        moved, rest = left(path, cell, latest(slot, i), p)
        total = total + moved * path.length(after.k, after.end) ** (2 * p.power) + rest
    return total / slot.size


def left(path: Path, cell: Cell, seen: Cell, p: Constants) -> tuple[Array, Array]:
    """G·e² of a cell in two parts: the first times h^2q, h the length of the next cell.

    seen   the cell that says how steep and curved the outputs are: itself, if its end was seen
    """
    assert seen.slope is not None and seen.curvature is not None
    g = growth(path.noise[cell.end], p.spread)
    held = g * (seen.slope * path.reach(cell.k, cell.end)) ** 2
    if cell.missed is None:
        return 0 * held, p.last**2 * held
    inside = path.inside(cell.k, cell.end) * seen.curvature
    return p.moved**2 * held, g * (inside if cell.corrected else cell.missed) ** 2


def latest(slot: Slot, i: int) -> Cell:
    """The latest cell up to the i-th whose end was seen; a regime's last is not."""
    before = [c for c in slot.cells[: i + 1] if c.missed is not None]
    return before[-1] if before else next(c for c in slot.cells if c.missed is not None)


def growth(noise: float, spread: float) -> float:
    return spread**2 / (((1 - noise) * spread) ** 2 + noise**2)


def direct_decibels(slots: Sequence[Slot], p: Constants, calls: int, steps: int) -> Array:
    """dB of direct step reduction with as many calls, of each sample."""
    total = np.mean([direct_error(slot, p) for slot in slots], 0)
    error = np.maximum(total * max(steps / calls - 1, 0.05), LEAST**0.5) ** 2
    count = np.log10(np.minimum(count_of(slots), MOST_COORDINATES))
    ratio = 10 * np.log10(1 / error + p.direct_floor)
    budget = p.direct_budget * math.log10(calls)
    return p.direct_a + p.direct_slope * ratio + p.direct_count * count + budget


def direct_error(slot: Slot, p: Constants) -> Array:
    path, total = slot.path, np.zeros_like(slot.size)
    for i, cell in enumerate(slot.cells):
        slope = latest(slot, i).slope
        assert slope is not None
        moved = slope * path.length(cell.k, cell.end)
        weight = path.mean_weight(cell.k, cell.end)
        total += growth(path.noise[cell.end], p.direct_spread) ** 0.5 * weight * moved
    return total / np.sqrt(slot.size)
