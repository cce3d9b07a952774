"""How much to keep: sin²θ from three dot products, and ω from sin²θ and the horizon. Pure tensor
functions.

With S = ‖Δv‖², P = ‖Δv⁻‖², D = ⟨Δv, Δv⁻⟩ the turning is sin²θ = 1 − D²/(S·P), the exposure R =
ρ²·sin²θ and the paper's retention ω = 1/(1 + R). Nothing here reads a tensor on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..blocks import Blocks
from ..tracing import followed
from .rule import Rule


class Statistics(NamedTuple):
    """S = ‖Δv‖², P = ‖Δv⁻‖², D = ⟨Δv, Δv⁻⟩, one value per block."""

    S: Tensor
    P: Tensor
    D: Tensor


def dot(
    a: Tensor, b: Tensor, blocks: Blocks, mask: Tensor | None = None, dtype=torch.float32
) -> Tensor:
    """⟨a, b⟩ within each block, over the mask, accumulated in at least float32."""
    wide = torch.promote_types(torch.promote_types(a.dtype, b.dtype), dtype)
    if mask is not None:  # before the product: a hidden NaN would come back in its gradient
        seen = torch.where(mask, a, 0)
        a, b = seen, seen if b is a else torch.where(mask, b, 0)
    return blocks.sum(a.to(wide) * b.to(wide))


def turning(rule: Rule, stats: Statistics) -> Tensor:
    """sin²θ ∈ [0, 1]; 1 where Δv⁻ = 0: without a previous line the innovation is unsupported."""
    S, P, D = settled(stats)
    if rule.eps_a:
        sin2 = 1 - D.square() / (S * P + rule.eps_a)
    elif rule.eps_p:
        shrunk = P + rule.eps_p
        sin2 = 1 - (D / S) * (D / shrunk) * ((P + 2 * rule.eps_p) / shrunk)
    else:
        sin2 = 1 - cosine(stats).square()
    sin2 = torch.where(stats.P > 0, sin2.clamp(0, 1), 1.0)
    return torch.where(stats.S > 0, sin2, 0.0)


def settled(stats: Statistics) -> Statistics:
    """The statistics to divide by, where somebody asks for derivatives."""
    return Statistics(positive(stats.S), positive(stats.P), stats.D) if followed(*stats) else stats


def positive(t: Tensor) -> Tensor:
    """1 in place of 0: what comes of it is dropped, where 0 would leave a derivative of 0·∞."""
    return torch.where(t > 0, t, 1.0)


def root(t: Tensor) -> Tensor:
    """√t with the derivative 0 at 0, where θ has a corner."""
    none = t == 0
    return torch.where(none, 0.0, torch.where(none, 1.0, t).sqrt())


def cosine(stats: Statistics) -> Tensor:
    """⟨Δv, Δv⁻⟩/(‖Δv‖·‖Δv⁻‖), 0 where there is no previous line, or no innovation."""
    S, P, D = settled(stats)
    c = D / (S.sqrt() * P.sqrt())
    return torch.where(stats.P > 0, c, 0.0)


def acute_angle(rule: Rule, stats: Statistics) -> Tensor:
    """θ ∈ [0, π/2]; from both sine and cosine, because either alone is blunt at one end."""
    sin2 = turning(rule, stats)
    adjacent = root(1 - sin2) if rule.eps_a or rule.eps_p else cosine(stats).abs()
    there = (
        stats.S > 0
    )  # without an innovation both legs are 0, and so is θ, but not its derivative
    return torch.atan2(root(sin2), torch.where(there, adjacent, 1.0))


def retention(
    rule: Rule, stats: Statistics, rho: Tensor, lam: Tensor, sin2: Tensor | None = None
) -> Tensor:
    """ω for horizons ρ and reaches λ that broadcast against the statistics; 0 where it would not be
    finite. `sin2` is the turning, where it is known.
    """
    form = rule.form
    if form.sees == "exposure":
        ahead = rho.square()
        seen = turning(rule, stats) if sin2 is None else sin2
    elif form.sees == "angle":
        ahead = rho.abs()
        seen = acute_angle(rule, stats)
    else:
        omega = form.omega(rule, rho, stats.S, lam)
        return finish(rule, omega + torch.zeros_like(stats.S), stats)
    there = stats.S > 0
    if followed(*stats):
        there = there & ahead.isfinite()
        ahead, lam = near_zero(ahead), near_zero(lam)
    omega = form.omega(rule, ahead * seen, settled(stats).S, lam)
    return finish(rule, torch.where(there, omega, 0.0), stats)


def near_zero(t: Tensor) -> Tensor:
    """0 in place of what is not finite: ω is 0 there, and so is its derivative."""
    return torch.where(t.isfinite(), t, 0.0)


def shared_retention(
    rule: Rule, stats: Sequence[Statistics], rho: Sequence[Tensor], lam: Sequence[Tensor]
) -> list[Tensor]:
    """One coefficient per sample over all blocks and slots: R = Σ ρ_b²·N_b / Σ S_b (eq. gs-shared-
    solution).

    The statistics have the sample axis last but for the block axes: (…, samples, blocks…) summed
    per sample.
    """
    check_shared(rule)
    S, P, D = (torch.stack([per_sample(t) for t in column]).sum(0) for column in zip(*stats))
    far = [~r.square().isfinite() for r in rho]
    residual = [
        near_zero(r.square()) * per_sample(turning(rule, s) * s.S) for r, s in zip(rho, stats)
    ]
    exposure = torch.stack(residual).sum(0) / positive(S)
    near = ~torch.stack(far).any(0)
    out = []
    for r, reach, s in zip(rho, lam, stats):
        if rule.form.sees == "horizon":
            omega = retention(rule, Statistics(S, P, D), r, reach)
        else:
            omega = rule.form.omega(rule, exposure, positive(S), near_zero(reach))
            omega = torch.where(near & (S > 0), omega, 0.0)
            omega = finish(rule, omega, Statistics(S, P, D))
        out.append(omega.reshape(*omega.shape, *[1] * (s.S.ndim - 1)))
    return out


def check_shared(rule: Rule) -> None:
    if rule.form.sees == "angle":
        raise ValueError(
            f"rule {rule.name!r} has no shared form: it does not depend on the exposure alone"
        )


def per_sample(t: Tensor) -> Tensor:
    return t.flatten(1).sum(1) if t.ndim > 1 else t


def finish(rule: Rule, omega: Tensor, stats: Statistics) -> Tensor:
    """The sign, the clamp, and 0 for whatever is not finite or comes from what is not."""
    if rule.signed:
        omega = torch.where(stats.D > 0, omega, 0.0)
    omega = omega.clamp(0, 1) if rule.clamp else omega
    spoilt = 0 * stats.S + 0 * stats.P + 0 * stats.D  # 0, or NaN
    return torch.nan_to_num(omega + spoilt, nan=0.0, posinf=0.0, neginf=0.0)
