"""GeoShrink: MODEL → MODEL. Whatever samples it makes a fraction of the calls."""

from __future__ import annotations

from typing import Any

from ..api import Input, Node, Result
from ..options import AUTO, CORRECTS, RULES, SPACES, Options
from ..seam import Accelerated, accelerated
from ..telling import tell

REPLACED = "this node replaces the GeoShrink node before it"

INPUTS = (
    Input("model", "MODEL", about="put it last, next to the sampler"),
    Input(
        "speedup",
        "FLOAT",
        3.0,
        "steps over model calls: 3 makes 10 calls in 30 steps. 2 is safe, 3 is good, 5 is fast",
        limits={"min": 1.0, "max": 20.0, "step": 0.1},
    ),
    Input(
        "learn",
        "BOOLEAN",
        False,
        "the first picture is exact and teaches the others where to query the model",
    ),
    Input(
        "budget",
        "INT",
        0,
        "model calls of a sampling, in place of speedup; 0: by speedup",
        advanced=True,
        optional=True,
        limits={"min": 0, "max": 10000},
    ),
    Input(
        "target_db",
        "FLOAT",
        0.0,
        "as many calls as this distance to the full run takes, in dB of the latents; 0: by speedup",
        advanced=True,
        optional=True,
        limits={"min": 0.0, "max": 100.0, "step": 0.5},
    ),
    Input(
        "plan",
        "STRING",
        "",
        "the file that GeoShrink Profile wrote, or its text; empty: none",
        advanced=True,
        optional=True,
    ),
    Input(
        "space",
        list(SPACES),
        AUTO,
        "predict what the solver receives, or the clean picture; auto: by the sampler",
        advanced=True,
        optional=True,
    ),
    Input(
        "rule",
        list(RULES),
        AUTO,
        "how much of the latest change is kept; chordal is the paper's",
        advanced=True,
        optional=True,
    ),
    Input(
        "correct",
        list(CORRECTS),
        AUTO,
        "put skipped steps right once the next exact one is known; auto: where the sampler allows",
        advanced=True,
        optional=True,
    ),
)


def run(node_id: str, model: Any, **words: Any) -> Result:
    """The model, accelerated."""
    before = REPLACED if accelerated(model) is not None else ""
    return Result((Accelerated(Options(**words), tell(node_id), before).attach(model),))


NODE = Node(
    "GeoShrink",
    "GeoShrink",
    "Makes the sampler query the model at a few steps only and predicts the others. "
    "Any model; the sampler and its steps stay what they are.",
    INPUTS,
    (("MODEL", "model"),),
    run,
    aliases=(
        "teacache",
        "easycache",
        "magcache",
        "lazycache",
        "speed up",
        "accelerate",
        "cache",
        "faster",
    ),
)
