"""How much to keep: sin²θ from three dot products, and ω from sin²θ and the horizon. Pure tensor
functions.

With S = ‖Δv‖², P = ‖Δv⁻‖², D = ⟨Δv, Δv⁻⟩ the turning is sin²θ = 1 − D²/(S·P), the exposure R =
ρ²·sin²θ and the paper's retention ω = 1/(1 + R). Nothing here reads a tensor on the host.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import check_switch, whole

RULES = ("chordal", "log", "exp", "time", "fixed", "hold", "linear", "beta-kappa")


@dataclass(frozen=True)
class Rule:
    """The coefficient of Δv at a skipped stage.

    chordal     1/(1 + R), the paper's             log     1/(1 + ρ²θ²)
    exp         cos²(ρθ), 0 once |ρθ| ≥ π/2        time    λ/(1 + R), affine-exact
    fixed       value                              hold    0
    linear      λ                                  beta-kappa   β/(1 + κR)

    signed      0 wherever ⟨Δv, Δv⁻⟩ ≤ 0: the acute angle takes a reversal for alignment, this does
                not
    clamp       clip to [0, 1]; chordal, log and exp lie there anyway, the others are left alone
                unless asked
    eps_p, eps_s   regularised residual form, eq. gs-regularized-weight;   eps_a   direct-angle form
    """

    name: str = "chordal"
    signed: bool = False
    value: float = 1.0
    beta: float = 1.0
    kappa: float = 1.0
    clamp: bool = False
    eps_p: float = 0.0
    eps_s: float = 0.0
    eps_a: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise ValueError(f"unknown rule {self.name!r}; choose one of {', '.join(RULES)}")
        for name in ("value", "beta", "kappa", "eps_p", "eps_s", "eps_a"):
            object.__setattr__(self, name, self._number(name))
        check_switch(f"rule {self.name!r}: signed", self.signed)
        check_switch(f"rule {self.name!r}: clamp", self.clamp)
        if self.eps_a and self.eps_p:
            raise ValueError(
                "choose one regularised angle: eps_p (residual form) or eps_a (direct form)"
            )

    def _number(self, name: str) -> float:
        given = getattr(self, name)
        try:
            number = float(given)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"rule {self.name!r}: {name} must be finite, got {given!r}")
        if number < 0 and name not in ("value", "beta"):
            raise ValueError(f"rule {self.name!r}: {name} must not be negative, got {given!r}")
        return number

    @classmethod
    def of(cls, rule: Rule | str) -> Rule:
        """A rule from its name: "chordal", "signed chordal", "fixed(0.5)", "beta-kappa(1, 0.5)".

        >>> Rule.of("signed time")
        Rule.of('signed time')
        """
        if isinstance(rule, Rule):
            return rule
        match = (
            re.fullmatch(r"(signed )?([a-z-]+)(?:\(([^()]*)\))?", rule.strip())
            if isinstance(rule, str)
            else None
        )
        if match is None or match[2] not in RULES:
            raise ValueError(
                f"unknown rule {rule!r}; choose one of {', '.join(RULES)}, 'signed' before it "
                "if you like"
            )
        names = {"fixed": ("value",), "beta-kappa": ("beta", "kappa")}.get(match[2], ())
        given = match[3].split(",") if match[3] else []
        try:
            numbers = [float(part) for part in given]
        except ValueError:
            numbers = None
        if numbers is None or len(numbers) > len(names) or (match[2] == "fixed" and not numbers):
            raise ValueError(f"rule {rule!r}: write it as {match[2]}({', '.join(names)})")
        parsed: dict[str, Any] = dict(zip(names, numbers))
        return cls(match[2], signed=bool(match[1]), **parsed)

    @property
    def keeps_floor(self) -> bool:
        """Whether ω ≥ 1/(1 + ρ²), whatever the innovations (eq. gs-retention-certificate)."""
        return self.name == "chordal" and not self.signed and not self.eps_s

    def to_json(self) -> dict[str, Any]:
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != f.default
        }

    def __repr__(self) -> str:
        if not self._extras():
            return f"Rule.of({str(self)!r})"
        return f"Rule({', '.join(f'{key}={value!r}' for key, value in self.to_json().items())})"

    def _extras(self) -> list[str]:
        named = [f"{k}={getattr(self, k)}" for k in ("eps_p", "eps_s", "eps_a") if getattr(self, k)]
        return [*named, "clamp"] if self.clamp else named

    def __str__(self) -> str:
        inside = {"fixed": f"({self.value})", "beta-kappa": f"({self.beta}, {self.kappa})"}
        extras = self._extras()
        text = f"{'signed ' if self.signed else ''}{self.name}{inside.get(self.name, '')}"
        return text + (f" [{', '.join(extras)}]" if extras else "")


@dataclass(frozen=True)
class Blocks:
    """Which coordinates share one coefficient (Prop. gs-blockwise): by default each sample has its
    own.

    dims     the axes that are kept apart: (0,) samples, (0, 1) samples and channels, () one for the
             whole tensor
    groups   sizes of consecutive groups along the last of these axes, e.g. tokens (512, 4096) along
             axis 1
    shared   one coefficient per sample over all blocks and all slots, eq. gs-shared-solution
    """

    dims: tuple[int, ...] = (0,)
    groups: tuple[int, ...] | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.dims, (tuple, list)):
            raise TypeError(f"dims are the axes that are kept apart, a tuple; got {self.dims!r}")
        object.__setattr__(self, "dims", tuple(whole(d, "an axis of dims") for d in self.dims))
        if self.groups is not None:
            sizes = tuple(whole(g, "a size of groups") for g in self.groups)
            object.__setattr__(self, "groups", sizes)
            if not self.dims or min(self.groups, default=0) < 1:
                raise ValueError(
                    f"groups {self.groups} need positive sizes and an axis in dims to run along"
                )
        check_switch("blocks: shared", self.shared)
        if self.shared and 0 not in self.dims:
            raise ValueError(
                f"a shared coefficient is per sample: dims {self.dims} must contain axis 0"
            )

    def axes(self, ndim: int) -> tuple[int, ...]:
        """dims as sorted non-negative axes of a tensor with ndim axes."""
        if ndim == 0:
            return ()
        bad = [d for d in self.dims if not -ndim <= d < ndim]
        if bad:
            raise ValueError(f"blocks over axis {bad[0]}, but the output has {ndim} axes")
        return tuple(sorted({d % ndim for d in self.dims}))

    def sum(self, t: Tensor) -> Tensor:
        """Sums t within each block."""
        kept = self.axes(t.ndim)
        rest = tuple(d for d in range(t.ndim) if d not in kept)
        total = t.sum(rest) if rest else t
        if self.groups is None or not kept:
            return total
        axis = kept.index(self.dims[-1] % t.ndim)
        if sum(self.groups) != total.shape[axis]:
            raise ValueError(
                f"groups {self.groups} add up to {sum(self.groups)}, the axis has "
                f"{total.shape[axis]}"
            )
        return torch.stack([part.sum(axis) for part in total.split(list(self.groups), axis)], axis)

    def spread(self, omega: Tensor, like: Tensor) -> Tensor:
        """A coefficient per block → a tensor that broadcasts against the output."""
        kept = self.axes(like.ndim)
        if self.groups is not None and kept and omega.ndim == len(kept):
            axis = kept.index(self.dims[-1] % like.ndim)
            if omega.shape[axis] != 1:
                pairs = zip(omega.split(1, axis), self.groups)
                wide = [w.expand(*w.shape[:axis], n, *w.shape[axis + 1 :]) for w, n in pairs]
                omega = torch.cat(wide, axis)
        shape = [1] * like.ndim
        for axis, size in zip(kept, omega.shape):
            shape[axis] = size
        return omega.reshape(shape)


PER_SAMPLE = Blocks()


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
    S, P, D = positive(stats.S), positive(stats.P), stats.D
    if rule.eps_a:
        sin2 = 1 - D.square() / (S * P + rule.eps_a)
    elif rule.eps_p:
        shrunk = P + rule.eps_p
        sin2 = 1 - (D / S) * (D / shrunk) * ((P + 2 * rule.eps_p) / shrunk)
    else:
        sin2 = 1 - cosine(stats).square()
    sin2 = torch.where(stats.P > 0, sin2.clamp(0, 1), 1.0)
    return torch.where(stats.S > 0, sin2, 0.0)


def positive(t: Tensor) -> Tensor:
    """1 in place of 0: what comes of it is dropped, where 0 would leave a derivative of 0·∞."""
    return torch.where(t > 0, t, 1.0)


def root(t: Tensor) -> Tensor:
    """√t with the derivative 0 at 0, where θ has a corner."""
    return torch.where(t > 0, positive(t).sqrt(), 0.0)


def cosine(stats: Statistics) -> Tensor:
    """⟨Δv, Δv⁻⟩/(‖Δv‖·‖Δv⁻‖), 0 where there is no previous line, or no innovation."""
    c = stats.D / (positive(stats.S).sqrt() * positive(stats.P).sqrt())
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
    if rule.name in ("hold", "fixed", "linear"):
        constant = {
            "hold": torch.zeros_like(rho),
            "fixed": torch.full_like(rho, rule.value),
            "linear": lam,
        }
        return finish(rule, constant[rule.name] + torch.zeros_like(stats.S), stats)
    if rule.name in ("log", "exp"):
        near = rho.isfinite()
        angle = near_zero(rho.abs()) * acute_angle(rule, stats)
        if rule.name == "log":
            omega = 1 / (1 + angle.square())
        else:
            omega = torch.where(angle < math.pi / 2, angle.cos().square(), torch.zeros_like(angle))
    else:
        near = rho.square().isfinite()
        sin2 = turning(rule, stats) if sin2 is None else sin2
        omega = kept(rule, near_zero(rho.square()) * sin2, stats.S, lam)
    return finish(rule, torch.where(near & (stats.S > 0), omega, 0.0), stats)


def near_zero(t: Tensor) -> Tensor:
    """0 in place of what is not finite: ω is 0 there, and so is its derivative."""
    return torch.where(t.isfinite(), t, 0.0)


def kept(rule: Rule, exposure: Tensor, S: Tensor, lam: Tensor) -> Tensor:
    """The rules that see only the exposure R: reference amplitude over 1 + κR (+ ε_s/S)."""
    S, lam = positive(S), near_zero(lam)
    if rule.name == "beta-kappa":
        return rule.beta / (1 + rule.kappa * exposure)
    omega = S / (S * (1 + exposure) + rule.eps_s)
    return lam * omega if rule.name == "time" else omega


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
        if rule.name in ("hold", "fixed", "linear"):
            omega = retention(rule, Statistics(S, P, D), r, reach)
        else:
            omega = torch.where(near & (S > 0), kept(rule, exposure, S, reach), 0.0)
            omega = finish(rule, omega, Statistics(S, P, D))
        out.append(omega.reshape(*omega.shape, *[1] * (s.S.ndim - 1)))
    return out


def check_shared(rule: Rule) -> None:
    if rule.name in ("log", "exp"):
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
