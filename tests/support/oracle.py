"""An independent float64 statement of the method, which the tests take as the truth.

Written from the paper alone, with numpy and the standard library, and sharing no code with the
package: every formula is spelled out on explicit vectors, every exact output is kept, and samples
are visited one at a time. Slow and literal on purpose. Magnitudes of the float32 range are safe;
nothing here guards against float64 overflow or underflow.

Stages count forwards: stage n takes σ_n to σ_{n+1}, the first is n = 0, and a grid of T stages has
the T + 1 numbers σ_0 … σ_T. The paper counts t = T … 1, so its stage t is n = T − t here.
"""

import itertools
import math
from bisect import bisect_right
from decimal import Decimal, localcontext

import numpy as np

ANGULAR = ("chordal", "log", "exp", "time", "beta-kappa")
RULES = (*ANGULAR, "fixed", "hold", "linear")


# --- anchors ----------------------------------------------------------------------------------


def closure_root(total, budget):
    """The r ≥ 1 with 1 + Σ_{k=0}^{B−3} r^k = total, by bisection in 60 decimal digits.

    The left side grows with r from B − 1 at r = 1, so a root exists whenever total ≥ B − 1, and it
    is the only one. Paper: 'The Geometric Mesh at Fixed First Span and Coverage'.
    """
    if budget < 4 or not budget - 1 <= total < math.inf:
        raise ValueError(f"no root: total {total}, budget {budget}")
    with localcontext() as context:
        context.prec = 60
        goal, low = Decimal(float(total)), Decimal(1)
        high = goal  # 1 + (1 + r + …) already exceeds the total at r = total
        for _ in range(300):
            middle = (low + high) / 2
            reached = 1 + sum(middle**k for k in range(budget - 2))
            low, high = (middle, high) if reached < goal else (low, middle)
        return float((low + high) / 2)


def _positions(root, budget):
    """s̃_0 … s̃_{B−1} for a first gap of 1: 0, 1, then 1 + Σ_{k=0}^{q−2} r^k."""
    return [0.0, 1.0] + [1.0 + sum(root**k for k in range(q - 1)) for q in range(2, budget)]


def _project(continuous, stages):
    """Whole stages from continuous ones: 0, 1, 2 and T − 1 fixed, the others rounded half to even.

    Each interior one stays after its predecessor and leaves room for those still to come:
    s_q = min(T − B + q, max(s_{q−1} + 1, round(s̃_q))). Paper: 'Integer Projection of the
    Canonical Mesh'.
    """
    budget = len(continuous)
    chosen = [0, 1, 2]
    for q in range(3, budget - 1):
        chosen.append(min(stages - budget + q, max(chosen[-1] + 1, round(continuous[q]))))
    return (*chosen, stages - 1)


def _check_budget(stages, budget):
    if not stages >= budget >= 4:
        raise ValueError(f"needs T >= B >= 4, got T = {stages}, B = {budget}")


def geometric_anchors(T, B):
    """The B anchors among stages 0 … T − 1 whose gaps grow geometrically in stage index.

    No interior s̃_q is ever a tie: r is an algebraic integer, hence so is s̃_q, and a half is not.
    Paper: 'Budget-Optimal Geometric Anchoring' and 'Integer Projection of the Canonical Mesh'.
    """
    _check_budget(T, B)
    return _project(_positions(closure_root(T - 1, B), B), T)


def sigma_anchors(tau, B, stages=None):
    """The same mesh with gaps geometric in a progress coordinate instead of the stage index.

    `tau` is taken as a whole grid of T + 1 values, whose last (the end of the last stage) plays no
    part; give `stages` = T where only the T values at the stages are at hand. Gaps are measured as
    |τ_n − τ_0|: the first two equal d = |τ_1 − τ_0| and the last anchor is stage T − 1. If the way
    there is shorter than (B − 1)·d, growing gaps cannot close it and the index mesh is returned.
    Paper: the canonical mesh with a general first span d and length S; findings, sections 1 and 7.
    """
    T = len(tau) - 1 if stages is None else stages
    _check_budget(T, B)
    way = [abs(float(tau[n]) - float(tau[0])) for n in range(T)]
    if any(after <= before for before, after in itertools.pairwise(way)):
        raise ValueError("the progress coordinate must move strictly away from its first value")
    d = way[1]
    if way[T - 1] < (B - 1) * d:
        return geometric_anchors(T, B)
    root = closure_root(max(way[T - 1] / d, B - 1), B)
    return _project([_fractional_stage(way, d * s) for s in _positions(root, B)], T)


