"""time: ω = λ/(1 + R), exact for outputs that are affine in time: λ·Δv is then all of the change,
and R = 0.
"""

from . import chordal
from .rule import Form


def omega(rule, exposure, energy, reach):
    return reach * chordal.omega(rule, exposure, energy, reach)


FORM = Form("time", omega, kernel="time")
