"""beta-kappa(β, κ): ω = β/(1 + κR), the minimiser if the reference is βΔv and the tangent is scaled
by √κ.
"""

from .rule import Form


def omega(rule, exposure, energy, reach):
    return rule.beta / (1 + rule.kappa * exposure)


FORM = Form("beta-kappa", omega, numbers=("beta", "kappa"), kernel="beta-kappa")
