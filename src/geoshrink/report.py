"""Report: what was queried, what was predicted and how, and how far the run could be trusted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from .history import Record, on_host
from .meshes import retention_floor
from .quality.estimate import UNKNOWN, Estimate, estimate

NOT_FINITE = "the model's output was not finite: its history restarts"
ASTRAY = "the output of a skipped stage was not given to the solver: what became of it is not known"
OVERFLOWS = "the change since the last anchor overflows: it is not kept"
ADVICE = "fewer steps may do as well; compare them, or give it a larger budget or less guidance"
ADVICE_BLIND = "do not trust this run; give it a mask that shows some of every sample, or none"


@dataclass(frozen=True)
class Stage:
    """One stage of one output slot; None where a number does not apply. Means are over samples and
    blocks.
    """

    stage: int
    slot: int
    sigma: float
    exact: bool
    omega: float | None = None  # the fraction of Δv that was kept (predicted stages)
    horizon: float | None = None  # ρ (predicted stages)
    turning: float | None = None  # sin²θ (anchors with an innovation)
    error: float | None = None  # self-check: ‖predicted − exact‖/‖exact‖ (anchors with a history)
    worst_error: float | None = None  # the same, of the worst sample
    correction: float | None = None  # how far the cell before was put right: ‖d‖/‖z_k‖ (anchors)


@dataclass(frozen=True)
class Report:
    """What happened in one run. print(report) shows it as a small table; to_dict() is plain data.

    plan        the plan of the run, in words
    steps       how many stages the run has
    queried     the stages at which the plan asked for the model, as far as the run has come
    extra       further queries that the plan did not foresee ("10 + 1"); `reasons` says why
    stages      one Stage for each stage and output: whether it was exact, ω, ρ, turning, self-check
    reasons     (stage, what happened): fall-backs, restarts, outputs that were not finite
    bytes_held  the most memory that the history took
    regimes     the stages at which guidance, expert or conditioning was planned to change
    forwards    how often a network really ran in the loop: every call of each of the denoisers, so
                two for branches of guidance that are calls of their own, for the pair of an order-2
                solver, for a ControlNet and its U-Net. Calls outside the loop (an inversion before
                it, a callback's own) are not in it. None where nobody counts: Run and
                sample(), but that counts Heun's calls of velocity
    blind       how many samples the mask hides altogether: nothing is known of them
    certificate  bound on ρ of the paper's mesh; None for other anchors
    floor       the least ω of a stage with an innovation, where the rules promise one
    estimate    about how far the result is from the full run, or why that is not known
    """

    plan: str
    steps: int
    queried: tuple[int, ...]
    extra: tuple[int, ...]
    stages: tuple[Stage, ...]
    reasons: tuple[tuple[int, str], ...]
    bytes_held: int
    certificate: float | None
    floor: float | None
    regimes: tuple[int, ...] = ()
    forwards: int | None = None
    blind: int = 0
    estimate: Estimate = UNKNOWN

    @classmethod
    def of(cls, record: Record) -> Report:
        record, plan = on_host(record), record.plan
        reasons = list(record.reasons)
        reasons += not_finite(record)
        stage, blind = hidden(record)
        if blind:
            reasons.append((stage, f"the mask hides {blind} of the samples: they are held blindly"))
        if plan.mesh.startswith("every stage:"):
            reasons.append((0, f"{plan.mesh.removeprefix('every stage: ')}, so all are queried"))
        rows = [row(record, n, s) for n in range(plan.steps) for s in range(slots(record, n))]
        return cls(
            plan=str(plan),
            steps=plan.steps,
            queried=tuple(record.queried),
            extra=tuple(record.extra),
            stages=tuple(r for r in rows if r is not None),
            reasons=tuple(sorted(reasons)),
            bytes_held=record.bytes_held,
            certificate=plan.certificate,
            floor=plan.floor if plan.keeps_floor else None,
            regimes=plan.grid.regimes,
            blind=blind,
            estimate=estimate(record),
        )

    @property
    def evaluations(self) -> int:
        """How many stages were really queried; `forwards` says how many calls that took."""
        return len(self.queried) + len(self.extra)

    @property
    def predicted(self) -> tuple[int, ...]:
        """The stages at which the model was not asked."""
        return tuple(dict.fromkeys(s.stage for s in self.stages if not s.exact))

    @property
    def self_check(self) -> float | None:
        """The mean self-check of the anchors; the first two of each slot are too close to count."""
        return late_errors((s.slot, s.error) for s in self.stages)

    @property
    def estimated_db(self) -> float | None:
        """About how far the result is from the full run, 10·log10(‖full run‖²/‖error‖²) in what the
        solver sees, mean over samples; infinite if every stage was queried, None if it is not
        known. `estimate` has the band, each sample, and why.
        """
        return self.estimate.db

    @property
    def doubtful(self) -> bool:
        """Whether the result is not to be trusted: direct step reduction with as many calls is
        expected to be as close to the full run, or something was not finite or hidden.
        """
        return self.doubt is not None

    @property
    def doubt(self) -> str | None:
        """Why the result is not to be trusted, and what to do."""
        if self.blind:
            return f"quality unknown: {ADVICE_BLIND}"
        if self.predicted and any(why == NOT_FINITE for _, why in self.reasons):
            return "an output was not finite: look at the model before the budget"
        if any(why == ASTRAY for _, why in self.reasons):
            return "the host uses outputs by itself: run it without geoshrink"
        if self.predicted and any(why == OVERFLOWS for _, why in self.reasons):
            return "outputs are too large for the statistics: look at the model before the budget"
        return f"{self.estimate.doubt}: {ADVICE}" if self.estimate.doubt else None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        return asdict(self)

    def summary(self) -> str:
        """One line: 10 + 1 of 50 stages exact, 39 predicted."""
        if not self.steps:
            return "not accelerated"
        count = f"{len(self.queried)}" + (f" + {len(self.extra)}" if self.extra else "")
        line = f"{count} of {self.steps} stages exact, {len(self.predicted)} predicted"
        as_many = self.forwards in (None, self.evaluations)
        return line if as_many else f"{line}; {self.forwards} forwards"

    def __str__(self) -> str:
        facts = []
        if self.floor is not None:
            facts.append(f"retention floor on this grid {self.floor:.3f}")
        if self.certificate is not None:
            promised = f" (floor {retention_floor(self.certificate):.3f})" if facts else ""
            facts.append(f"Γ̂ in stage index {self.certificate:.2f}{promised}")
        facts.append(f"{size(self.bytes_held)} held")
        lines = [self.summary(), str(self.estimate), f"plan: {self.plan}"]
        if self.regimes:
            spans = pairwise((0, *self.regimes, self.steps))
            lines.append("regimes: stages " + ", ".join(f"{a}–{b - 1}" for a, b in spans))
        lines.append("; ".join(facts))
        corrected = any(s.correction is not None for s in self.stages)
        column = "  corrected" if corrected else ""
        lines += [f"  anchor       σ   sin²θ  self-check{column}   then skipped, ω"]
        for slot in sorted({s.slot for s in self.stages}):
            own = [s for s in self.stages if s.slot == slot]
            if slot:
                lines.append(f"  slot {slot}")
            for i, anchor in enumerate(own):
                if anchor.exact:
                    cell = [s.omega for s in own[i + 1 : next_exact(own, i)]]
                    kept = [w for w in cell if w is not None]
                    lines.append(anchor_line(anchor, kept, corrected))
        if self.doubt:
            lines.append(f"  {self.doubt}")
        return "\n".join(lines + [f"  stage {n}: {reason}" for n, reason in self.reasons])


def self_check(record: Record) -> float | None:
    """What the report would say, from the errors alone."""
    rows = (enumerate(row) for row in record.errors.values())
    return late_errors((slot, mean(error)) for row in rows for slot, error in row)


def late_errors(errors: Iterable[tuple[int, float | None]]) -> float | None:
    """The mean of (slot, error), without the first two of each slot."""
    slots: dict[int, list[float]] = {}
    for slot, error in errors:
        if error is not None:
            slots.setdefault(slot, []).append(error)
    late = [error for own in slots.values() for error in own[2:]]
    return sum(late) / len(late) if late else None


def not_finite(record: Record) -> list[tuple[int, str]]:
    """Outputs that were not finite, and innovations too large for the statistics."""
    reasons, before = [], True
    for stage, outputs in record.finite.items():
        fine = all(flag.is_meta or bool(flag.all()) for flag in outputs)
        innovations = [flag for flag in record.usable[stage] if flag is not None]
        usable = all(flag.is_meta or bool(flag.all()) for flag in innovations)
        if not fine:
            reasons.append((stage, NOT_FINITE))
        elif before and not usable:
            reasons.append((stage, OVERFLOWS))
        before = fine
    return reasons


def hidden(record: Record) -> tuple[int, int]:
    """(the first anchor that knows, how many samples the mask hides altogether)."""
    known = [(n, b) for n, row in record.blind.items() for b in row if b is not None]
    counts = [(n, 0 if b.is_meta else int(b.sum())) for n, b in known]
    return next(((n, count) for n, count in counts if count), (0, 0))


def slots(record: Record, n: int) -> int:
    return len(record.turning.get(n) or record.omega.get(n) or record.plan.grid.tracks)


def row(record: Record, n: int, slot: int) -> Stage | None:
    track = record.plan.track(slot)
    sigma = track.sigmas[n]
    if n in record.omega and n not in record.turning:
        omega = record.omega[n][slot]
        source = record.source[n]
        clock = record.plan.clock_of(slot)
        rho = clock.horizon(n, *source) if source else None
        return Stage(n, slot, sigma, False, 0.0 if omega is None else mean(omega), rho)
    if n in record.turning:
        turn, errors = record.turning[n][slot], record.errors.get(n)
        moved = (record.corrections.get(n) or {slot: None})[slot]
        return Stage(
            n,
            slot,
            sigma,
            True,
            turning=None if turn is None else mean(turn),
            error=None if errors is None else mean(errors[slot]),
            worst_error=None if errors is None else largest(errors[slot]),
            correction=None if moved is None else mean(moved),
        )
    return Stage(n, slot, sigma, True) if n in record.queried or n in record.extra else None


def mean(t: Tensor) -> float | None:
    """Over what is finite; None where nothing is, or where there is nothing to read."""
    good = finite(t)
    return float(good.mean()) if good.size else None


def largest(t: Tensor) -> float | None:
    good = finite(t)
    return float(good.max()) if good.size else None


def finite(t: Tensor) -> np.ndarray:
    values = np.array([] if t.is_meta else t.tolist(), dtype=np.float64)
    return values[np.isfinite(values)]


def next_exact(stages: list[Stage], i: int) -> int:
    return next((k for k in range(i + 1, len(stages)) if stages[k].exact), len(stages))


def anchor_line(s: Stage, cell: list[float], corrected: bool = False) -> str:
    turn = "      –" if s.turning is None else f"{s.turning:7.3f}"
    check = "          –" if s.error is None else f"{100 * s.error:10.2f}%"
    skipped = "  –"
    if cell:
        low, high = f"{min(cell):.2f}", f"{max(cell):.2f}"
        skipped = f"{len(cell):3d}   {low}" + ("" if low == high else f"–{high}")
    if corrected:
        moved = "–" if s.correction is None else f"{100 * s.correction:.2f}%"
        check += f" {moved:>10}"
    return f"  {s.stage:6d} {s.sigma:7.4f} {turn} {check}   {skipped}"


def size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.1f} GB"
