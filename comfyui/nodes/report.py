"""GeoShrink Report: what the latest sampling of a model was like, as text and as a picture."""

from __future__ import annotations

from typing import Any

from ..api import Input, Node, Result
from ..pictures import bar_of, shown
from ..seam import accelerated
from ..telling import tell

MISSING = "this model has not been through a GeoShrink node"


def run(node_id: str, model: Any, latent: Any) -> Result:
    """The report of the sampling that made the latent."""
    found = accelerated(model)
    text = MISSING if found is None else found.full
    tell(node_id)(MISSING if found is None else found.text)
    bar = bar_of((), 0) if found is None else bar_of(found.anchors, found.steps)
    return Result((text, bar), {"text": (text,), **shown(bar)})


NODE = Node(
    "GeoShrinkReport",
    "GeoShrink Report",
    "At which steps the model was queried, and about how far the result is from the full run. "
    "Connect the model of the GeoShrink node, and the latent of the sampler.",
    (
        Input("model", "MODEL", about="from the GeoShrink node"),
        Input("latent", "LATENT", about="from the sampler: the report is read after it"),
    ),
    (("STRING", "report"), ("IMAGE", "anchors")),
    run,
    aliases=("geoshrink", "report", "statistics"),
    is_output=True,
)
