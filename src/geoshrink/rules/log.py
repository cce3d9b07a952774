"""log: ω = 1/(1 + ρ²θ²), the chordal rule with the angle itself in place of its sine."""

from .rule import Form


def omega(rule, angle, energy, reach):
    return 1 / (1 + angle.square())


FORM = Form("log", omega, sees="angle")
