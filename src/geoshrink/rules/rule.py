"""Form and Rule: a form is one formula for how much of Δv is kept, in a registry open to others; a
rule names a form, with its numbers and modifiers. A rule is plain data, JSON both ways.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from ..checks import check_switch
from ..registry import Registry

SEEN = ("exposure", "angle", "horizon")
NUMBERS = ("value", "beta", "kappa")


@dataclass(frozen=True)
class Form:
    """One rule: ω = omega(rule, seen, energy, reach), a tensor function.

    name         as it is written; "signed" before it and clamp=True need no form of their own
    sees         what `seen` is. "exposure": R = ρ²·sin²θ, and the rule has a shared form; "angle":
                 |ρ|·θ; "horizon": ρ alone, whatever the innovations
    numbers      which of Rule's value, beta and kappa it takes, in the order they are written
    needed       how many of them must be written
    kernel       the branch of the fused kernel that computes it; None: it has none, and runs as
                 tensors on every device
    keeps_floor  ω ≥ 1/(1 + ρ²), whatever the innovations (eq. gs-retention-certificate)

    energy is ‖Δv‖², reach is λ. Without an innovation a rule that sees more than the horizon keeps
    nothing, whatever it says, and no rule keeps an ω that is not finite.
    """

    name: str
    omega: Callable[[Rule, Tensor, Tensor, Tensor], Tensor]
    sees: str = "exposure"
    numbers: tuple[str, ...] = ()
    needed: int = 0
    kernel: str | None = None
    keeps_floor: bool = False

    def __post_init__(self) -> None:
        if self.sees not in SEEN:
            raise ValueError(
                f"rule {self.name!r}: sees is one of {', '.join(SEEN)}, got {self.sees!r}"
            )
        if not set(self.numbers) <= set(NUMBERS):
            raise ValueError(
                f"rule {self.name!r}: its numbers are among {', '.join(NUMBERS)}, "
                f"got {self.numbers!r}"
            )


#: Every rule that is known, by its name.
RULES = Registry("rule", Form)


def register_rule(form: Form) -> None:
    """Teaches geoshrink a rule, for sample, Run, plans and reports alike.

    form    a geoshrink.rules.Form with a name of its own

    >>> from geoshrink.rules import Form, Rule
    >>> register_rule(Form("half", lambda rule, R, energy, reach: 0.5 / (1 + R)))
    >>> Rule.of("signed half")
    Rule.of('signed half')
    >>> del RULES["half"]
    """
    RULES.add(form)


@dataclass(frozen=True)
class Rule:
    """The coefficient of Δv at a skipped stage: a registered form, its numbers, and how it is
    modified.

        chordal     1/(1 + R), the paper's             log     1/(1 + ρ²θ²)
        exp         cos²(ρθ), 0 once |ρθ| ≥ π/2        time    λ/(1 + R), affine-exact
        fixed       value                              hold    0
        linear      λ                                  beta-kappa   β/(1 + κR)

    name        one of these forms, R = ρ²·sin²θ, or one that you registered
    value       of fixed
    beta        β of beta-kappa
    kappa       κ of beta-kappa
    signed      0 wherever ⟨Δv, Δv⁻⟩ ≤ 0: the acute angle takes a reversal for alignment, this does
                not
    clamp       clip to [0, 1]; chordal, log and exp lie there anyway, the others are left alone
                unless asked
    eps_p       added to P = ‖Δv⁻‖²: the regularised residual form of sin²θ, eq.
                gs-regularized-weight
    eps_s       for chordal: S/(S·(1 + R) + eps_s) with S = ‖Δv‖², of the same equation
    eps_a       sin²θ = 1 − D²/(S·P + eps_a), the direct-angle form; not with eps_p
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
            raise ValueError(
                f"unknown rule {self.name!r}; choose one of {', '.join(RULES)}, or teach it to "
                "geoshrink with geoshrink.register_rule"
            )
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
            re.fullmatch(r"(signed )?([a-z][a-z0-9+-]*)(?:\(([^()]*)\))?", rule.strip())
            if isinstance(rule, str)
            else None
        )
        if match is None or match[2] not in RULES:
            raise ValueError(
                f"unknown rule {rule!r}; choose one of {', '.join(RULES)}, 'signed' before it "
                "if you like"
            )
        form = RULES[match[2]]
        given = match[3].split(",") if match[3] else []
        try:
            numbers = [float(part) for part in given]
        except ValueError:
            numbers = None
        if numbers is None or not form.needed <= len(numbers) <= len(form.numbers):
            raise ValueError(f"rule {rule!r}: write it as {match[2]}({', '.join(form.numbers)})")
        parsed: dict[str, Any] = dict(zip(form.numbers, numbers))
        return cls(match[2], signed=bool(match[1]), **parsed)

    @property
    def form(self) -> Form:
        return RULES[self.name]

    @property
    def keeps_floor(self) -> bool:
        """Whether ω ≥ 1/(1 + ρ²), whatever the innovations (eq. gs-retention-certificate)."""
        return self.form.keeps_floor and not self.signed and not self.eps_s

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
        inside = ", ".join(str(getattr(self, name)) for name in self.form.numbers)
        extras = self._extras()
        text = f"{'signed ' if self.signed else ''}{self.name}{f'({inside})' if inside else ''}"
        return text + (f" [{', '.join(extras)}]" if extras else "")