def _fractional_stage(way, position):
    """The index at which the broken line through (n, way_n) reaches `position`."""
    n = min(bisect_right(way, position) - 1, len(way) - 2)
    return n + (position - way[n]) / (way[n + 1] - way[n])


def tau(sigma, alpha):
    """Progress τ = σ/(α + σ) of noise scale σ at signal scale α; on flow grids, α = 1 − σ, it is σ.

    Findings, section 7.
    """
    return sigma / (alpha + sigma)


def certificate(anchors):
    """Γ̂: the largest ratio of a gap to the gap before it, over 2 ≤ j < B − 1.

    The range is empty for fewer than four anchors: nothing is certified then, and 1.0 is returned.
    Paper: 'Integer Projection of the Canonical Mesh'.
    """
    s = anchors
    ratios = [(s[j + 1] - s[j]) / (s[j] - s[j - 1]) for j in range(2, len(s) - 1)]
    return max(ratios, default=1.0)


# --- horizons and angles ----------------------------------------------------------------------


def horizon(sigmas, n, k, j):
    """ρ of stage n: from σ_k to the midpoint of the update, in units of σ_k − σ_j, with its sign.

    k is the latest anchor and j the one before. Paper: 'Geometric Retention from Exact Anchors'
    and 'Why the Update Midpoint Appears'.
    """
    midpoint = (sigmas[n] + sigmas[n + 1]) / 2
    return float((midpoint - sigmas[k]) / (sigmas[k] - sigmas[j]))


def reach(sigmas, n, k, j):
    """λ of stage n: from σ_k to the stage's own σ_n, in units of σ_k − σ_j.

    Paper: 'Innovation Retention and Time-Scaled Extrapolation'.
    """
    return float((sigmas[n] - sigmas[k]) / (sigmas[k] - sigmas[j]))


def _vector(array):
    return np.asarray(array, dtype=np.float64).ravel()


def _pair(dv, dv_prev):
    """Both innovations as float64 vectors; a missing Δv⁻ (two observations only) is zero."""
    dv = _vector(dv)
    return dv, np.zeros_like(dv) if dv_prev is None else _vector(dv_prev)


def _squared(vector):
    return float(np.dot(vector, vector))


def _along(dv, dv_prev, eps_p=0.0):
    """The part of Δv on the line of Δv⁻, D/(P + ε_p)·Δv⁻; zero where there is no such line."""
    if not dv_prev.any():
        return np.zeros_like(dv)
    return np.dot(dv, dv_prev) / (_squared(dv_prev) + eps_p) * dv_prev


def sin2(dv, dv_prev, eps_p=0.0, eps_a=0.0):
    """Squared sine of the acute angle between the lines of Δv and Δv⁻, in [0, 1].

    Plain: ‖P⊥Δv‖²/‖Δv‖², P⊥ removing the line of Δv⁻. With ε_p the residual
    r = Δv − D/(P + ε_p)·Δv⁻ takes the place of P⊥Δv; with ε_a the value is 1 − D²/(SP + ε_a). The
    two belong to different backends, so asking for both is an error. Δv⁻ = 0 gives 1: no direction
    supports Δv. Δv = 0 gives 0, a convention of this file. Paper: 'Regularization and Degenerate
    Innovations'.
    """
    if eps_p and eps_a:
        raise ValueError("eps_p and eps_a regularise two different forms: give one")
    dv, dv_prev = _pair(dv, dv_prev)
    if not dv.any():
        return 0.0
    if eps_a:
        energies = _squared(dv) * _squared(dv_prev)
        value = 1.0 - float(np.dot(dv, dv_prev)) ** 2 / (energies + eps_a)
    else:
        value = _squared(dv - _along(dv, dv_prev, eps_p)) / _squared(dv)
    return min(1.0, max(0.0, value))


