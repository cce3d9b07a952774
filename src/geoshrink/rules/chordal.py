"""chordal, the paper's: ω = 1/(1 + R), the part of Δv that returns to itself when its line is
carried on by ρ and projected back [thm:gs-projective-retention]; S/(S·(1 + R) + ε_s) regularised.
"""

from .rule import Form


def omega(rule, exposure, energy, reach):
    return energy / (energy * (1 + exposure) + rule.eps_s)


FORM = Form("chordal", omega, kernel="chordal", keeps_floor=True)
