"""FORA (Selvaraju et al., 2024): every N-th stage in full; between, each branch is reused."""

from __future__ import annotations

from .taylorseer import TaylorSeer


class Fora(TaylorSeer):
    """The branches' outputs of the last full stage, gated anew, as in the authors' code: a series
    that ends with its first term. Full at stage 0 and every N-th after it.
    """

    name = "FORA"

    def __init__(self, interval: int | None = None):
        super().__init__(interval, warm_up=1, order=0)
