"""What a run aims at: "run", the result of the solver's own T steps, or "flow", the exact flow.

The T steps are themselves an approximation of the flow that the model defines. Predicted steps are
free, so a run can take eight in place of each (history/refinement.py). What is left is the error of
the predictions, and corrected cells (correction.py) make that small: with fewer calls than T such a
run is closer to the flow than T steps are. It needs no profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

RUN, FLOW = TARGETS = "run", "flow"
REFINE = 8  # times the grid is refined for the exact flow, by default
#: Options of Plan.of for the exact flow, where the caller says nothing else.
FOR_FLOW: Mapping[str, Any] = MappingProxyType(
    dict(anchors="corrected", refine=REFINE, correct=True, clock="mesh")
)


def aimed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of Plan.of without `target`: what it asks for stands where nothing is said.

    >>> aimed({"budget": 20, "target": "flow", "clock": "sigma"})["clock"]
    'sigma'
    """
    target, rest = options.get("target", RUN), {k: v for k, v in options.items() if k != "target"}
    if check_target(target) == RUN:
        return rest
    rest |= {name: value for name, value in FOR_FLOW.items() if rest.get(name) is None}
    if rest["refine"] == 1:
        raise ValueError("refine=1 leaves the solver's own steps: with target='flow' give 2 to 64")
    return rest


def check_target(target: Any) -> str:
    if target not in TARGETS:
        raise ValueError(
            f'unknown target {target!r}; "run" is the result of the solver\'s own steps, "flow" '
            "the exact flow"
        )
    return target