def _angle(dv, dv_prev, eps_p=0.0, eps_a=0.0):
    """θ in [0, π/2], the angle whose squared sine is `sin2`.

    Unregularised it comes from the two legs of the right triangle, ‖P⊥Δv‖ and ‖PΔv‖, because an
    arcsine loses half the digits near π/2. Paper: 'Relation to intrinsic projective geometry'.
    """
    if eps_p or eps_a or not np.any(dv):
        return math.asin(math.sqrt(sin2(dv, dv_prev, eps_p, eps_a)))
    dv, dv_prev = _pair(dv, dv_prev)
    along = _along(dv, dv_prev)
    return math.atan2(float(np.linalg.norm(dv - along)), float(np.linalg.norm(along)))


# --- coefficients -----------------------------------------------------------------------------


def retention(
    rule,
    dv,
    dv_prev,
    rho,
    lam,
    signed=False,
    value=None,
    beta=1.0,
    kappa=1.0,
    clamp=False,
    eps_p=0.0,
    eps_s=0.0,
    eps_a=0.0,
):
    """ω of one block: the multiple of Δv that a rule adds to the latest exact output.

    `signed` gives 0 unless ⟨Δv, Δv⁻⟩ > 0, whatever the rule (findings, section 1); `clamp` clips
    the result to [0, 1] last of all. ε_s enters the chordal and the time rule only.
    """
    dv, dv_prev = _pair(dv, dv_prev)
    if signed and np.dot(dv, dv_prev) <= 0.0:
        return 0.0
    omega = _rule(rule, dv, dv_prev, rho, lam, value, beta, kappa, eps_p, eps_s, eps_a)
    return min(1.0, max(0.0, omega)) if clamp else omega


def _rule(rule, dv, dv_prev, rho, lam, value, beta, kappa, eps_p, eps_s, eps_a):
    """The rules themselves, before `signed` and `clamp`.

    Paper: chordal, 'Geometric Retention from Exact Anchors'; its ε_s and Δv = 0, 'Regularization
    and Degenerate Innovations'; log and exp, 'Relation to intrinsic projective geometry'; time and
    linear, 'Innovation Retention and Time-Scaled Extrapolation'; beta-kappa, 'Sensitivity to
    reference amplitude'.
    """
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}")
    if rule in ANGULAR and not dv.any():
        return 0.0
    if rule == "chordal":
        return _chordal(dv, dv_prev, rho, eps_p, eps_s, eps_a)
    if rule == "time":
        return lam * _chordal(dv, dv_prev, rho, eps_p, eps_s, eps_a)
    if rule == "beta-kappa":
        return beta / (1.0 + kappa * rho**2 * sin2(dv, dv_prev, eps_p, eps_a))
    if rule == "log":
        return 1.0 / (1.0 + rho**2 * _angle(dv, dv_prev, eps_p, eps_a) ** 2)
    if rule == "exp":
        turned = abs(rho) * _angle(dv, dv_prev, eps_p, eps_a)
        return math.cos(turned) ** 2 if turned < math.pi / 2 else 0.0
    if rule == "fixed":
        if value is None:
            raise ValueError("the fixed rule needs a value")
        return float(value)
    return 0.0 if rule == "hold" else float(lam)


def _chordal(dv, dv_prev, rho, eps_p, eps_s, eps_a):
    """S/(S + ρ²N + ε_s) with N = S·sin²θ, that is 1/(1 + ρ²sin²θ) without regularisers."""
    S = _squared(dv)
    N = S * sin2(dv, dv_prev, eps_p, eps_a)
    return S / (S + rho**2 * N + eps_s)


