"""The anchor and the skipped stage in one pass each, for contiguous outputs with one coefficient
per sample.

Reductions are in two stages of fixed shape, without atomics, so equal inputs give equal bits: every
program adds up its part in float32 (float64 for such outputs), then one program per sample adds up
the parts in float64.

A kernel is compiled anew for every kind of argument it is given, in a tenth of a second, so what
differs from stage to stage (the place of ω in its table, the length of a cell) is kept out of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...rules import Rule
from ...rules.retention import Statistics
from ..correction import OUTLYING, Closing

BLOCK = 4096
MOST_PARTS = 4096
SUMS = 6  # ‖Δz‖², ⟨Δz, Δz⁻⟩, ‖ẑ − z‖², ‖z‖², how many coordinates are not finite, and ‖z_k‖²
SMALL = {"enable_fp_fusion": False}  # products are rounded, as torch rounds them
LAUNCH = {**SMALL, "num_warps": 8}
RETAINED = ("chordal", "time", "beta-kappa", "hold", "fixed", "linear")  # retain_kernel's branches
WIDE = {torch.float32: tl.float32, torch.float64: tl.float64}


class Anchor(NamedTuple):
    """What one pass over an anchor finds, per sample."""

    stats: Statistics
    usable: Tensor  # whether the innovation is finite
    error: Tensor  # ‖v̂ − v‖/‖v‖
    finite: Tensor  # whether the output is


@triton.jit(do_not_specialize=["omega", "parts"])
def anchor_kernel(
    v, z, dz, omega, sums, size, span, parts,
    FIRST: tl.constexpr, HOLD: tl.constexpr, STORE: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Δz ← v − z and z ← v for one part of one sample, unless they are still needed, and its share
    of the sums.

    A row is what one thread loads at once, so each thread adds up its own and keeps five numbers.
    """
    part, sample = tl.program_id(0), tl.program_id(1)
    S = tl.zeros((ROWS,), WIDE)
    D = tl.zeros((ROWS,), WIDE)
    E = tl.zeros((ROWS,), WIDE)
    V = tl.zeros((ROWS,), WIDE)
    N = tl.zeros((ROWS,), WIDE)
    Z = tl.zeros((ROWS,), WIDE)
    block = tl.arange(0, ROWS)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    w = tl.full((), 0.0, WIDE) if HOLD else tl.load(omega + sample).to(WIDE)
    for at in range(0, span, ROWS * VECTOR):
        index = part.to(tl.int64) * span + at + block
        inside = index < size
        place = sample.to(tl.int64) * size + index
        given = tl.load(v + place, mask=inside, other=0.0)
        new, old = given.to(WIDE), tl.load(z + place, mask=inside, other=0.0).to(WIDE)
        predicted = old
        held = (new - old).to(dz.dtype.element_ty)
        d = held.to(WIDE)
        if not FIRST:
            before = tl.load(dz + place, mask=inside, other=0.0).to(WIDE)
            D += tl.sum(d * before, 1)
            if not HOLD:
                predicted = (old + w * before).to(v.dtype.element_ty).to(WIDE)
        wrong = predicted - new
        S += tl.sum(d * d, 1)
        E += tl.sum(wrong * wrong, 1)
        V += tl.sum(new * new, 1)
        Z += tl.sum(old * old, 1)
        N += tl.sum(tl.where(tl.abs(new) < float("inf"), 0.0, 1.0).to(WIDE), 1)
        if STORE:
            tl.store(dz + place, held, mask=inside)
            tl.store(z + place, given, mask=inside)
    row = sums + sample * parts + part
    step = tl.num_programs(1) * parts
    tl.store(row, tl.sum(S, 0).to(tl.float64))
    tl.store(row + step, tl.sum(D, 0).to(tl.float64))
    tl.store(row + 2 * step, tl.sum(E, 0).to(tl.float64))
    tl.store(row + 3 * step, tl.sum(V, 0).to(tl.float64))
    tl.store(row + 4 * step, tl.sum(N, 0).to(tl.float64))
    tl.store(row + 5 * step, tl.sum(Z, 0).to(tl.float64))


