"""A number in its own words."""

from __future__ import annotations


class Shown(float):
    """A number that a table sorts and ranks as it is, and writes as `text`.

    NaN has no rank; what does not compete is never best.

    >>> f"{Shown(31.25, '31.2 ± 0.4'):.1f}", Shown(31.25, "") > 30
    ('31.2 ± 0.4', True)
    """

    text: str
    competes: bool

    def __new__(cls, value: float, text: str, competes: bool = True) -> Shown:
        self = super().__new__(cls, value)
        self.text, self.competes = text, competes
        return self

    def __format__(self, spec: str) -> str:
        return self.text
