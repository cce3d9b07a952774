"""The methods by name: ours, the paper's, and those of its ablation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        name: MappingProxyType(options)
        for name, options in {
            "geoshrink": {},
            "default": {},
            "uncorrected": dict(anchors="auto", rule="signed time"),
            "paper": dict(anchors="geometric", rule="chordal"),
            "Fixed-Linear": dict(anchors="uniform", rule="linear"),
            "Fixed-Linear (ω = 1)": dict(anchors="uniform", rule="fixed(1)"),
            "Geo-Linear": dict(anchors="geometric", rule="linear"),
            "Geo-Linear (ω = 1)": dict(anchors="geometric", rule="fixed(1)"),
            "Fixed-Shrink": dict(anchors="uniform", rule="chordal"),
            "GeoShrink": dict(anchors="geometric", rule="chordal"),
        }.items()
    }
)
"""Named methods: keyword arguments for Plan.of, Run and sample.

"geoshrink" is our default, which needs none, and "default" its old name; "uncorrected" is what it
is where cells cannot be corrected. The rest are the rows of the paper's ablation, where "GeoShrink"
is "paper"; it does not say whether its "linear" scales the innovation by λ or keeps it whole
(ω = 1), so both are here.
"""


def is_default(options: Mapping[str, Any]) -> bool:
    """Whether these options leave the method to us: how anchors are placed, and stages predicted.

    Whoever chooses one of these says, too, whether cells are corrected.
    """
    own = ("anchors", "rule", "coefficients", "clock")
    plain = options.get("space", "output") == "output" and options.get("refine") in (None, 1)
    return plain and all(options.get(name) is None for name in own)
