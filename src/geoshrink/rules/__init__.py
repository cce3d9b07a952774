"""The rules: how much of Δv a skipped stage keeps. One file each; register_rule takes yours too."""

from . import beta_kappa, chordal, exp, fixed, hold, linear, log, time
from .rule import RULES as RULES
from .rule import Form as Form
from .rule import Rule as Rule
from .rule import register_rule as register_rule

for module in (chordal, log, exp, time, fixed, hold, linear, beta_kappa):
    register_rule(module.FORM)