def shared_retention(blocks):
    """The one chordal ω for blocks (Δv, Δv⁻, ρ) that must share it: ΣA/(ΣA + Σρ²N).

    A is a block's ‖Δv‖² and N its ‖P⊥Δv‖²; 0 where every Δv is zero. Paper: 'Blockwise Direct-Sum
    Extension'.
    """
    energy = penalty = 0.0
    for dv, dv_prev, rho in blocks:
        dv, dv_prev = _pair(dv, dv_prev)
        energy += _squared(dv)
        penalty += rho**2 * _squared(dv - _along(dv, dv_prev))
    return energy / (energy + penalty) if energy > 0.0 else 0.0


# --- prediction and the whole run -------------------------------------------------------------


def innovations(history):
    """(its anchor, the anchor before, Δv) for every two exact outputs in a row, in order."""
    return [(k, j, v - u) for (j, u), (k, v) in itertools.pairwise(history)]


def _omega(history, sigmas, n, rule, mask=None, lines=None, **options):
    """ω of skipped stage n for one sample, its statistics taken over `mask` alone.

    `lines` are the innovations known: by default those of the history. Where the latest ends
    before the latest exact output, it is another regime's, and half of ω is kept.
    """
    lines = innovations(history) if lines is None else lines
    if not lines:
        return 0.0
    inside = slice(None) if mask is None else np.asarray(mask, dtype=bool)
    (end, begin, dv), latest = lines[-1], history[-1][0]
    dv_prev = lines[-2][2][inside] if len(lines) > 1 else None
    span = sigmas[end] - sigmas[begin]
    rho = float(((sigmas[n] + sigmas[n + 1]) / 2 - sigmas[latest]) / span)
    lam = float((sigmas[n] - sigmas[latest]) / span)
    omega = retention(rule, dv[inside], dv_prev, rho, lam, **options)
    return omega if end == latest else 0.5 * omega


def predict(history, sigmas, n, rule="chordal", lines=None, **options):
    """v¹ + ω·Δv at skipped stage n, for one sample.

    `history` holds (stage, exact output) for every exact output of the regime, in order; a single
    one is held, unless `lines` has an innovation of the regime before. `mask`, a boolean array like
    the output, narrows the statistics and not the prediction; the other options are those of
    `retention`. Paper: 'Geometric Retention from Exact Anchors'.
    """
    history = [(k, np.array(v, dtype=np.float64)) for k, v in history]
    lines = innovations(history) if lines is None else lines
    latest = history[-1][1]
    if not lines:
        return latest
    return latest + _omega(history, sigmas, n, rule, lines=lines, **options) * lines[-1][2]


def euler_run(
    field,
    x,
    sigmas,
    anchors,
    rule="chordal",
    space="output",
    data=0.0,
    restarts=(),
    **options,
):
    """Every stage of the grid with Euler steps x ← x + (σ_{n+1} − σ_n)·v: the paper's algorithm.

    x has shape (samples, …), and each sample has its own history and coefficient. At an anchor
    v = field(x, σ_n); the anchors named in `restarts` begin a regime, which keeps the innovations
    of the one before if that had two exact outputs or more, and forgets them otherwise. With
    space='data' the histories hold q = x + (data − σ)·v, the state carried in a straight line to
    σ = data, and a predicted q̂ gives v̂ = (q̂ − x_n)/(data − σ_n) from the current state (findings,
    section 3). `mask` is like one sample, or like x with one mask per sample. Returns the final x,
    the v used at each stage, and {skipped stage: [ω of each sample]}.
    """
    x = np.array(x, dtype=np.float64)
    _check_run(len(sigmas) - 1, anchors, rule, space, restarts)
    histories, lines = [[] for _ in x], [[] for _ in x]
    used, omegas = [], {}
    for n in range(len(sigmas) - 1):
        to_data = data - sigmas[n]
        if n in restarts:
            lines = [own if len(seen) > 1 else [] for own, seen in zip(lines, histories)]
            histories = [[] for _ in x]
        if n in anchors:
            v = np.array(field(x, sigmas[n]), dtype=np.float64)
            for i, history in enumerate(histories):
                history.append((n, x[i] + to_data * v[i] if space == "data" else v[i].copy()))
                lines[i] += innovations(history[-2:])
        else:
            v, omegas[n] = np.empty_like(x), []
            for i, history in enumerate(histories):
                mine = {**_for_sample(options, i, x), "lines": lines[i]}
                omegas[n].append(_omega(history, sigmas, n, rule, **mine))
                guess = predict(history, sigmas, n, rule, **mine)
                v[i] = _velocity(guess, x[i], to_data) if space == "data" else guess
        used.append(v)
        x = x + (sigmas[n + 1] - sigmas[n]) * v
    return x, used, omegas


