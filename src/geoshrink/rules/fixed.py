"""fixed(value): the same share of Δv at every stage, whatever the angle and the horizon."""

import torch

from .rule import Form


def omega(rule, horizon, energy, reach):
    return torch.full_like(horizon, rule.value)


FORM = Form("fixed", omega, sees="horizon", numbers=("value",), needed=1, kernel="fixed")