@triton.jit(do_not_specialize=["before", "parts"])
def total_kernel(
    sums, before, found, flags, parts, FIRST: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """S, P, D and the self-check of one sample; no innovation where S is not finite."""
    sample, samples = tl.program_id(0), tl.num_programs(0)
    part = tl.arange(0, PARTS)
    row, step = sums + sample * parts + part, samples * parts
    S = tl.sum(tl.load(row, mask=part < parts, other=0.0), 0)
    D = tl.sum(tl.load(row + step, mask=part < parts, other=0.0), 0)
    E = tl.sum(tl.load(row + 2 * step, mask=part < parts, other=0.0), 0)
    V = tl.sum(tl.load(row + 3 * step, mask=part < parts, other=0.0), 0)
    N = tl.sum(tl.load(row + 4 * step, mask=part < parts, other=0.0), 0)
    P = tl.full((), 0.0, tl.float64) if FIRST else tl.load(before + sample).to(tl.float64)
    narrow = found.dtype.element_ty
    usable = tl.abs(S.to(narrow)) < float("inf")
    tl.store(found + sample, tl.where(usable, S, 0.0).to(narrow))
    tl.store(found + samples + sample, tl.where(usable, P, 0.0).to(narrow))
    tl.store(found + 2 * samples + sample, tl.where(usable, D, 0.0).to(narrow))
    tl.store(found + 3 * samples + sample, tl.sqrt(tl.where(E > 0, E / V, E)).to(narrow))
    tl.store(flags + sample, usable.to(tl.uint8))
    tl.store(flags + samples + sample, (N == 0).to(tl.uint8))


@triton.jit(do_not_specialize=["before", "parts", "table", "omega", "stages", "stride", "ahead"])
def close_kernel(
    sums, before, table, omega, ahead, limit, kept, caution, found, flags, weights, parts, stages,
    stride, FIRST: tl.constexpr, HOLD: tl.constexpr, SIZE: tl.constexpr, STAGES: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """total_kernel for a cell that is put right: what d is multiplied by, and S, P, D after it.

    weights[i] are f·a and f·b of part i of the solver's state: correction.Closing, in float64.
    """
    sample, samples = tl.program_id(0), tl.num_programs(0)
    part = tl.arange(0, PARTS)
    row, step = sums + sample * parts + part, samples * parts
    S = tl.sum(tl.load(row, mask=part < parts, other=0.0), 0)
    D = tl.sum(tl.load(row + step, mask=part < parts, other=0.0), 0)
    E = tl.sum(tl.load(row + 2 * step, mask=part < parts, other=0.0), 0)
    V = tl.sum(tl.load(row + 3 * step, mask=part < parts, other=0.0), 0)
    N = tl.sum(tl.load(row + 4 * step, mask=part < parts, other=0.0), 0)
    Z = tl.sum(tl.load(row + 5 * step, mask=part < parts, other=0.0), 0)
    P = tl.full((), 0.0, tl.float64) if FIRST else tl.load(before + sample).to(tl.float64)
    narrow = found.dtype.element_ty
    usable = tl.abs(S.to(narrow)) < float("inf")
    S = tl.where(usable, S, 0.0)
    P = tl.where(usable, P, 0.0)
    D = tl.where(usable, D, 0.0)
    stage = tl.arange(0, STAGES)
    w = tl.full((), 0.0, tl.float64)
    kept_omega = tl.zeros((STAGES,), tl.float64)
    if not HOLD:
        w = tl.load(ahead + sample).to(tl.float64)
        inside = stage < stages
        kept_omega = tl.load(omega + stage * samples + sample, mask=inside, other=0.0).to(
            tl.float64
        )
    a0 = tl.load(table + stages)
    b0 = tl.full((), 0.0, tl.float64)
    if not HOLD:
        b0 = tl.sum(tl.load(table + stage, mask=stage < stages, other=0.0) * kept_omega, 0)
    d2 = tl.maximum(a0 * a0 * S - 2 * a0 * b0 * D + b0 * b0 * P, 0.0)
    wrong = tl.maximum(S - 2 * w * D + w * w * P, 0.0)
    r2 = tl.where(S > 0, wrong / S, 0.0)
    f = tl.exp(-caution * tl.log(1 + r2))
    fine = usable & (d2 <= limit * limit * Z) & ((S > 0) | (caution == 0))
    f = tl.where(fine, f, 0.0)
    m = kept * f
    u = 1 + m * a0
    back = m * b0
    tl.store(
        found + sample, tl.maximum(u * u * S - 2 * u * back * D + back * back * P, 0.0).to(narrow)
    )
    tl.store(found + samples + sample, P.to(narrow))
    tl.store(found + 2 * samples + sample, (u * D - back * P).to(narrow))
    tl.store(found + 3 * samples + sample, tl.sqrt(tl.where(E > 0, E / V, E)).to(narrow))
    size = tl.sqrt(tl.where(Z > 0, Z, 1.0))
    tl.store(found + 4 * samples + sample, (f * tl.sqrt(d2) / size).to(narrow))
    tl.store(found + 5 * samples + sample, S.to(narrow))
    tl.store(found + 6 * samples + sample, D.to(narrow))
    tl.store(flags + sample, usable.to(tl.uint8))
    tl.store(flags + samples + sample, (N == 0).to(tl.uint8))
    for i in tl.static_range(SIZE):
        b = tl.full((), 0.0, tl.float64)
        if not HOLD:
            at = table + i * stride + stage
            b = tl.sum(tl.load(at, mask=stage < stages, other=0.0) * kept_omega, 0)
        own = tl.load(table + i * stride + stages)
        tl.store(weights + 2 * i * samples + sample, (f * own).to(narrow))
        tl.store(weights + (2 * i + 1) * samples + sample, (f * b).to(narrow))


@triton.jit(do_not_specialize=["weights"])
def move_kernel(
    v, z, dz, t, moved, out, weights, flags, kept, received, size,
    FIRST: tl.constexpr, STATE: tl.constexpr, LAST: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """moved ← t + d for a part of the solver's state; with the last one, what is received and kept:
    out ← v + received·d, Δz ← v − z + kept·d, z ← v + kept·d.
    """
    sample, samples = tl.program_id(1), tl.num_programs(1)
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    place = sample.to(tl.int64) * size + index
    usable = tl.load(flags + sample) != 0
    new = tl.load(v + place, mask=inside, other=0.0).to(WIDE)
    step = new - tl.load(z + place, mask=inside, other=0.0).to(WIDE)
    d = tl.load(weights + sample).to(WIDE) * step
    if not FIRST:
        before = tl.load(dz + place, mask=inside, other=0.0).to(WIDE)
        d = d - tl.load(weights + samples + sample).to(WIDE) * before
    d = tl.where(usable, d, 0.0)
    if STATE:
        value = tl.load(t + place, mask=inside, other=0.0).to(WIDE) + d
        tl.store(moved + place, value.to(moved.dtype.element_ty), mask=inside)
    if LAST:
        tl.store(out + place, (new + received * d).to(out.dtype.element_ty), mask=inside)
        held = tl.where(usable, step + kept * d, 0.0)
        tl.store(dz + place, held.to(dz.dtype.element_ty), mask=inside)
        tl.store(z + place, (new + kept * d).to(z.dtype.element_ty), mask=inside)


@triton.jit
def clear_kernel(dz, flags, size, span, BLOCK: tl.constexpr):
    """Δz ← 0 in the samples without an innovation; the others are left at once."""
    part, sample = tl.program_id(0), tl.program_id(1)
    if tl.load(flags + sample) == 0:
        for at in range(0, span, BLOCK):
            index = part.to(tl.int64) * span + at + tl.arange(0, BLOCK)
            zero = tl.zeros((BLOCK,), dz.dtype.element_ty)
            tl.store(dz + sample.to(tl.int64) * size + index, zero, mask=index < size)


@triton.jit(do_not_specialize=["S", "P", "D", "table", "stages", "stride"])
def retain_kernel(
    S, P, D, table, omega, turned, stages, stride, value, beta, kappa, eps_s,
    RULE: tl.constexpr, SIGNED: tl.constexpr, CLAMP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """sin²θ of one sample, and ω of every stage of the cell: retention.retention, in float64."""
    sample, samples = tl.program_id(0), tl.num_programs(0)
    s = tl.load(S + sample).to(tl.float64)
    p = tl.load(P + sample).to(tl.float64)
    d = tl.load(D + sample).to(tl.float64)
    cosine = d / (tl.sqrt(s) * tl.sqrt(p))
    sin2 = tl.where(p > 0, tl.minimum(tl.maximum(1 - cosine * cosine, 0.0), 1.0), 1.0)
    sin2 = tl.where(s > 0, sin2, 0.0)
    tl.store(turned + sample, sin2.to(turned.dtype.element_ty))
    stage = tl.arange(0, STAGES)
    rho = tl.load(table + stage, mask=stage < stages, other=0.0).to(tl.float64)
    reach = tl.load(table + stride + stage, mask=stage < stages, other=0.0).to(tl.float64)
    exposure = rho * rho * sin2
    if RULE == "hold":
        w = exposure * 0.0
    elif RULE == "fixed":
        w = exposure * 0.0 + value
    elif RULE == "linear":
        w = reach
    elif RULE == "beta-kappa":
        w = tl.where(s > 0, beta / (1 + kappa * exposure), 0.0)
    elif RULE == "chordal":
        w = tl.where(s > 0, s / (s * (1 + exposure) + eps_s), 0.0)
    elif RULE == "time":
        w = tl.where(s > 0, reach * (s / (s * (1 + exposure) + eps_s)), 0.0)
    if CLAMP:
        w = tl.minimum(tl.maximum(w, 0.0), 1.0)
    if SIGNED:
        w = tl.where(d > 0, w, 0.0)
    w = tl.where(tl.abs(w) < float("inf"), w, 0.0).to(omega.dtype.element_ty)
    tl.store(omega + stage * samples + sample, w, mask=stage < stages)


@triton.jit(do_not_specialize=["omega"])
def combine_kernel(
    out, x, z, dz, omega, a, c, size,
    MOVES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out ← z + ω·Δz, or a·x + c·z + ω·Δz."""
    sample = tl.program_id(1)
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    place = sample.to(tl.int64) * size + index
    w = tl.load(omega + sample).to(WIDE)
    value = tl.load(z + place, mask=inside, other=0.0).to(WIDE)
    if MOVES:
        value = a * tl.load(x + place, mask=inside, other=0.0).to(WIDE) + c * value
    value += w * tl.load(dz + place, mask=inside, other=0.0).to(WIDE)
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)


def layout(size: int) -> tuple[int, int]:
    """(parts of a sample, coordinates in each): a function of the size alone."""
    parts = min(MOST_PARTS, triton.cdiv(size, BLOCK))
    span = triton.cdiv(triton.cdiv(size, parts), BLOCK) * BLOCK
    return triton.cdiv(size, span), span


def anchor(
    v: Tensor,
    z: Tensor,
    dz: Tensor,
    omega: Tensor | None,
    before: Tensor | None,
    wide: torch.dtype,
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> Anchor:
    """Takes v into z and Δz, in place. `before` is S of the last innovation, None at the first;
    `reduce` adds the sums of other shards.
    """
    samples, size = len(v), v[0].numel()
    parts, span = layout(size)
    found = torch.empty(4, samples, dtype=wide, device=v.device)
    flags = torch.empty(2, samples, dtype=torch.uint8, device=v.device)
    first = before is None
    with torch.cuda.device_of(v):
        total = add_up(v, z, dz, omega, first, wide, reduce, store=True)
        total_kernel[(samples,)](
            total, found if first else before, found, flags, total.shape[2],
            FIRST=first, PARTS=MOST_PARTS, **SMALL,
        )  # fmt: skip
        clear_kernel[(parts, samples)](dz, flags, size, span, BLOCK=BLOCK, **LAUNCH)
    S, P, D, error = found.unbind()
    usable, finite = flags.view(torch.bool).unbind()
    return Anchor(Statistics(S, P, D), usable, error, finite)


def add_up(
    v: Tensor,
    z: Tensor,
    dz: Tensor,
    omega: Tensor | None,
    first: bool,
    wide: torch.dtype,
    reduce: Callable[[Tensor], Tensor] | None,
    store: bool,
) -> Tensor:
    """The sums over every part of every sample; over whole samples where shards are added."""
    samples, size = len(v), v[0].numel()
    parts, span = layout(size)
    sums = torch.empty(SUMS, samples, parts, dtype=torch.float64, device=v.device)
    vector = 16 // v.element_size()
    anchor_kernel[(parts, samples)](
        v, z, dz, sums if omega is None else omega, sums, size, span, parts,
        FIRST=first, HOLD=omega is None, STORE=store, WIDE=WIDE[wide],
        ROWS=BLOCK // vector, VECTOR=vector, **LAUNCH,
    )  # fmt: skip
    return sums if reduce is None else reduce(sums.sum(2, keepdim=True))


def close(
    v: Tensor,
    z: Tensor,
    dz: Tensor,
    omega: Tensor | None,
    before: Tensor | None,
    wide: torch.dtype,
    reduce: Callable[[Tensor], Tensor] | None,
    closing: Closing,
    state: Sequence[Tensor | None],
) -> tuple[Anchor, Tensor, list[Tensor | None], Tensor, Statistics]:
    """anchor() for a cell that is put right: (what it finds, what the solver receives, the solver's
    state, how far x was moved, S, P, D before that). z and Δz change in place.
    """
    samples, size = len(v), v[0].numel()
    first, count = before is None, len(closing.a)
    held = first or closing.omega is None
    found = torch.empty(7, samples, dtype=wide, device=v.device)
    flags = torch.empty(2, samples, dtype=torch.uint8, device=v.device)
    weights = torch.empty(count, 2, samples, dtype=wide, device=v.device)
    stages = closing.table.shape[1] - 1
    out, moved = torch.empty_like(v), list(state)
    with torch.cuda.device_of(v):
        total = add_up(v, z, dz, omega, first, wide, reduce, store=False)
        close_kernel[(samples,)](
            total, found if first else before, closing.table, found if held else closing.omega,
            found if omega is None else omega, OUTLYING * closing.limit, closing.kept,
            closing.caution,
            found, flags, weights, total.shape[2], stages, closing.table.stride(0),
            FIRST=first, HOLD=held, SIZE=count, STAGES=max(64, triton.next_power_of_2(stages)),
            PARTS=MOST_PARTS, **SMALL,
        )  # fmt: skip
        moving = [i for i, t in enumerate(state) if t is not None and not closing.idle[i]]
        order = [*(i for i in moving if i), 0]  # x last: z and Δz change with it
        for i in order:
            t = state[i] if i in moving else None
            moved[i : i + 1] = [torch.empty_like(t)] if t is not None else moved[i : i + 1]
            move_kernel[(triton.cdiv(size, BLOCK), samples)](
                v, z, dz, v if t is None else t, v if t is None else moved[i], out, weights[i],
                flags, closing.kept, closing.received or 0.0, size,
                FIRST=held, STATE=t is not None, LAST=i == 0, WIDE=WIDE[wide], BLOCK=BLOCK,
                **LAUNCH,
            )  # fmt: skip
    S, P, D, error, correction, S0, D0 = found.unbind()
    usable, finite = flags.view(torch.bool).unbind()
    anchor = Anchor(Statistics(S, P, D), usable, error, finite)
    return anchor, out, moved, correction, Statistics(S0, P, D0)


def retains(rule: Rule, stats: Statistics) -> bool:
    """Whether retain() knows this rule."""
    plain = not rule.eps_a and not rule.eps_p and stats.S.dtype == torch.float32
    return plain and rule.form.kernel in RETAINED


def retain(rule: Rule, stats: Statistics, table: Tensor) -> tuple[Tensor, Tensor]:
    """(ω of every stage and sample, sin²θ of every sample) from ρ and λ of the stages."""
    samples, stages = len(stats.S), table.shape[1]
    omega, turned = stats.S.new_empty(stages, samples), torch.empty_like(stats.S)
    with torch.cuda.device_of(omega):
        retain_kernel[(samples,)](
            *stats, table, omega, turned, stages, table.stride(0),
            rule.value, rule.beta, rule.kappa, rule.eps_s,
            RULE=rule.form.kernel, SIGNED=rule.signed, CLAMP=rule.clamp,
            STAGES=max(64, triton.next_power_of_2(stages)), **SMALL,
        )  # fmt: skip
    return omega, turned


def combine(
    z: Tensor, dz: Tensor, omega: Tensor, x: Tensor | None = None, a: float = 1.0, c: float = 1.0
) -> Tensor:
    """z + ω·Δz in the type of z, or a·x + c·z + ω·Δz in that of x: a fresh tensor."""
    out = torch.empty_like(z if x is None else x)
    wide = torch.promote_types(torch.promote_types(z.dtype, out.dtype), torch.float32)
    samples, size = len(z), z[0].numel()
    with torch.cuda.device_of(out):
        combine_kernel[(triton.cdiv(size, BLOCK), samples)](
            out, z if x is None else x, z, dz, omega, float(a), float(c), size,
            MOVES=x is not None, WIDE=WIDE[wide], BLOCK=BLOCK, **LAUNCH,
        )  # fmt: skip
    return out


def check(dtype: torch.dtype, device: torch.device) -> None:
    """Compiles what a run needs on the smallest case, so that what is missing shows at once."""
    v = torch.ones(1, 16, dtype=dtype, device=device)
    wide = torch.promote_types(dtype, torch.float32)
    stats = anchor(v, v.clone(), v.clone(), None, None, wide).stats
    if retains(Rule(), stats):
        retain(Rule(), stats, torch.ones(2, 2, dtype=wide, device=device))
    omega = torch.ones(1, dtype=wide, device=device)
    anchor(v, v.clone(), v.clone(), omega, stats.S, wide)
    combine(v, v, omega)
