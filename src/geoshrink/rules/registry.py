"""The registry of rules, open to others: a form per name, and what a form is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from ..registry import Registry

if TYPE_CHECKING:
    from .rule import Rule

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