def corrected_run(
    field, x, sigmas, anchors, gain, rule="time", space="output", caution=0.0, signed=True
):
    """euler_run on a flow grid that falls to 0, with every cell put right at its end.

    At anchor l the stages between k and l are stepped once more from x_k, with outputs (or data
    predictions) interpolated between those of k and l. The state moves by the difference d, times
    (1 + r²)^−caution with r = ‖ẑ_l − z_l‖/‖z_l − z_k‖; x̂₀ = x − σ·v moves by gain(σ_l)·d. Returns
    the final x and {anchor: [d of each sample]}.
    """
    results, moves = [], {}
    for sample in np.array(x, dtype=np.float64):
        x, history, begin = sample, [], None
        for n in range(len(sigmas) - 1):
            if n in anchors:
                v = np.array(field(x[None], sigmas[n])[0], dtype=np.float64)
                z = x - sigmas[n] * v if space == "data" else v.copy()
                if history and n > history[-1][0] + 1:
                    k, z_k = history[-1]
                    guess = predict(history, sigmas, n, rule, signed=signed)
                    r2 = _squared((guess - z).ravel()) / _squared((z - z_k).ravel())
                    there = _interpolated(begin, k, n, z_k, z, sigmas, space)
                    d = (there - x) * (1 + r2) ** -caution
                    moves.setdefault(n, []).append(d)
                    x0 = x - sigmas[n] * v + gain(sigmas[n]) * d
                    x = x + d
                    v = (x - x0) / sigmas[n]
                    z = x0 if space == "data" else v
                history.append((n, z))
                begin = x + (sigmas[n + 1] - sigmas[n]) * v
            else:
                guess = predict(history, sigmas, n, rule, signed=signed)
                v = (x - guess) / sigmas[n] if space == "data" else guess
            x = x + (sigmas[n + 1] - sigmas[n]) * v
        results.append(x)
    return np.stack(results), moves


def _interpolated(x, k, end, z_k, z_end, sigmas, space):
    """x at stage `end`, from x at stage k + 1, under outputs on the line from z_k to z_end in σ."""
    for n in range(k + 1, end):
        z = z_k + (sigmas[n] - sigmas[k]) / (sigmas[end] - sigmas[k]) * (z_end - z_k)
        v = (x - z) / sigmas[n] if space == "data" else z
        x = x + (sigmas[n + 1] - sigmas[n]) * v
    return x


def _velocity(q, x, to_data):
    """The v whose straight line from x meets q at σ = data: (q − x)/(data − σ)."""
    if to_data == 0.0:
        raise ValueError("a stage at σ = data cannot be skipped in data space")
    return (q - x) / to_data


def _for_sample(options, i, x):
    """The options as sample i sees them: a mask shaped like the whole batch gives it its row."""
    mask = options.get("mask")
    if mask is None or np.ndim(mask) < x.ndim:
        return options
    return {**options, "mask": mask[i]}


def _check_run(stages, anchors, rule, space, restarts):
    if 0 not in anchors or not set(anchors) <= set(range(stages)):
        raise ValueError("anchors must be stages of the grid, stage 0 among them")
    if not set(restarts) <= set(anchors):
        raise ValueError("a restart must be an anchor")
    if rule not in RULES or space not in ("output", "data"):
        raise ValueError(f"unknown rule {rule!r} or space {space!r}")
