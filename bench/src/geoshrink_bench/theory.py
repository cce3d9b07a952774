"""The paper's bounds and certificates, one function per statement.

Pure functions of float64 arrays and Python floats; the label of each statement in the paper stands
in brackets. Stages are counted forward, stage 0 first, on the grid σ_0 … σ_T: the paper's t is our
T − n, its σ_{t−1} our σ_{n+1}, and its products over the stages below n are ours over the stages
after n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geoshrink.meshes import retention_floor as retention_floor  # eq:gs-retention-certificate

Vector = NDArray[np.float64]


def _vector(x: ArrayLike) -> Vector:
    return np.asarray(x, dtype=np.float64).ravel()


def _energy(x: Vector) -> float:
    return float(x @ x)


def _project(x: Vector, onto: Vector) -> Vector:
    return (x @ onto) / _energy(onto) * onto


def _unit(x: Vector, name: str) -> Vector:
    length = float(np.linalg.norm(x))
    if length == 0:
        raise ValueError(f"{name} is zero and spans no line")
    return x / length


# What a coefficient costs: the loss, the oracle, the best rule of one statistic.


def oracle_coefficient(dv: ArrayLike, innovation: ArrayLike) -> float:
    """c = ⟨Δv, I⟩ / ‖Δv‖², the coefficient that hindsight would choose [eq:gs-oracle-coefficient].

    `innovation` is I, the exact output at the stage minus the latest exact output.
    """
    dv, innovation = _vector(dv), _vector(innovation)
    if _energy(dv) == 0:
        raise ValueError("the innovation Δv is zero: every coefficient predicts the same")
    return float(dv @ innovation) / _energy(dv)


def directional_loss(omega: float, dv: ArrayLike, innovation: ArrayLike) -> tuple[float, float]:
    """‖ωΔv − I‖² = ‖P⊥I‖² + A(ω − c)², its two terms apart [prop:gs-loss].

    No coefficient reaches the first; the second, with A = ‖Δv‖², is what a coefficient pays.
    """
    dv, innovation = _vector(dv), _vector(innovation)
    if _energy(dv) == 0:
        return _energy(innovation), 0.0
    c = oracle_coefficient(dv, innovation)
    return _energy(innovation - c * dv), _energy(dv) * (omega - c) ** 2


def in_gain_region(omega: float, c: float) -> bool:
    """Whether ω in (0, 1) beats both holding (0) and full reuse (1): ω/2 < c < (1 + ω)/2.

    [eq:gs-gain-region]
    """
    return omega / 2 < c < (1 + omega) / 2


def conditional_optimum(dvs: Sequence[ArrayLike], innovations: Sequence[ArrayLike]) -> float:
    """One coefficient for many pairs: clip(E⟨Δv, I⟩ / E‖Δv‖²), the energy-weighted mean of c.

    [prop:gs-calibration] Where every Δv is zero the choice is immaterial, and 0 is returned.
    """
    pairs = [(_vector(a), _vector(b)) for a, b in zip(dvs, innovations, strict=True)]
    energy = sum(_energy(dv) for dv, _ in pairs)
    overlap = sum(float(dv @ innovation) for dv, innovation in pairs)
    return float(np.clip(overlap / energy, 0, 1)) if energy > 0 else 0.0


def conditional_optimum_by(
    R: ArrayLike, dvs: Sequence[ArrayLike], innovations: Sequence[ArrayLike]
) -> dict[float, float]:
    """The best rule that sees only R: the conditional optimum at each of its values.

    [eq:gs-conditional-optimum] A continuous statistic has to be binned first.
    """
    R = _vector(R)
    bins = {float(r): np.flatnonzero(r == R).tolist() for r in np.unique(R)}
    return {
        r: conditional_optimum([dvs[i] for i in members], [innovations[i] for i in members])
        for r, members in bins.items()
    }


# The chordal closure: transport the line, project there and back.


def chordal_transport(dv: ArrayLike, dv_prev: ArrayLike, rho: float) -> Vector:
    """ũ = (u − ρξ)/‖u − ρξ‖, with ξ = P_u⊥ u⁻: the line of Δv carried on by ρ [prop:gs-retention].

    u and u⁻ are the unit innovations, the sign of u⁻ such that ⟨u, u⁻⟩ ≥ 0.
    """
    u, u_prev = _unit(_vector(dv), "Δv"), _unit(_vector(dv_prev), "Δv⁻")
    if u @ u_prev < 0:
        u_prev = -u_prev
    return _unit(u - rho * (u_prev - _project(u_prev, onto=u)), "the transported direction")


def round_trip_retention(dv: ArrayLike, dv_prev: ArrayLike, rho: float) -> float:
    """ω in P_u P_ũ Δv = ωΔv: project Δv onto the transported line, and that back onto Δv.

    It equals 1/(1 + ρ² sin²θ) [thm:gs-projective-retention].
    """
    transported = chordal_transport(dv, dv_prev, rho)
    dv = _vector(dv)
    there = _project(dv, onto=transported)
    back = _project(there, onto=dv)
    return float(np.linalg.norm(back) / np.linalg.norm(dv))


def reference_coefficient(R: float, beta: float = 1.0, kappa: float = 1.0) -> float:
    """clip(β/(1 + κR)): retention if the reference is βΔv and the tangent is scaled by √κ.

    [eq:gs-general-reference-clipped] β = κ = 1 is the paper's rule.
    """
    return min(1.0, max(0.0, beta / (1 + kappa * R)))


def logarithmic_retention(rho: float, theta: float) -> float:
    """1/(1 + ρ²θ²): the intrinsic tangent, of length θ rather than sin θ, then normalisation."""
    return 1 / (1 + (rho * theta) ** 2)


def geodesic_retention(rho: float, theta: float) -> float:
    """cos²(ρθ): the line carried along the projective geodesic itself."""
    return float(np.cos(rho * theta)) ** 2


def block_coefficient(A: ArrayLike, rho: ArrayLike, N: ArrayLike) -> Vector:
    """ω_b = A_b/(A_b + ρ_b²N_b) for every block, with A = ‖Δv‖² and N = ‖P⊥Δv‖².

    [eq:gs-block-solution] A block with Δv = 0 has nothing to retain: 0.
    """
    A = _vector(A)
    total = A + _vector(rho) ** 2 * _vector(N)
    return np.divide(A, total, out=np.zeros_like(total), where=total > 0)


def shared_coefficient(A: ArrayLike, rho: ArrayLike, N: ArrayLike) -> float:
    """ω = ΣA_b/(ΣA_b + Σρ_b²N_b), one coefficient for all blocks [eq:gs-shared-solution]."""
    penalty = _vector(rho) ** 2 * _vector(N)
    return float(block_coefficient(_vector(A).sum(), 1.0, penalty.sum())[0])


# What the horizon and the turning measure.


def midpoint_moments(
    sigma_n: float, sigma_next: float, sigma1: float, sigma2: float
) -> tuple[float, float]:
    """∫r and ∫r² over the update of stage n, r being the displacement in units of the anchor span.

    The mean is ρ; the mean square exceeds ρ² by the variance of r within the update
    [eq:gs-midpoint-moments].
    """
    span = sigma1 - sigma2
    rho = (sigma_n + sigma_next - 2 * sigma1) / (2 * span)
    return rho, rho**2 + ((sigma_n - sigma_next) / span) ** 2 / 12


def angular_speed(g1: ArrayLike, g2: ArrayLike) -> float:
    """‖P⊥g″‖/‖g′‖ = ‖U′‖: how fast the unit tangent U = g′/‖g′‖ turns [eq:gs-angular-speed]."""
    g1, g2 = _vector(g1), _vector(g2)
    return float(np.linalg.norm(g2 - _project(g2, onto=g1)) / np.linalg.norm(g1))


def exposure_limit(delta: float, eta: float, speed: float) -> float:
    """lim ρ² sin²θ = (δ · ½(1 + η) · speed)² as the spans shrink, h₁/h₂ → η [thm:gs-continuum].

    ρ = δ/h₂, and `speed` is the angular speed at the point the spans shrink to.
    """
    return (delta * (1 + eta) / 2 * speed) ** 2


# Certificates from the spacing of the anchors alone.


def horizon_bound(h_j: float, h_next: float) -> float:
    """|ρ| ≤ h_{j+1}/h_j throughout the cell that follows the gap h_j [lem:gs-gap-ratio]."""
    return h_next / h_j


def discrete_horizon(h_j: int, h_next: int) -> float:
    """The largest |ρ| among the skipped stages of a cell of whole stages, (h_{j+1} − ½)/h_j.

    [eq:gs-discrete-horizon] It is 0 where nothing is skipped.
    """
    return (h_next - 0.5) / h_j if h_next >= 2 else 0.0


def time_warp_bounds(rho_s: float, m: float, M: float) -> tuple[float, float]:
    """Between which horizons ρ_s ≥ 0 may fall when progress is warped to a time with m ≤ ψ′ ≤ M.

    [eq:gs-time-warp]
    """
    return m / M * rho_s, M / m * rho_s


def warped_retention_floor(gamma: float, m: float, M: float) -> float:
    """ω ≥ 1/(1 + (MΓ/m)²): the floor that survives a time warp with m ≤ ψ′ ≤ M."""
    return retention_floor(M / m * gamma)


# What smoothness promises about one prediction.


def secant_bound(M: float, delta: float, h: float, omega: float, dv_norm: float) -> float:
    """‖g(a+δ) − g(a) − ωΔv‖ ≤ ½Mδ(δ + h) + |δ/h − ω|‖Δv‖ [eq:gs-causal-bound].

    Δv = g(a) − g(a−h), and g′ is M-Lipschitz on [a−h, a+δ].
    """
    return M / 2 * delta * (delta + h) + abs(delta / h - omega) * dv_norm


def geoshrink_secant_bound(M: float, h: float, lam: float, R: float, dv_norm: float) -> float:
    """The same at ω = 1/(1 + R), δ = λh: truncation, one-span mismatch and shrinkage apart.

    ½Mh²λ(1 + λ) + (|λ − 1| + R/(1 + R))‖Δv‖ [eq:gs-geoshrink-smoothness-bound].
    """
    return M / 2 * h**2 * lam * (1 + lam) + (abs(lam - 1) + R / (1 + R)) * dv_norm


# What the regularisers change.


def residual_bias(P: float, D: float, eps: float) -> float:
    """By how much ε in the projection's denominator raises ‖P⊥Δv‖²: D²ε²/(P(P + ε)²) ≥ 0.

    P = ‖Δv⁻‖², D = ⟨Δv, Δv⁻⟩ [eq:gs-epsilon-bias].
    """
    return (D * eps / (P + eps)) ** 2 / P


def angle_bias(turning: float, S: float, P: float, eps: float) -> float:
    """By how much ε raises sin²θ computed as 1 − D²/(SP + ε): cos²θ · ε/(SP + ε).

    S = ‖Δv‖², P = ‖Δv⁻‖² [eq:gs-direct-angle-bias].
    """
    return (1 - turning) * eps / (S * P + eps)


# From the defects of single stages to the end of the run.


def propagation_bound(defects: ArrayLike, alphas: ArrayLike, betas: ArrayLike) -> float:
    """How far the defects ‖ε_n‖ can carry the final state: e ← α_n e + β_n‖ε_n‖ from e = 0.

    α_n is the Lipschitz constant of step n in the state, β_n that in the field
    [eq:gs-general-propagation].
    """
    error = 0.0
    for defect, alpha, beta in zip(_vector(defects), _vector(alphas), _vector(betas), strict=True):
        error = float(alpha) * error + float(beta * defect)
    return error


def special_propagation_bound(defects: ArrayLike, steps: ArrayLike, L: float, C: float) -> float:
    """C e^{L Σh} Σ h_n‖ε_n‖, where α_n ≤ 1 + L h_n and β_n ≤ C h_n [eq:gs-special-propagation]."""
    h = np.abs(_vector(steps))
    return C * float(np.exp(L * h.sum()) * (h @ _vector(defects)))


def mean_square_propagation_bound(
    mean_square_defects: ArrayLike, steps: ArrayLike, L: float, C: float
) -> float:
    """E‖X̃ − X*‖² ≤ C² e^{2LS} S Σ h_n E‖ε_n‖², with S = Σh [eq:gs-mean-square-propagation]."""
    h = np.abs(_vector(steps))
    return C**2 * float(np.exp(2 * L * h.sum()) * h.sum() * (h @ _vector(mean_square_defects)))
