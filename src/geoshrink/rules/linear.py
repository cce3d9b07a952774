"""linear: ω = λ, the straight line through the last two outputs."""

from .rule import Form


def omega(rule, horizon, energy, reach):
    return reach


FORM = Form("linear", omega, sees="horizon", kernel="linear")
